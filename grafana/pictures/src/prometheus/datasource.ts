import {
  LoadingState,
  type DataFrame,
  type DataQueryError,
  type DataQueryRequest,
  type DataQueryResponse,
  type MetricFindValue,
  type ScopedVars,
  type TimeRange,
} from '@grafana/data';
import { from, type Observable } from 'rxjs';

import type { Journal } from '../journal';
import { annotationSupport } from './annotations';
import { labelNames, labelValues, queryInstant, queryRange, type RangeSeries } from './api';
import { heatmapFrame, instantAsRange, tableFrame, timeSeriesFrames, type Asked } from './frames';
import { interpolate, replace, stepOf, type PrometheusQuery } from './interpolate';

export const UID = 'prometheus';

type Request = DataQueryRequest<PrometheusQuery>;

interface Answer {
  query: PrometheusQuery;
  asked: Asked;
  series: RangeSeries[];
}

/**
 * Grafana's data source for Prometheus, of which the half that asks Prometheus is a part of Grafana's server.
 *
 * Steps, $__rate_interval, legends, tables and buckets are made as Grafana makes them.
 */
export class PrometheusDatasource {
  readonly uid = UID;
  readonly id = 1;
  readonly name = 'Prometheus';
  readonly type = 'prometheus';
  readonly meta = { id: 'prometheus', name: 'Prometheus', info: { logos: {} } };
  readonly interval: string;
  readonly annotations = annotationSupport;

  constructor(
    private readonly journal: Journal,
    private readonly scrapeMs: number,
  ) {
    this.interval = `${scrapeMs}ms`;
  }

  getRef() {
    return { uid: this.uid, type: this.type };
  }

  query(request: Request): Observable<DataQueryResponse> {
    return from(this.answer(request));
  }

  private async answer(request: Request): Promise<DataQueryResponse> {
    const answers: Answer[] = [];
    const errors: DataQueryError[] = [];
    for (const query of request.targets.filter(({ hide, expr }) => !hide && expr)) {
      try {
        answers.push(...(await this.ask(query, request)));
      } catch (error) {
        errors.push({ refId: query.refId, message: error instanceof Error ? error.message : String(error) });
      }
    }
    return errors.length
      ? { data: framesOf(answers), errors, state: LoadingState.Error }
      : { data: framesOf(answers), state: LoadingState.Done };
  }

  private async ask(query: PrometheusQuery, request: Request): Promise<Answer[]> {
    const stepMs = stepOf(query, request, this.scrapeMs);
    const expression = interpolate(query, request, stepMs, this.scrapeMs);
    const asked = { refId: query.refId, expression, legendFormat: legendFormatOf(query, request), stepMs };
    const noted = { asker: askerOf(request), expression };
    const isEmpty = (series: unknown[]) => series.length === 0;
    const answers: Answer[] = [];
    if (query.range || !query.instant) {
      const [start, end] = aligned(request.range, stepMs);
      const series = await this.journal.follow(noted, queryRange(expression, start, end, stepMs / 1000), isEmpty);
      answers.push({ query, asked, series });
    }
    if (query.instant) {
      const time = request.range.to.valueOf() / 1000;
      const series = await this.journal.follow(noted, queryInstant(expression, time), isEmpty);
      answers.push({ query, asked, series: instantAsRange(series) });
    }
    return answers;
  }

  /** The values of a variable of the type query. */
  async metricFindQuery(
    query: string | { query?: string; refId?: string },
    options: { scopedVars?: ScopedVars; range?: TimeRange; variable?: { name: string } },
  ): Promise<MetricFindValue[]> {
    const expression = replace(typeof query === 'string' ? query : (query.query ?? ''), options.scopedVars).trim();
    const noted = { asker: `variable ${options.variable?.name ?? ''}`.trim(), expression };
    return this.journal.follow(noted, findValues(expression, options.range), (values) => values.length === 0);
  }

  async testDatasource() {
    return { status: 'success', message: '' };
  }
}

function legendFormatOf(query: PrometheusQuery, request: Request): string | undefined {
  return query.legendFormat && replace(query.legendFormat, request.scopedVars);
}

/** Who a request is for, by its place in the scene. */
function askerOf(request: Request): string {
  const annotation = request.scopedVars?.__annotation?.value?.name;
  return annotation ? `annotation ${annotation}` : (request.panelName ?? '');
}

/** The range in seconds, both ends on steps, so that the same samples are seen whenever a board is drawn. */
function aligned(range: TimeRange, stepMs: number): [number, number] {
  const floor = (time: number) => (Math.floor(time / stepMs) * stepMs) / 1000;
  return [floor(range.from.valueOf()), floor(range.to.valueOf())];
}

function framesOf(answers: Answer[]): DataFrame[] {
  const tables = new Set(answers.filter(({ query }) => query.format === 'table').map(({ query }) => query.refId));
  const someRows = answers.some(({ query, series }) => query.format === 'table' && series.length > 0);
  return answers.flatMap(({ query, asked, series }) => {
    if (query.format === 'table') {
      return someRows ? [tableFrame(series, query.refId, tables.size > 1 ? `Value #${query.refId}` : 'Value')] : [];
    }
    if (query.format === 'heatmap') {
      return series.length ? [heatmapFrame(series, asked)] : [];
    }
    return timeSeriesFrames(series, asked);
  });
}

async function findValues(expression: string, range?: TimeRange): Promise<MetricFindValue[]> {
  const now = Date.now() / 1000;
  const start = range ? range.from.unix() : now - 6 * 3600;
  const end = range ? range.to.unix() : now;
  const values = /^label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\s*\)$/s.exec(expression);
  if (values) {
    return (await labelValues(values[2], values[1] ?? '', start, end)).map((text) => ({ text }));
  }
  const names = /^label_names\((.*)\)$/s.exec(expression);
  if (names) {
    return (await labelNames(names[1], start, end)).map((text) => ({ text }));
  }
  const metrics = /^metrics\((.*)\)$/s.exec(expression);
  if (metrics) {
    const pattern = new RegExp(metrics[1]);
    return (await labelValues('__name__', '', start, end))
      .filter((name) => pattern.test(name))
      .map((text) => ({ text }));
  }
  const result = /^query_result\((.+)\)$/s.exec(expression);
  if (result) {
    return (await queryInstant(result[1], end)).map(({ metric, value }) => {
      const { __name__: name = '', ...labels } = metric;
      const pairs = Object.entries(labels).map(([label, one]) => `${label}="${one}"`);
      return { text: `${name}{${pairs.join(',')}} ${value[1]} ${value[0] * 1000}` };
    });
  }
  throw new Error(`no query of a variable: ${expression}`);
}
