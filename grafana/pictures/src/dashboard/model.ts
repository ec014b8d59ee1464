import type { AnnotationQuery, DataTransformerConfig, FieldConfigSource } from '@grafana/data';

import type { PrometheusQuery } from '../prometheus/interpolate';

/** A dashboard's JSON in Grafana's classic schema, as far as it is drawn. */
export interface Dashboard {
  title: string;
  time?: { from: string; to: string };
  refresh?: string;
  panels: Panel[];
  links?: DashboardLink[];
  templating?: { list: Variable[] };
  annotations?: { list: Annotation[] };
}

export interface GridPosition {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Panel {
  id?: number;
  type: string;
  title?: string;
  description?: string;
  transparent?: boolean;
  gridPos: GridPosition;
  options?: Record<string, unknown>;
  fieldConfig?: FieldConfigSource;
  targets?: PrometheusQuery[];
  transformations?: DataTransformerConfig[];
  interval?: string;
  maxDataPoints?: number;
  timeFrom?: string;
  timeShift?: string;
  links?: { title: string; url: string }[];
  repeat?: string;
  repeatDirection?: 'h' | 'v';
  maxPerRow?: number;
  /** Of a row. */
  collapsed?: boolean;
  /** Of a collapsed row. */
  panels?: Panel[];
  /** Of a copy that a repeat has made: the variable's value there. */
  scoped?: ScopedValue[];
}

export interface ScopedValue {
  name: string;
  value: string;
  text: string;
}

export interface Variable {
  type: string;
  name: string;
  label?: string | null;
  hide?: number;
  query?: string | { query?: string; refId?: string };
  current?: { value?: string | string[]; text?: string | string[] };
  multi?: boolean;
  includeAll?: boolean;
  allValue?: string | null;
  regex?: string;
  refresh?: number;
  sort?: number;
  auto?: boolean;
  auto_count?: number;
  auto_min?: string;
}

export type Annotation = AnnotationQuery & { builtIn?: number; type?: string };

export interface DashboardLink {
  title: string;
  type: 'link' | 'dashboards';
  url?: string;
  icon?: string;
  tooltip?: string;
  asDropdown?: boolean;
  tags?: string[];
}
