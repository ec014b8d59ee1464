import type { Panel } from './model';

/** Pairs of titles of panels that cover one another, and those of panels that reach out of the 24 columns. */
export function overlapsOf(panels: Panel[]): string[] {
  // What a collapsed row holds is not on the board beside what follows it.
  const groups = [panels, ...panels.filter(({ collapsed }) => collapsed).map((row) => row.panels ?? [])];
  return groups.flatMap((group) => [
    ...group.filter(({ gridPos: { x, w } }) => x < 0 || x + w > 24).map((panel) => `${nameOf(panel)} leaves the grid`),
    ...group.flatMap((panel, index) =>
      group
        .slice(index + 1)
        .filter((other) => cover(panel, other))
        .map((other) => `${nameOf(panel)} overlaps ${nameOf(other)}`),
    ),
  ]);
}

export function nameOf(panel: Panel): string {
  return panel.title || `${panel.type} ${panel.id ?? ''}`.trim();
}

function cover({ gridPos: one }: Panel, { gridPos: other }: Panel): boolean {
  return one.x < other.x + other.w && other.x < one.x + one.w && one.y < other.y + other.h && other.y < one.y + one.h;
}
