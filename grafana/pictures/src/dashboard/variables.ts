import {
  ConstantVariable,
  CustomVariable,
  DataSourceVariable,
  IntervalVariable,
  QueryVariable,
  TextBoxVariable,
  type SceneVariable,
} from '@grafana/scenes';

import { UID } from '../prometheus/datasource';
import type { Variable } from './model';

const ALL = '$__all';

/** The scene's variable for the board's, with `chosen` instead of the value that the board was saved with. */
export function sceneVariable(variable: Variable, chosen?: string[]): SceneVariable {
  const common = { name: variable.name, label: variable.label ?? undefined, hide: variable.hide };
  const query = typeof variable.query === 'string' ? variable.query : (variable.query?.query ?? '');
  switch (variable.type) {
    case 'datasource':
      return new DataSourceVariable({ ...common, pluginId: query, value: UID, text: 'Prometheus' });
    case 'query':
      return new QueryVariable({
        ...common,
        ...choice(variable, chosen),
        query: { query, refId: variable.name },
        datasource: { uid: UID, type: 'prometheus' },
        regex: variable.regex ?? '',
        refresh: variable.refresh,
        sort: variable.sort,
      });
    case 'custom':
      return new CustomVariable({ ...common, ...choice(variable, chosen), query });
    case 'interval':
      return new IntervalVariable({
        ...common,
        intervals: query.split(',').map((one) => one.trim()),
        value: chosen?.[0] ?? one(variable.current?.value),
        autoEnabled: variable.auto,
        autoStepCount: variable.auto_count,
        autoMinInterval: variable.auto_min,
      });
    case 'textbox':
      return new TextBoxVariable({ ...common, value: chosen?.[0] ?? one(variable.current?.value) ?? query });
    case 'constant':
      return new ConstantVariable({ ...common, value: chosen?.[0] ?? query });
    default:
      throw new Error(`the variable ${variable.name} is of a type that is not drawn: ${variable.type}`);
  }
}

function choice(variable: Variable, chosen?: string[]) {
  const saved = chosen ?? variable.current?.value;
  const values = [saved ?? []].flat().filter((value) => value !== '');
  const state = {
    isMulti: variable.multi ?? false,
    includeAll: variable.includeAll ?? false,
    allValue: variable.allValue || undefined,
    // A board that was saved without a value opens on all of them, if that can be chosen.
    defaultToAll: Boolean(variable.includeAll) && values.length === 0,
  };
  if (values.length === 0) {
    return state;
  }
  const value = values.map((each) => (each === 'All' && variable.includeAll ? ALL : each));
  const text = value.map((each) => (each === ALL ? 'All' : each));
  return variable.multi ? { ...state, value, text } : { ...state, value: value[0], text: text[0] };
}

function one(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
