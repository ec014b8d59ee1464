import { dateTimeFormat, type GrafanaTheme2 } from '@grafana/data';

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
  const ticks = Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, index) => first + index * step);
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
