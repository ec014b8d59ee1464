import {
  rangeUtil,
  type AnnotationEvent,
  type AnnotationQuery,
  type AnnotationSupport,
  type DataFrame,
} from '@grafana/data';
import { of } from 'rxjs';

import { renderLabels } from './frames';
import type { PrometheusQuery } from './interpolate';

/** The fields that an annotation has when it comes from Prometheus. */
type PrometheusAnnotation = AnnotationQuery<PrometheusQuery> & {
  expr?: string;
  step?: string;
  tagKeys?: string;
  titleFormat?: string;
  textFormat?: string;
  useValueForTime?: boolean | 'on';
};

const DEFAULT_STEP = '60s';

/** Events from the samples of an expression that are above zero, those of neighbouring steps as one region. */
export const annotationSupport: AnnotationSupport<PrometheusQuery> = {
  prepareAnnotation: (json: PrometheusAnnotation) => json,

  prepareQuery(annotation: PrometheusAnnotation) {
    const expr = annotation.expr ?? annotation.target?.expr;
    return expr ? { refId: 'Anno', expr, range: true, interval: annotation.step || DEFAULT_STEP } : undefined;
  },

  processEvents(annotation: PrometheusAnnotation, frames: DataFrame[]) {
    const stepMs = rangeUtil.intervalToMs(annotation.step || DEFAULT_STEP);
    return of(frames.flatMap((frame) => eventsOf(annotation, frame, stepMs)));
  },
};

function eventsOf(annotation: PrometheusAnnotation, frame: DataFrame, stepMs: number): AnnotationEvent[] {
  const [times, values] = frame.fields;
  const labels = values.labels ?? {};
  const tagKeys = (annotation.tagKeys ?? '').split(',');
  const events: AnnotationEvent[] = [];
  for (const [row, value] of values.values.entries()) {
    if (!(value > 0)) {
      continue;
    }
    const time = annotation.useValueForTime ? Math.floor(value) : times.values[row];
    const last = events.at(-1);
    if (last?.timeEnd !== undefined && time <= last.timeEnd + stepMs) {
      last.timeEnd = time;
      continue;
    }
    events.push({
      time,
      timeEnd: time,
      title: renderLabels(annotation.titleFormat ?? '', labels),
      text: renderLabels(annotation.textFormat ?? '', labels),
      tags: tagKeys.filter((key) => key in labels).map((key) => labels[key]),
    });
  }
  return events;
}
