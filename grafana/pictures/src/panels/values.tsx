import {
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  VizOrientation,
  type DisplayValue,
  type FieldDisplay,
} from '@grafana/data';
import { BarGaugeNamePlacement, BarGaugeValueMode } from '@grafana/schema';
import {
  BarGauge,
  BarGaugeDisplayMode,
  BigValue,
  BigValueColorMode,
  BigValueGraphMode,
  BigValueJustifyMode,
  BigValueTextMode,
  useTheme2,
  VizRepeater,
  type VizRepeaterRenderValueProps,
} from '@grafana/ui';

import { GaugeArc } from './gauge-arc';
import type { Props } from './plugin';

type Rendered = VizRepeaterRenderValueProps<FieldDisplay>;

export function StatPanel(props: Props) {
  const theme = useTheme2();
  const { options } = props;
  const values = useValues(props, options.graphMode !== BigValueGraphMode.None);
  return (
    <VizRepeater
      {...repeated(props, values)}
      orientation={options.orientation ?? VizOrientation.Auto}
      autoGrid
      itemSpacing={3}
      renderValue={({ value, width, height, count, alignmentFactors }: Rendered) => (
        <BigValue
          value={value.display}
          sparkline={options.graphMode === BigValueGraphMode.None ? undefined : value.sparkline}
          width={width}
          height={height}
          theme={theme}
          count={count}
          alignmentFactors={alignmentFactors as never}
          text={options.text}
          colorMode={options.colorMode ?? BigValueColorMode.Value}
          graphMode={options.graphMode ?? BigValueGraphMode.Area}
          justifyMode={options.justifyMode ?? BigValueJustifyMode.Auto}
          textMode={options.textMode ?? BigValueTextMode.Auto}
          disableWideLayout={options.wideLayout === false}
        />
      )}
    />
  );
}

export function BarGaugePanel(props: Props) {
  const theme = useTheme2();
  const { options } = props;
  const values = useValues(props, false);
  return (
    <VizRepeater
      {...repeated(props, values)}
      orientation={horizontalUnlessWide(options.orientation, props)}
      itemSpacing={10}
      minVizWidth={options.minVizWidth ?? 8}
      minVizHeight={options.minVizHeight ?? 16}
      maxVizHeight={options.maxVizHeight ?? 300}
      renderValue={({ value, width, height, orientation, count, alignmentFactors }: Rendered) => (
        <BarGauge
          value={nameIfSeveral(value, count)}
          field={value.field}
          text={options.text}
          display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)}
          width={width}
          height={height}
          orientation={orientation}
          theme={theme}
          itemSpacing={10}
          lcdCellWidth={12}
          alignmentFactors={alignmentFactors as never}
          displayMode={options.displayMode ?? BarGaugeDisplayMode.Gradient}
          valueDisplayMode={options.valueMode ?? BarGaugeValueMode.Color}
          namePlacement={options.namePlacement ?? BarGaugeNamePlacement.Auto}
          showUnfilled={options.showUnfilled ?? true}
          isOverflow={false}
        />
      )}
    />
  );
}

export function GaugePanel(props: Props) {
  const theme = useTheme2();
  const { options } = props;
  const values = useValues(props, false);
  return (
    <VizRepeater
      {...repeated(props, values)}
      orientation={options.orientation ?? VizOrientation.Auto}
      autoGrid
      renderValue={({ value, width, height, count }: Rendered) => (
        <GaugeArc
          value={nameIfSeveral(value, count)}
          field={value.field}
          width={width}
          height={height}
          theme={theme}
          showMarkers={options.showThresholdMarkers ?? true}
        />
      )}
    />
  );
}

function useValues({ fieldConfig, options, replaceVariables, data, timeZone }: Props, sparkline: boolean) {
  const theme = useTheme2();
  return getFieldDisplayValues({
    fieldConfig,
    reduceOptions: { calcs: ['lastNotNull'], values: false, ...options.reduceOptions },
    replaceVariables,
    theme,
    data: data.series,
    timeZone,
    sparkline,
  });
}

function repeated({ width, height, data, renderCounter }: Props, values: FieldDisplay[]) {
  return {
    width,
    height,
    source: data,
    renderCounter,
    getValues: () => values,
    getAlignmentFactors: () => getDisplayValueAlignmentFactors(values),
  };
}

function horizontalUnlessWide(orientation: VizOrientation | undefined, { width, height }: Props): VizOrientation {
  if (orientation && orientation !== VizOrientation.Auto) {
    return orientation;
  }
  return width > height ? VizOrientation.Vertical : VizOrientation.Horizontal;
}

// A single value needs no name beside the panel's title, unless the board gives it one.
function nameIfSeveral({ display, field }: FieldDisplay, count: number): DisplayValue {
  return count > 1 || field.displayName ? display : { ...display, title: undefined };
}
