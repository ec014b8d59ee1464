import { FieldColorModeId, FieldConfigProperty, PanelPlugin, type PanelProps } from '@grafana/data';
import type { ComponentType } from 'react';

/** What a panel gets; its options are those of the board's JSON, and any of them can be missing. */
export type Props = PanelProps<any>;

/** Custom options of fields, by path, and the value that each has unless the board says otherwise. */
type CustomOptions = Record<string, unknown>;

const HIDE = { hideFrom: { tooltip: false, viz: false, legend: false } };

export const GRAPH_OPTIONS: CustomOptions = {
  ...HIDE,
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineStyle: undefined,
  lineWidth: 1,
  barAlignment: 0,
  barMaxWidth: undefined,
  barWidthFactor: undefined,
  fillOpacity: 0,
  fillBelowTo: undefined,
  gradientMode: 'none',
  spanNulls: false,
  insertNulls: false,
  showPoints: 'auto',
  pointSize: 5,
  stacking: { mode: 'none', group: 'A' },
  transform: undefined,
  axisPlacement: 'auto',
  axisLabel: '',
  axisWidth: undefined,
  axisColorMode: 'text',
  axisBorderShow: false,
  axisGridShow: undefined,
  axisCenteredZero: false,
  axisSoftMin: undefined,
  axisSoftMax: undefined,
  scaleDistribution: { type: 'linear' },
  thresholdsStyle: { mode: 'off' },
};

export const TABLE_OPTIONS: CustomOptions = {
  ...HIDE,
  align: 'auto',
  cellOptions: { type: 'auto' },
  filterable: undefined,
  footer: undefined,
  inspect: false,
  minWidth: undefined,
  width: undefined,
  wrapHeaderText: undefined,
  wrapText: undefined,
};

export const TIMELINE_OPTIONS: CustomOptions = {
  ...HIDE,
  fillOpacity: 70,
  lineWidth: 0,
  spanNulls: false,
  insertNulls: false,
};

export const HEATMAP_OPTIONS: CustomOptions = { ...HIDE, scaleDistribution: undefined };

/** A panel plugin of `component`, whose fields have these custom options. */
export function panelPlugin(
  component: ComponentType<Props>,
  customOptions: CustomOptions = {},
  color: FieldColorModeId = FieldColorModeId.Thresholds,
): PanelPlugin {
  return new PanelPlugin(component).useFieldConfig({
    standardOptions: { [FieldConfigProperty.Color]: { defaultValue: { mode: color } } },
    useCustomConfig(builder) {
      for (const [path, defaultValue] of Object.entries(customOptions)) {
        builder.addCustomEditor({
          id: path,
          path: path as never,
          name: path,
          defaultValue: defaultValue as never,
          editor: () => null,
          override: () => null,
          process: (value) => value,
          shouldApply: () => true,
        });
      }
    },
  });
}
