import { colorManipulator, type DataFrame } from '@grafana/data';
import { useTheme2, type UPlotConfigBuilder } from '@grafana/ui';
import { useEffect, useLayoutEffect, useRef } from 'react';
import type uPlot from 'uplot';

export interface Event {
  time: number;
  timeEnd?: number;
  isRegion?: boolean;
  color?: string;
}

const DASH = [5, 5];
const MARK = 5;

interface MarksProps {
  config: UPlotConfigBuilder;
  annotations: DataFrame[];
}

/** Draws annotations into a graph: a dashed line for an event, a shade between two for a region, and a mark below. */
export function AnnotationMarks({ config, annotations }: MarksProps) {
  const theme = useTheme2();
  const plot = useRef<uPlot | undefined>(undefined);
  const events = useRef<Event[]>([]);
  events.current = eventsOf(annotations);

  useLayoutEffect(() => {
    config.addHook('init', (graph) => {
      plot.current = graph;
    });
    config.addHook('draw', (graph) => {
      for (const event of events.current) {
        drawEvent(graph, event, theme.visualization.getColorByName(event.color ?? 'red'));
      }
    });
  }, [config, theme]);

  // Annotations can come after the graph's own data.
  useEffect(() => plot.current?.redraw(false, true), [annotations]);
  return null;
}

export function eventsOf(annotations: DataFrame[] = []): Event[] {
  return annotations.flatMap(({ fields, length }) => {
    const value = (name: keyof Event, row: number) => fields.find((field) => field.name === name)?.values[row];
    return Array.from({ length }, (_, row) => ({
      time: value('time', row),
      timeEnd: value('timeEnd', row),
      isRegion: value('isRegion', row),
      color: value('color', row),
    }));
  });
}

function drawEvent(graph: uPlot, { time, timeEnd, isRegion }: Event, color: string): void {
  const { ctx, bbox } = graph;
  const ratio = devicePixelRatio;
  const [left, right] = [bbox.left, bbox.left + bbox.width];
  const bottom = bbox.top + bbox.height;
  const start = graph.valToPos(time, 'x', true);
  const end = isRegion ? graph.valToPos(timeEnd ?? time, 'x', true) : start;
  if (end < left || start > right) {
    return;
  }
  ctx.save();
  ctx.lineWidth = 2 * ratio;
  ctx.strokeStyle = color;
  ctx.setLineDash(DASH.map((length) => length * ratio));
  for (const x of new Set([start, end])) {
    if (x >= left && x <= right) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    }
  }
  if (isRegion) {
    const [from, to] = [Math.max(start, left), Math.min(end, right)];
    ctx.fillStyle = colorManipulator.alpha(color, 0.1);
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
    ctx.fillStyle = color;
    ctx.fillRect(from, bottom, to - from, MARK * ratio);
  } else {
    ctx.fillStyle = color;
    ctx.beginPath();
    ctx.moveTo(start, bottom);
    ctx.lineTo(start - MARK * ratio, bottom + MARK * ratio);
    ctx.lineTo(start + MARK * ratio, bottom + MARK * ratio);
    ctx.fill();
  }
  ctx.restore();
}
