import { LoadingState, type DataFrame } from '@grafana/data';
import { sceneGraph, SceneGridRow, VizPanel, type SceneObject } from '@grafana/scenes';

import { overlapsOf } from './dashboard/overlaps';
import { undrawn } from './dashboard/scene';
import type { Journal, Query, QueryError } from './journal';
import { NO_DATA } from './panels/no-data';
import type { Shot } from './shot';

/** What there is to say of a picture, panels by their titles. */
export interface Report {
  /** All that are drawn, from top to bottom. */
  panels: string[];
  queries: Query[];
  emptyQueries: Query[];
  queryErrors: QueryError[];
  panelErrors: { panel: string; error: string }[];
  /** Panels that show "No data". */
  noData: string[];
  /** Panels without data that show a text of their own for that. */
  noValue: string[];
  /** Panels that show nothing at all. */
  blankPanels: string[];
  /** Panels whose title is cut off. */
  cutTitles: string[];
  overlaps: string[];
}

// An answer can be followed by another question, of a variable or a panel that it was for.
const QUIET_MS = 300;
const ENDED = [LoadingState.Done, LoadingState.Error];

/** Whether all panels are there and their queries answered, for a while. */
export function isSettled(scene: SceneObject, journal: Journal): boolean {
  return journal.quiet > QUIET_MS && panelsOf(scene).every(isReady);
}

function isReady(panel: VizPanel): boolean {
  const data = panel.state.$data?.state.data;
  const answered = panel.state.$data === undefined || (data && ENDED.includes(data.state));
  return panel.isActive && Boolean(answered) && elementOf(panel) !== null;
}

/** Those in collapsed rows, which ask nothing and are not shown, left out. */
function panelsOf(scene: SceneObject): VizPanel[] {
  const isShown = (one: SceneObject) => one instanceof VizPanel && !isHidden(one);
  return sceneGraph.findAllObjects(scene, isShown) as VizPanel[];
}

function isHidden({ parent }: SceneObject): boolean {
  return (
    parent !== undefined && ((parent instanceof SceneGridRow && parent.state.isCollapsed === true) || isHidden(parent))
  );
}

function elementOf(panel: VizPanel): HTMLElement | null {
  return document.querySelector<HTMLElement>(`[data-viz-panel-key="${panel.state.key}"]`);
}

export function inspect(scene: SceneObject, journal: Journal, shot: Shot): Report {
  const panels = panelsOf(scene).map(look);
  const titles = (chosen: (panel: Look) => boolean) => panels.filter(chosen).map(({ title }) => title);
  return {
    panels: titles(() => true),
    queries: journal.queries,
    emptyQueries: journal.empty,
    queryErrors: journal.errors,
    panelErrors: [...panels.flatMap(errorsOf), ...undrawn(shot.dashboard.panels)],
    noData: titles(({ showsNoData, asks, isEmpty, hasNoValue }) => showsNoData || (asks && isEmpty && !hasNoValue)),
    noValue: titles(({ showsNoData, asks, isEmpty, hasNoValue }) => !showsNoData && asks && isEmpty && hasNoValue),
    blankPanels: titles(({ isBlank }) => isBlank),
    cutTitles: titles(({ isTitleCut }) => isTitleCut),
    overlaps: overlapsOf(shot.dashboard.panels),
  };
}

type Look = ReturnType<typeof look>;

function look(panel: VizPanel) {
  const { title, pluginId, fieldConfig, $data, _pluginLoadError: loadError } = panel.state;
  const element = elementOf(panel);
  const heading = element?.querySelector<HTMLElement>('h2');
  const content = element?.querySelector<HTMLElement>('[data-testid="data-testid panel content"]');
  return {
    title: sceneGraph.interpolate(panel, title, undefined, 'text') || `${pluginId} without a title`,
    loadError,
    asks: $data !== undefined,
    isEmpty: ($data?.state.data?.series ?? []).every(isEmptyFrame),
    hasNoValue: Boolean(fieldConfig.defaults.noValue),
    showsNoData: leafTexts(content).includes(NO_DATA),
    isBlank: !content || (!content.innerText.trim() && !content.querySelector('canvas, svg, img')),
    isTitleCut: heading !== null && heading !== undefined && heading.scrollWidth > heading.clientWidth,
    crash: content?.querySelector<HTMLElement>('[role="alert"]')?.innerText,
  };
}

function errorsOf({ title, loadError, crash }: Look) {
  return [loadError, crash].filter((error) => error !== undefined).map((error) => ({ panel: title, error }));
}

function isEmptyFrame(frame: DataFrame): boolean {
  return frame.length === 0 || frame.fields.length === 0;
}

function leafTexts(element?: HTMLElement | null): string[] {
  const leaves = [...(element?.querySelectorAll('*') ?? [])].filter(({ childElementCount }) => childElementCount === 0);
  return leaves.map(({ textContent }) => textContent?.trim() ?? '');
}
