import { dateTimeFormat, type DataFrame, type GrafanaTheme2 } from '@grafana/data';

import { eventsOf } from './annotation-marks';

export const AXIS_HEIGHT = 20;

const MINUTE = 60_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((minutes) => minutes * MINUTE);
const TICK_WIDTH = 70;

interface AxisProps {
  left: number;
  top: number;
  width: number;
  from: number;
  to: number;
  timeZone: string;
  theme: GrafanaTheme2;
}

/** Times below a graph, on whole steps. */
export function TimeAxis({ left, top, width, from, to, timeZone, theme }: AxisProps) {
  const least = (to - from) / Math.max(1, width / TICK_WIDTH);
  const step = STEPS.find((one) => one >= least) ?? STEPS[STEPS.length - 1];
  const first = Math.ceil(from / step) * step;
  const ticks = Array.from(
    { length: Math.max(0, Math.floor((to - first) / step) + 1) },
    (_, index) => first + index * step,
  );
  const format = step >= 1440 * MINUTE ? 'MM/DD' : 'HH:mm';
  const place = (time: number) => left + ((time - from) / (to - from)) * width;
  // A label that does not fit between the edges is left out.
  const shown = ticks.filter((time) => place(time) > left + 16 && place(time) < left + width - 16);
  return (
    <g fill={theme.colors.text.primary} fontSize={12} textAnchor="middle">
      {shown.map((time) => (
        <text key={time} x={place(time)} y={top + 15}>
          {dateTimeFormat(time, { format, timeZone })}
        </text>
      ))}
    </g>
  );
}

interface LinesProps extends Omit<AxisProps, 'top' | 'timeZone'> {
  annotations?: DataFrame[];
  height: number;
}

/** Annotations over a graph that is no uPlot: a dashed line at each end, and a shade between them. */
export function AnnotationLines({ annotations, left, width, height, from, to, theme }: LinesProps) {
  const place = (time: number) => left + Math.min(1, Math.max(0, (time - from) / (to - from))) * width;
  const events = eventsOf(annotations).filter(({ time, timeEnd = time }) => timeEnd >= from && time <= to);
  return events.map(({ time, timeEnd, isRegion, color = 'red' }, index) => {
    const stroke = theme.visualization.getColorByName(color);
    const [start, end] = [place(time), place(isRegion ? (timeEnd ?? time) : time)];
    return (
      <g key={index} stroke={stroke} strokeWidth={2} strokeDasharray="5 5">
        <rect x={start} y={0} width={end - start} height={height} fill={stroke} fillOpacity={0.1} stroke="none" />
        <line x1={start} x2={start} y1={0} y2={height} />
        {end > start && <line x1={end} x2={end} y1={0} y2={height} />}
      </g>
    );
  });
}
