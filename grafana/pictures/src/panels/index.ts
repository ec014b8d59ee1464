import { FieldColorModeId, PanelPlugin } from '@grafana/data';
import { sceneUtils } from '@grafana/scenes';

import { HeatmapPanel } from './heatmap';
import { GRAPH_OPTIONS, HEATMAP_OPTIONS, panelPlugin, TABLE_OPTIONS, TIMELINE_OPTIONS } from './plugin';
import { StateTimelinePanel } from './state-timeline';
import { TablePanel } from './table';
import { TextPanel } from './text';
import { TimeSeriesPanel } from './timeseries';
import { BarGaugePanel, GaugePanel, StatPanel } from './values';

/** Makes the panels known that are drawn; a board's panel of another type shows that its plugin was not found. */
export function registerPanels(): void {
  const plugins: Record<string, PanelPlugin> = {
    timeseries: panelPlugin(TimeSeriesPanel, GRAPH_OPTIONS, FieldColorModeId.PaletteClassic),
    stat: panelPlugin(StatPanel),
    gauge: panelPlugin(GaugePanel),
    bargauge: panelPlugin(BarGaugePanel),
    table: panelPlugin(TablePanel, TABLE_OPTIONS),
    'state-timeline': panelPlugin(StateTimelinePanel, TIMELINE_OPTIONS),
    heatmap: panelPlugin(HeatmapPanel, HEATMAP_OPTIONS),
    text: new PanelPlugin(TextPanel),
  };
  for (const pluginId of ['timeseries', 'state-timeline', 'heatmap']) {
    plugins[pluginId].setDataSupport({ annotations: true, alertStates: false });
  }
  for (const [pluginId, plugin] of Object.entries(plugins)) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
}
