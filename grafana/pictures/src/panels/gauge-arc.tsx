import {
  formattedValueToString,
  ThresholdsMode,
  type DisplayValue,
  type FieldConfig,
  type GrafanaTheme2,
} from '@grafana/data';
import { calculateFontSize } from '@grafana/ui';

const START = Math.PI * 0.87;
const SWEEP = Math.PI * 1.26;
// In radii: how far the thresholds around the arc reach, and how high it is with them.
const REACH = 1.19;
const HEIGHT = REACH * (1 + Math.sin(START));
const MARGIN = 4;
const TITLE_HEIGHT = 22;

interface ArcProps {
  value: DisplayValue;
  field: FieldConfig;
  width: number;
  height: number;
  theme: GrafanaTheme2;
  showMarkers: boolean;
}

/** A look-alike of Grafana's gauge, which draws with a library that its packages come without. */
export function GaugeArc({ value, field, width, height, theme, showMarkers }: ArcProps) {
  const min = field.min ?? 0;
  const max = field.max ?? 100;
  const share = (amount: number) => Math.min(1, Math.max(0, (amount - min) / (max - min || 1)));
  const room = height - (value.title ? TITLE_HEIGHT : 0);
  const radius = Math.max(10, Math.min((width / 2 - MARGIN) / REACH, (room - 2 * MARGIN) / HEIGHT));
  const center = { x: width / 2, y: (room - HEIGHT * radius) / 2 + REACH * radius };
  const text = formattedValueToString(value);
  const fontSize = Math.min(radius * 0.5, calculateFontSize(text, radius * 1.3, radius * 0.6, 1));
  const band = radius * 0.22;
  const line = (from: number, to: number, at: number) => arc(center, at, START + SWEEP * from, START + SWEEP * to);
  return (
    <svg width={width} height={height}>
      <path d={line(0, 1, radius)} stroke={theme.colors.background.secondary} strokeWidth={band} fill="none" />
      {share(value.numeric) > 0 && (
        <path d={line(0, share(value.numeric), radius)} stroke={value.color} strokeWidth={band} fill="none" />
      )}
      {showMarkers &&
        bandsOf(field, share).map(({ from, to, color }) => (
          <path
            key={from}
            d={line(from, to, radius + band * 0.75)}
            stroke={theme.visualization.getColorByName(color)}
            strokeWidth={band * 0.2}
            fill="none"
          />
        ))}
      <text {...center} dy="0.2em" textAnchor="middle" fill={value.color} fontSize={fontSize} fontWeight={500}>
        {text}
      </text>
      {value.title && (
        <text x={width / 2} y={height - 6} textAnchor="middle" fill={theme.colors.text.primary} fontSize={14}>
          {value.title}
        </text>
      )}
    </svg>
  );
}

/** The thresholds as bands between 0 and 1. */
function bandsOf({ thresholds }: FieldConfig, share: (amount: number) => number) {
  const steps = thresholds?.steps ?? [];
  const place = (amount: number) =>
    thresholds?.mode === ThresholdsMode.Percentage ? Math.min(1, Math.max(0, amount / 100)) : share(amount);
  return steps
    .map(({ value, color }, index) => ({ from: place(value), to: place(steps[index + 1]?.value ?? Infinity), color }))
    .filter(({ from, to }) => to > from);
}

function arc(center: { x: number; y: number }, radius: number, from: number, to: number): string {
  const point = (angle: number) => `${center.x + radius * Math.cos(angle)} ${center.y + radius * Math.sin(angle)}`;
  return `M ${point(from)} A ${radius} ${radius} 0 ${to - from > Math.PI ? 1 : 0} 1 ${point(to)}`;
}
