import {
  FieldType,
  formattedValueToString,
  getValueFormat,
  type DataFrame,
  type Field,
  type GrafanaTheme2,
} from '@grafana/data';
import { measureText, useTheme2 } from '@grafana/ui';
import * as chromatic from 'd3-scale-chromatic';
import { useEffect, useRef } from 'react';

import { NoData } from './no-data';
import type { Props } from './plugin';
import { AnnotationLines, AXIS_HEIGHT, TimeAxis } from './time-axis';

const FONT_SIZE = 12;
const LABEL_HEIGHT = 14;
const LEGEND_HEIGHT = 30;
const LEGEND_WIDTH = 300;

/** Each cell's count, by bucket from the lowest and by time. */
interface Cells {
  names: string[];
  times: number[];
  counts: (number | null)[][];
  stepMs: number;
}

/** A look-alike of Grafana's heatmap of buckets, which is no part of its packages; scheme and units are Grafana's. */
export function HeatmapPanel(props: Props) {
  const theme = useTheme2();
  const { data, width, height, options } = props;
  const cells = cellsOf(data.series);
  if (!cells) {
    return <NoData {...props} />;
  }
  const names = cells.names.map((name) => bucketName(name, options.yAxis));
  const left = Math.max(...names.map((name) => measureText(name, FONT_SIZE).width)) + 8;
  const showsLegend = options.legend?.show ?? true;
  const plotHeight = height - AXIS_HEIGHT - (showsLegend ? LEGEND_HEIGHT : 0);
  const area = { left, width: width - left, height: plotHeight };
  return (
    <div style={{ position: 'relative', width, height }}>
      <Plot cells={cells} area={area} props={props} theme={theme} />
      <svg width={width} height={height} style={{ position: 'absolute' }} fontSize={FONT_SIZE}>
        <BucketAxis names={names} area={area} theme={theme} />
        <TimeAxis
          {...rangeOf(props)}
          left={left}
          top={plotHeight}
          width={area.width}
          timeZone={props.timeZone}
          theme={theme}
        />
        <AnnotationLines {...rangeOf(props)} {...area} annotations={data.annotations} theme={theme} />
        {showsLegend && (
          <Legend {...{ cells, left, options, theme }} room={area.width} top={plotHeight + AXIS_HEIGHT + 6} />
        )}
      </svg>
    </div>
  );
}

interface Area {
  left: number;
  width: number;
  height: number;
}

interface PlotProps {
  cells: Cells;
  area: Area;
  props: Props;
  theme: GrafanaTheme2;
}

function Plot({ cells, area, props, theme }: PlotProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const ratio = devicePixelRatio;
  const { from, to } = rangeOf(props);
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context) {
      return;
    }
    const color = colorOf(props.options.color, largest(cells), theme);
    const rowHeight = area.height / cells.names.length;
    const place = (time: number) => ((time - from) / (to - from)) * area.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, area.width, area.height);
    cells.counts.forEach((row, bucket) =>
      row.forEach((count, column) => {
        if (count) {
          // A sample counts what came before it.
          const [left, right] = [place(cells.times[column] - cells.stepMs), place(cells.times[column])];
          context.fillStyle = color(count);
          const [top, gap] = [area.height - (bucket + 1) * rowHeight, props.options.cellGap ?? 1];
          // Between narrow columns a gap would take much of their colour.
          const width = right - left - (right - left > 4 * gap ? gap : -0.5);
          context.fillRect(left, top, width, rowHeight - gap);
        }
      }),
    );
  });
  const size = { width: area.width, height: area.height };
  return (
    <canvas
      ref={canvas}
      width={size.width * ratio}
      height={size.height * ratio}
      style={{ position: 'absolute', left: area.left, ...size }}
    />
  );
}

function BucketAxis({ names, area, theme }: { names: string[]; area: Area; theme: GrafanaTheme2 }) {
  const rowHeight = area.height / names.length;
  const every = Math.max(1, Math.ceil(LABEL_HEIGHT / rowHeight));
  return (
    <g fill={theme.colors.text.primary} textAnchor="end">
      {names.map((name, bucket) =>
        bucket % every ? null : (
          <text key={name} x={area.left - 6} y={area.height - (bucket + 0.5) * rowHeight} dy="0.35em">
            {name}
          </text>
        ),
      )}
    </g>
  );
}

interface LegendProps {
  cells: Cells;
  room: number;
  left: number;
  top: number;
  options: Props['options'];
  theme: GrafanaTheme2;
}

function Legend({ cells, room, left, top, options, theme }: LegendProps) {
  const most = largest(cells);
  const color = colorOf(options.color, most, theme);
  const steps = 50;
  const whole = Math.min(LEGEND_WIDTH, room);
  const width = whole / steps;
  return (
    <g fill={theme.colors.text.secondary} fontSize={11}>
      {Array.from({ length: steps }, (_, step) => (
        <rect
          key={step}
          x={left + step * width}
          y={top}
          width={width + 0.5}
          height={8}
          fill={color(((step + 1) / steps) * most)}
        />
      ))}
      <text x={left} y={top + 20}>
        0
      </text>
      <text x={left + whole} y={top + 20} textAnchor="end">
        {formattedValueToString(getValueFormat('short')(most))}
      </text>
    </g>
  );
}

function cellsOf(frames: DataFrame[]): Cells | undefined {
  const fields = frames.flatMap((frame) => frame.fields.filter(({ type }) => type === FieldType.number));
  const time: Field<number> | undefined = frames[0]?.fields.find(({ type }) => type === FieldType.time);
  if (!time?.values.length || !fields.length) {
    return undefined;
  }
  const times = time.values;
  return {
    names: fields.map(({ name, labels }) => (name === 'Value' ? (labels?.le ?? name) : name)),
    times,
    counts: fields.map(({ values }) => values),
    stepMs: time.config.interval ?? times[1] - times[0],
  };
}

function rangeOf({ timeRange }: Props) {
  return { from: timeRange.from.valueOf(), to: timeRange.to.valueOf() };
}

function largest({ counts }: Cells): number {
  return Math.max(0, ...counts.flat().map((count) => count ?? 0));
}

function bucketName(name: string, axis?: { unit?: string; decimals?: number }): string {
  const bound = name === '+Inf' ? Infinity : Number(name);
  if (!Number.isFinite(bound) || !axis?.unit) {
    return name;
  }
  const { text, ...rest } = getValueFormat(axis.unit)(bound, axis.decimals);
  return formattedValueToString({ text: text.includes('.') ? text.replace(/\.?0+$/, '') : text, ...rest });
}

interface ColorOptions {
  scheme?: string;
  exponent?: number;
  reverse?: boolean;
}

/** The colour of a count, darkest in a dark theme and lightest in a light one where there is least. */
function colorOf(
  { scheme = 'Oranges', exponent = 0.5, reverse = false }: ColorOptions = {},
  most: number,
  theme: GrafanaTheme2,
) {
  const interpolate = chromatic[`interpolate${scheme}`] ?? chromatic.interpolateOranges;
  const backwards = (ALWAYS_BACKWARDS.has(scheme) || (theme.isDark && !NEVER_BACKWARDS.has(scheme))) !== reverse;
  return (count: number) => {
    const share = most ? (count / most) ** exponent : 0;
    return interpolate(backwards ? 1 - share : share);
  };
}

const ALWAYS_BACKWARDS = new Set(['Spectral', 'RdYlGn', 'RdYlBu', 'RdBu']);
const NEVER_BACKWARDS = new Set([
  'Turbo',
  'Cividis',
  'Viridis',
  'Magma',
  'Inferno',
  'Plasma',
  'Warm',
  'Cool',
  'Rainbow',
]);
