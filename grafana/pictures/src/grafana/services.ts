import {
  EventBusSrv,
  LoadingState,
  type DataQueryRequest,
  type DataSourceApi,
  type GrafanaTheme2,
  type PanelData,
  type ScopedVars,
} from '@grafana/data';
import * as runtime from '@grafana/runtime';
import { sceneGraph, type SceneObject } from '@grafana/scenes';
import { catchError, map, of, type Observable } from 'rxjs';

import { UID, type PrometheusDatasource } from '../prometheus/datasource';

type Format = Parameters<typeof sceneGraph.interpolate>[3];

/** Puts what Grafana's packages ask their server for in its place: every data source is `datasource`. */
export function installServices(datasource: PrometheusDatasource, theme: GrafanaTheme2): void {
  Object.assign(runtime.config, {
    theme2: theme,
    theme: theme.v1,
    panels: {},
    featureToggles: {},
  });
  runtime.setAppEvents(new EventBusSrv());
  runtime.setEchoSrv({ flush() {}, addBackend() {}, addEvent() {} });
  runtime.setDataSourceSrv(datasourceService(datasource));
  runtime.setRunRequest(runRequest);
  runtime.setTemplateSrv(templateService());
  runtime.setPluginImportUtils({
    importPanelPlugin: async (id: string) => {
      throw new Error(`Panel plugin not found: ${id}`);
    },
    getPanelPluginFromCache: () => undefined,
  });
  // Nothing is asked of Grafana's server, but some components look for who would.
  runtime.setBackendSrv({ fetch: () => of({ data: {} }), get: async () => ({}) } as unknown as runtime.BackendSrv);
}

function datasourceService(datasource: PrometheusDatasource): runtime.DataSourceSrv {
  const settings = {
    uid: UID,
    name: datasource.name,
    type: datasource.type,
    meta: datasource.meta,
    isDefault: true,
    jsonData: {},
    readOnly: true,
    access: 'proxy',
  };
  return {
    get: async () => datasource,
    getList: () => [settings],
    getInstanceSettings: () => settings,
    reload() {},
    registerRuntimeDataSource() {},
  } as unknown as runtime.DataSourceSrv;
}

function runRequest(datasource: DataSourceApi, request: DataQueryRequest): Observable<PanelData> {
  const answer = (datasource as unknown as PrometheusDatasource).query(request as never);
  return answer.pipe(
    map(({ data, errors, state }) => ({
      state: state ?? LoadingState.Done,
      series: data,
      errors,
      error: errors?.[0],
      timeRange: request.range,
      request,
    })),
    catchError((error) =>
      of({ state: LoadingState.Error, series: [], error: { message: String(error) }, timeRange: request.range }),
    ),
  );
}

function templateService(): runtime.TemplateSrv {
  return {
    // The scene object that asks travels with the request, as its place decides what a variable is there.
    replace(text = '', scopedVars?: ScopedVars, format?: Format) {
      const asking = scopedVars?.__sceneObject?.value?.valueOf() as SceneObject | undefined;
      return asking ? sceneGraph.interpolate(asking, text, scopedVars, format) : text;
    },
    getVariables: () => [],
    containsTemplate: (text?: string) => /\$\w|\$\{|\[\[/.test(text ?? ''),
    updateTimeRange() {},
  };
}
