import {
  FieldType,
  formattedValueToString,
  getFieldDisplayName,
  type DataFrame,
  type DisplayValue,
  type Field,
  type GrafanaTheme2,
} from '@grafana/data';
import { measureText, useTheme2, VizLegend, VizLayout } from '@grafana/ui';

import { NoData } from './no-data';
import type { Props } from './plugin';
import { AnnotationLines, AXIS_HEIGHT, TimeAxis } from './time-axis';

const FONT_SIZE = 12;
const PADDING = 6;

interface Row {
  name: string;
  spans: Span[];
  fillOpacity: number;
}

/** A time during which a field has one state, in milliseconds. */
interface Span {
  from: number;
  to: number;
  state: DisplayValue;
}

/** A look-alike of Grafana's state timeline, which is no part of its packages; states and colours are Grafana's. */
export function StateTimelinePanel(props: Props) {
  const theme = useTheme2();
  const { data, width, height, options, timeRange } = props;
  const rows = rowsOf(data.series, timeRange.to.valueOf(), options.mergeValues ?? true);
  if (!rows.length) {
    return <NoData {...props} />;
  }
  const legend =
    options.legend?.showLegend === false ? null : (
      <VizLayout.Legend placement="bottom">
        <VizLegend items={legendItems(rows)} displayMode={'list' as never} placement="bottom" readonly />
      </VizLayout.Legend>
    );
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(plotWidth: number, plotHeight: number) => <Rows {...{ rows, theme, plotWidth, plotHeight, props }} />}
    </VizLayout>
  );
}

interface RowsProps {
  rows: Row[];
  theme: GrafanaTheme2;
  plotWidth: number;
  plotHeight: number;
  props: Props;
}

function Rows({ rows, theme, plotWidth, plotHeight, props }: RowsProps) {
  const { timeRange, timeZone, options } = props;
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const left = Math.min(
    plotWidth / 3,
    Math.max(...rows.map(({ name }) => measureText(name, FONT_SIZE).width)) + 2 * PADDING,
  );
  const width = plotWidth - left;
  const rowHeight = Math.max(1, plotHeight - AXIS_HEIGHT) / rows.length;
  const bar = rowHeight * (options.rowHeight ?? 0.9);
  const place = (time: number) => left + ((time - from) / (to - from)) * width;
  return (
    <svg width={plotWidth} height={plotHeight} fontSize={FONT_SIZE}>
      {rows.map(({ name, spans, fillOpacity }, index) => {
        const middle = (index + 0.5) * rowHeight;
        return (
          <g key={index}>
            <text x={left - PADDING} y={middle} dy="0.35em" textAnchor="end" fill={theme.colors.text.primary}>
              {shortened(name, left - 2 * PADDING)}
            </text>
            {spans.map((span) => {
              const start = Math.max(left, place(span.from));
              const length = Math.min(plotWidth, place(span.to)) - start;
              const text = formattedValueToString(span.state);
              const fits = options.showValue !== 'never' && measureText(text, FONT_SIZE).width + 2 * PADDING < length;
              const color = span.state.color ?? theme.colors.text.disabled;
              return (
                <g key={span.from}>
                  <rect
                    x={start}
                    y={middle - bar / 2}
                    width={Math.max(1, length)}
                    height={bar}
                    fill={color}
                    fillOpacity={fillOpacity}
                  />
                  {fits && (
                    <text x={start + PADDING} y={middle} dy="0.35em" fill={theme.colors.getContrastText(color)}>
                      {text}
                    </text>
                  )}
                </g>
              );
            })}
          </g>
        );
      })}
      <TimeAxis {...{ left, width, from, to, timeZone, theme }} top={plotHeight - AXIS_HEIGHT} />
      <AnnotationLines
        {...{ left, width, from, to, theme }}
        height={plotHeight - AXIS_HEIGHT}
        annotations={props.data.annotations}
      />
    </svg>
  );
}

/** The text, its end left out where it is wider than `width` pixels. */
function shortened(text: string, width: number): string {
  if (measureText(text, FONT_SIZE).width <= width) {
    return text;
  }
  const lengths = Array.from({ length: text.length }, (_, length) => length);
  const fits = lengths.filter((length) => measureText(`${text.slice(0, length)}…`, FONT_SIZE).width <= width);
  return `${text.slice(0, fits.at(-1) ?? 0)}…`;
}

function rowsOf(frames: DataFrame[], end: number, merge: boolean): Row[] {
  return frames.flatMap((frame) => {
    const time = frame.fields.find(({ type }) => type === FieldType.time);
    return time && frame.length
      ? frame.fields
          .filter((field) => field !== time && !field.config.custom?.hideFrom?.viz)
          .map((field) => ({
            name: getFieldDisplayName(field, frame, frames),
            spans: spansOf(time, field, end, merge),
            fillOpacity: (field.config.custom?.fillOpacity ?? 70) / 100,
          }))
      : [];
  });
}

/** The states of a field, each until the next sample; where samples are missing there is none. */
function spansOf(time: Field<number>, field: Field, end: number, merge: boolean): Span[] {
  const interval = time.config.interval ?? Infinity;
  const spans: Span[] = [];
  field.values.forEach((value, index) => {
    if (value === null || value === undefined || !field.display) {
      return;
    }
    const from = time.values[index];
    const to = Math.min(time.values[index + 1] ?? end, from + interval, end);
    const state = field.display(value);
    const last = spans.at(-1);
    if (merge && last?.to === from && last.state.text === state.text && last.state.color === state.color) {
      last.to = to;
    } else {
      spans.push({ from, to, state });
    }
  });
  return spans;
}

function legendItems(rows: Row[]) {
  const states = rows.flatMap(({ spans }) => spans.map(({ state }) => state));
  const byText = new Map(states.map((state) => [formattedValueToString(state), state.color]));
  return [...byText].map(([label, color]) => ({ label, color, yAxis: 1 }));
}
