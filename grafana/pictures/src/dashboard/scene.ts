import {
  dataLayers,
  EmbeddedScene,
  LocalValueVariable,
  MultiValueVariable,
  SceneDataLayerSet,
  SceneDataTransformer,
  sceneGraph,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneTimeRange,
  SceneVariableSet,
  VariableValueSelectors,
  VizPanel,
  type SceneObject,
} from '@grafana/scenes';

import { UID } from '../prometheus/datasource';
import type { Shot } from '../shot';
import type { Annotation, Panel, ScopedValue } from './model';
import { AnnotationControls } from './annotation-controls';
import { panelFieldConfig } from './field-config';
import { nameOf } from './overlaps';
import { sectionsOf, type Section } from './repeat';
import { sceneVariable } from './variables';

const DATASOURCE = { uid: UID, type: 'prometheus' };

/** A scene that tells, with each query, the title of the panel that it is for. */
export class DashboardScene extends EmbeddedScene {
  enrichDataRequest(source: SceneObject) {
    const panel = panelAround(source);
    return panel && { panelName: sceneGraph.interpolate(panel, panel.state.title, undefined, 'text') };
  }
}

function panelAround(source: SceneObject | undefined): VizPanel | undefined {
  return source === undefined || source instanceof VizPanel ? source : panelAround(source.parent);
}

/** The board as a scene without panels, for what they repeat for is not known before its variables are. */
export function emptyScene(shot: Shot): DashboardScene {
  const { templating, annotations } = shot.dashboard;
  const layers = (annotations?.list ?? []).filter(({ builtIn }) => !builtIn).map(annotationLayer);
  return new DashboardScene({
    $timeRange: new SceneTimeRange({ from: shot.from, to: shot.to, timeZone: 'utc' }),
    $variables: new SceneVariableSet({
      variables: (templating?.list ?? []).map((one) => sceneVariable(one, shot.variables[one.name])),
    }),
    $data: new SceneDataLayerSet({ layers }),
    controls: [new VariableValueSelectors({}), new AnnotationControls({})],
    body: new SceneGridLayout({ children: [], isLazy: false, isDraggable: false }),
  });
}

function annotationLayer(annotation: Annotation) {
  return new dataLayers.AnnotationsDataLayer({
    name: annotation.name,
    query: { ...annotation, datasource: DATASOURCE },
    isEnabled: annotation.enable,
    isHidden: annotation.hide,
  });
}

/** Puts the board's panels into the scene, repeated ones once per value: the variables must have theirs. */
export function addPanels(scene: DashboardScene, shot: Shot): void {
  const sections = sectionsOf(shot.dashboard.panels, (name) => valuesOf(scene, name));
  const children = sections.flatMap((section, index) => sectionItems(section, index));
  const layout = scene.state.body as SceneGridLayout;
  layout.setState({ children });
  if (shot.expand) {
    const collapsed = children.filter((child) => child instanceof SceneGridRow && child.state.isCollapsed);
    collapsed.forEach((row) => layout.toggleRow(row as SceneGridRow));
  }
}

function valuesOf(scene: DashboardScene, name: string): ScopedValue[] {
  const variable = sceneGraph.lookupVariable(name, scene);
  if (!(variable instanceof MultiValueVariable)) {
    return [];
  }
  const state: MultiValueVariable['state'] = variable.state;
  const chosen = [state.value].flat().map(String);
  const options = state.options.map(({ label, value }) => ({ name, value: String(value), text: label }));
  return variable.hasAllValue() ? options : options.filter(({ value }) => chosen.includes(value));
}

function sectionItems({ row, panels }: Section, index: number): (SceneGridItem | SceneGridRow)[] {
  const items = panels.map((panel, place) => gridItem(panel, `${index}-${place}`));
  if (!row) {
    return items;
  }
  return [
    new SceneGridRow({
      key: `row-${index}`,
      title: row.title,
      y: row.gridPos.y,
      isCollapsible: true,
      isCollapsed: row.collapsed ?? false,
      $variables: scopedVariables(row),
      children: items,
    }),
  ];
}

function gridItem(panel: Panel, place: string): SceneGridItem {
  const { x, y, w, h } = panel.gridPos;
  return new SceneGridItem({
    key: `item-${place}`,
    x,
    y,
    width: w,
    height: h,
    $variables: scopedVariables(panel),
    body: new VizPanel({
      key: `panel-${place}`,
      title: panel.title ?? '',
      description: panel.description,
      pluginId: panel.type,
      options: panel.options ?? {},
      fieldConfig: panelFieldConfig(panel),
      displayMode: panel.transparent ? 'transparent' : 'default',
      // Without a title the header is shown only under the mouse.
      hoverHeader: !panel.title,
      $data: panel.targets?.length ? panelData(panel) : undefined,
    }),
  });
}

function scopedVariables({ scoped }: Panel): SceneVariableSet | undefined {
  return scoped && new SceneVariableSet({ variables: scoped.map((value) => new LocalValueVariable(value)) });
}

function panelData(panel: Panel): SceneDataTransformer {
  return new SceneDataTransformer({
    transformations: panel.transformations ?? [],
    $data: new SceneQueryRunner({
      datasource: DATASOURCE,
      minInterval: panel.interval,
      maxDataPoints: panel.maxDataPoints,
      maxDataPointsFromWidth: true,
      queries: (panel.targets ?? []).map((target) => ({ ...target, datasource: DATASOURCE })),
    }),
  });
}

/** What is in the board and not in the picture, by the titles of the panels. */
export function undrawn(panels: Panel[]): { panel: string; error: string }[] {
  return panels.flatMap((panel) => [
    ...['timeFrom', 'timeShift', 'libraryPanel']
      .filter((name) => panel[name as keyof Panel])
      .map((name) => ({ panel: nameOf(panel), error: `${name} is not drawn` })),
    ...undrawn(panel.panels ?? []),
  ]);
}
