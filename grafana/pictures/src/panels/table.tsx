import { cacheFieldDisplayNames } from '@grafana/data';
import { TableCellHeight } from '@grafana/schema';
import { TableNG } from '@grafana/ui/unstable';

import { NoData } from './no-data';
import type { Props } from './plugin';

export function TablePanel(props: Props) {
  const { data, width, height, options, fieldConfig, timeRange } = props;
  // The names that transformations give are looked for there.
  cacheFieldDisplayNames(data.series);
  const frame = data.series[options.frameIndex ?? 0] ?? data.series[0];
  if (!frame?.length) {
    return <NoData {...props} />;
  }
  return (
    <TableNG
      data={frame}
      width={width}
      height={height}
      noHeader={options.showHeader === false}
      showTypeIcons={options.showTypeIcons}
      initialSortBy={options.sortBy}
      cellHeight={options.cellHeight ?? TableCellHeight.Sm}
      frozenColumns={options.frozenColumns?.left}
      enablePagination={options.enablePagination}
      timeRange={timeRange}
      fieldConfig={fieldConfig}
      structureRev={data.structureRev ?? 1}
      getActions={() => []}
      // Only rows within the picture would be drawn otherwise, and their number is small.
      enableVirtualization={false}
    />
  );
}
