import type { Panel, ScopedValue } from './model';

const COLUMNS = 24;
const MAX_PER_ROW = 4;

/** The values that a variable has at present, each of them where All is chosen. */
export type ValuesOf = (variable: string) => ScopedValue[];

/** A row's header, unless it is what stands above the first, and the panels below it. */
export interface Section {
  row?: Panel;
  panels: Panel[];
}

/** The sections of a board, with a copy of each repeated row and panel per value, and what follows moved down. */
export function sectionsOf(panels: Panel[], valuesOf: ValuesOf): Section[] {
  const sections: Section[] = [];
  let shift = 0;
  for (const section of split(panels)) {
    const top = section.row?.gridPos.y ?? 0;
    const height = bottomOf(section) - top;
    for (const copy of copiesOf(section, valuesOf)) {
      const grown = { row: copy.row, panels: repeatPanels(copy.panels, valuesOf) };
      sections.push({
        row: grown.row && down(grown.row, shift),
        panels: grown.panels.map((panel) => down(panel, shift)),
      });
      shift += bottomOf(grown) - top;
    }
    shift -= height;
  }
  return sections;
}

function split(panels: Panel[]): Section[] {
  const sections: Section[] = [{ panels: [] }];
  for (const panel of panels.toSorted((one, other) => one.gridPos.y - other.gridPos.y)) {
    if (panel.type === 'row') {
      sections.push({ row: panel, panels: [...(panel.panels ?? [])] });
    } else {
      sections.at(-1)?.panels.push(panel);
    }
  }
  return sections;
}

function copiesOf(section: Section, valuesOf: ValuesOf): Section[] {
  const { row, panels } = section;
  const values = row?.repeat ? valuesOf(row.repeat) : [];
  if (!row || !values.length) {
    return [section];
  }
  return values.map((value) => ({ row: scope(row, value), panels: panels.map((panel) => scope(panel, value)) }));
}

function repeatPanels(panels: Panel[], valuesOf: ValuesOf): Panel[] {
  const repeats = panels.map((panel) => ({ panel, copies: repeatPanel(panel, valuesOf) }));
  return repeats.flatMap(({ panel, copies }) => {
    const above = repeats.filter((other) => bottom([other.panel]) <= panel.gridPos.y);
    const grown = above.reduce((sum, other) => sum + bottom(other.copies) - bottom([other.panel]), 0);
    return copies.map((copy) => down(copy, grown));
  });
}

function repeatPanel(panel: Panel, valuesOf: ValuesOf): Panel[] {
  const values = panel.repeat ? valuesOf(panel.repeat) : [];
  if (!values.length) {
    return [panel];
  }
  const { x, y, w, h } = panel.gridPos;
  if (panel.repeatDirection === 'v') {
    return values.map((value, copy) => ({ ...scope(panel, value), gridPos: { x, y: y + copy * h, w, h } }));
  }
  const perRow = Math.max(1, Math.min(values.length, panel.maxPerRow ?? MAX_PER_ROW));
  const width = Math.floor(COLUMNS / perRow);
  return values.map((value, copy) => ({
    ...scope(panel, value),
    gridPos: { x: (copy % perRow) * width, y: y + Math.floor(copy / perRow) * h, w: width, h },
  }));
}

function scope(panel: Panel, value: ScopedValue): Panel {
  return { ...panel, scoped: [...(panel.scoped ?? []), value] };
}

function down(panel: Panel, by: number): Panel {
  return { ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y + by } };
}

function bottomOf({ row, panels }: Section): number {
  return row?.collapsed ? row.gridPos.y + row.gridPos.h : bottom(row ? [row, ...panels] : panels);
}

function bottom(panels: Panel[]): number {
  return Math.max(0, ...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
}
