import { FieldType, toDataFrame, type DataFrame } from '@grafana/data';

import type { InstantSeries, Labels, RangeSeries, Sample } from './api';

/** What a target asked, with variables replaced. */
export interface Asked {
  refId: string;
  expression: string;
  legendFormat?: string;
  stepMs: number;
}

export function number(text: string): number {
  return text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
}

export function instantAsRange(series: InstantSeries[]): RangeSeries[] {
  return series.map(({ metric, value }) => ({ metric, values: [value] }));
}

/** One frame per series, with a name only if the target's legend gives one: Grafana finds the others itself. */
export function timeSeriesFrames(series: RangeSeries[], asked: Asked): DataFrame[] {
  return series.map(({ metric, values }) =>
    toDataFrame({
      refId: asked.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: times(values), config: { interval: asked.stepMs } },
        {
          name: 'Value',
          type: FieldType.number,
          labels: metric,
          values: numbers(values),
          config: { displayNameFromDS: legend(metric, asked) },
        },
      ],
    }),
  );
}

/** One frame with a row per sample: its time, a column per label, and its value. */
export function tableFrame(series: RangeSeries[], refId: string, valueName: string): DataFrame {
  const rows = series.flatMap(({ metric, values }) => values.map((sample) => ({ metric, sample })));
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: rows.map(({ sample }) => sample[0] * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        config: { filterable: true },
        values: rows.map(({ metric }) => metric[label] ?? ''),
      })),
      { name: valueName, type: FieldType.number, values: rows.map(({ sample }) => number(sample[1])) },
    ],
  });
}

/** One frame with a field per bucket, from the cumulative ones of a histogram; the field's name is its upper bound. */
export function heatmapFrame(series: RangeSeries[], asked: Asked): DataFrame {
  const buckets = series.toSorted((one, other) => number(one.metric.le) - number(other.metric.le));
  const grid = [...new Set(buckets.flatMap(({ values }) => times(values)))].sort((one, other) => one - other);
  const cumulative = buckets.map(({ values }) => {
    const byTime = new Map(values.map(([time, value]) => [Math.round(time * 1000), number(value)]));
    return grid.map((time) => byTime.get(time) ?? null);
  });
  return toDataFrame({
    refId: asked.refId,
    meta: { type: 'heatmap-rows' as never },
    fields: [
      { name: 'Time', type: FieldType.time, values: grid, config: { interval: asked.stepMs } },
      ...buckets.map(({ metric }, bucket) => ({
        name: legend(metric, asked) ?? metric.le ?? '',
        type: FieldType.number,
        labels: metric,
        values: cumulative[bucket].map((value, row) => less(value, cumulative[bucket - 1]?.[row])),
      })),
    ],
  });
}

// Buckets are not read at one instant, so that a wider one can lag behind.
function less(value: number | null, lower: number | null | undefined): number | null {
  return value === null ? null : Math.max(0, value - (lower ?? 0));
}

function legend(metric: Labels, asked: Asked): string | undefined {
  const { legendFormat, expression } = asked;
  const { __name__: name = '', ...labels } = metric;
  if (legendFormat === '__auto') {
    return Object.keys(metric).length ? undefined : expression;
  }
  if (legendFormat) {
    return renderLabels(legendFormat, metric);
  }
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return name + (pairs.length ? `{${pairs.join(', ')}}` : '') || expression;
}

/** The text with each {{label}} replaced by its value, or by nothing. */
export function renderLabels(text: string, labels: Labels): string {
  return text.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

function times(samples: Sample[]): number[] {
  return samples.map(([time]) => Math.round(time * 1000));
}

function numbers(samples: Sample[]): number[] {
  return samples.map(([, value]) => number(value));
}
