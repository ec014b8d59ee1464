import { cacheFieldDisplayNames, FieldType, type DataFrame } from '@grafana/data';
import { TimeSeries } from '@grafana/ui';
import { useMemo } from 'react';

import { AnnotationMarks } from './annotation-marks';
import { NoData } from './no-data';
import type { Props } from './plugin';

const LEGEND = { displayMode: 'list', placement: 'bottom', calcs: [], showLegend: true };

export function TimeSeriesPanel(props: Props) {
  const { data, timeRange, timeZone, width, height, options } = props;
  const frames = useMemo(() => {
    cacheFieldDisplayNames(data.series);
    return data.series.filter(hasNumbers);
  }, [data.series]);
  // The same object as long as it says the same: the graph is set up anew with another one.
  const legend = useMemo(() => ({ ...LEGEND, ...options.legend }), [options.legend]);
  if (!frames.length) {
    return <NoData {...props} />;
  }
  return (
    <TimeSeries
      frames={frames}
      structureRev={data.structureRev}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={legend}
      options={options}
    >
      {(config) => <AnnotationMarks config={config} annotations={data.annotations ?? []} />}
    </TimeSeries>
  );
}

function hasNumbers(frame: DataFrame): boolean {
  const types = frame.fields.map(({ type }) => type);
  return frame.length > 0 && types.includes(FieldType.time) && types.includes(FieldType.number);
}
