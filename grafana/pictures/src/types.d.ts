// What is used of packages that come without types.

declare module 'react-dom/client' {
  export function createRoot(container: Element): { render(node: import('react').ReactNode): void };
}

declare module 'd3-scale-chromatic' {
  type Scheme = (share: number) => string;
  const schemes: Record<string, Scheme>;
  export = schemes;
}
