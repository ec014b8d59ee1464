import { rangeUtil, type DataQueryRequest, type ScopedVars } from '@grafana/data';
import { getTemplateSrv } from '@grafana/runtime';

/** A target of a dashboard, as far as it matters here. */
export interface PrometheusQuery {
  refId: string;
  expr: string;
  legendFormat?: string;
  format?: 'time_series' | 'table' | 'heatmap';
  instant?: boolean;
  range?: boolean;
  hide?: boolean;
  /** The shortest step: 30s. */
  interval?: string;
}

// Prometheus answers with no more samples per series.
const MAX_SAMPLES = 11_000;

/** The step of a query in milliseconds: the panel's, but no shorter than the target or Prometheus allows. */
export function stepOf(query: PrometheusQuery, request: DataQueryRequest<PrometheusQuery>, scrapeMs: number): number {
  const wanted = query.interval ? rangeUtil.intervalToMs(replace(query.interval, request.scopedVars)) : scrapeMs;
  const shortest = (request.range.to.valueOf() - request.range.from.valueOf()) / MAX_SAMPLES;
  return Math.max(request.intervalMs, wanted, Math.ceil(shortest / 1000) * 1000);
}

/** The expression with all variables replaced, the ones about time as Grafana's data source for Prometheus has them. */
export function interpolate(
  query: PrometheusQuery,
  request: DataQueryRequest<PrometheusQuery>,
  stepMs: number,
  scrapeMs: number,
) {
  const shortest = query.interval ? rangeUtil.intervalToMs(replace(query.interval, request.scopedVars)) : scrapeMs;
  const rangeMs = request.range.to.valueOf() - request.range.from.valueOf();
  const rangeSeconds = Math.ceil(rangeMs / 1000);
  return replace(query.expr, {
    ...request.scopedVars,
    __interval: { value: duration(stepMs) },
    __interval_ms: { value: String(stepMs) },
    __rate_interval: { value: duration(Math.max(stepMs + shortest, 4 * shortest)) },
    __range: { value: `${rangeSeconds}s` },
    __range_s: { value: String(rangeSeconds) },
    __range_ms: { value: String(rangeMs) },
  });
}

export function replace(text: string, scopedVars: ScopedVars | undefined): string {
  return getTemplateSrv().replace(text, scopedVars, asMatcher);
}

/** A variable's value in an expression: escaped for a string, and for a regular expression if it can be one. */
function asMatcher(value: unknown, variable: { multi?: boolean; includeAll?: boolean }): string {
  if (typeof value === 'string') {
    return variable.multi || variable.includeAll ? escapePattern(value) : escapeString(value);
  }
  if (!Array.isArray(value)) {
    return String(value);
  }
  const patterns = value.map((one) => escapePattern(String(one)));
  return patterns.length === 1 ? patterns[0] : `(${patterns.join('|')})`;
}

function escapeString(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/"/g, '\\"');
}

function escapePattern(text: string): string {
  return text.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&');
}

function duration(milliseconds: number): string {
  return milliseconds % 1000 ? `${milliseconds}ms` : `${milliseconds / 1000}s`;
}
