import type { Dashboard } from './dashboard/model';

/** What is to be drawn, as the page gets it from shot.mjs. */
export interface Shot {
  dashboard: Dashboard;
  /** A time that Grafana understands: now-1h, or ISO 8601. */
  from: string;
  to: string;
  theme: 'dark' | 'light';
  /** How often Prometheus scrapes, in seconds: the setting of the data source that $__rate_interval goes by. */
  scrapeSeconds: number;
  /** Chosen values of the board's variables. */
  variables: Record<string, string[]>;
  /** Whether collapsed rows are drawn open. */
  expand: boolean;
}

export async function fetchShot(): Promise<Shot> {
  const response = await fetch('/shot.json');
  return response.json();
}
