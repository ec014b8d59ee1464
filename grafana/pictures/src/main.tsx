import { createTheme, ThemeContext } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { sceneGraph } from '@grafana/scenes';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';

import { addPanels, emptyScene, type DashboardScene } from './dashboard/scene';
import { fillRegistries } from './grafana/registries';
import { installServices } from './grafana/services';
import { Header } from './header';
import { inspect, isSettled, type Report } from './inspect';
import { Journal } from './journal';
import { registerPanels } from './panels';
import { PrometheusDatasource } from './prometheus/datasource';
import { fetchShot, type Shot } from './shot';
import { Stillness } from './stillness';

/** What shot.mjs asks of the page. */
interface Picture {
  /** Why there is no picture. */
  failure?: string;
  isSettled(): boolean;
  /** To be called when the window has another size, as panels are laid out anew then. */
  unsettle(): void;
  /** The height of the whole board in pixels. */
  height(): number;
  report(): Report;
}

declare global {
  interface Window {
    picture?: Picture;
  }
}

const PADDING = 16;
const STILL_FRAMES = 20;

async function draw(): Promise<Picture> {
  const shot = await fetchShot();
  const journal = new Journal();
  const theme = createTheme({ colors: { mode: shot.theme } });
  installServices(new PrometheusDatasource(journal, shot.scrapeSeconds * 1000), theme);
  fillRegistries();
  registerPanels();
  await initPluginTranslations('oomcast-pictures', []);

  const scene = emptyScene(shot);
  // For good: the page is closed after the picture.
  scene.activate();
  await variablesOf(scene);
  addPanels(scene, shot);
  render(scene, shot, theme);
  const stillness = new Stillness(document.body);
  return {
    isSettled: () => isSettled(scene, journal) && stillness.lasts(STILL_FRAMES),
    unsettle: () => stillness.restart(),
    height: boardHeight,
    report: () => inspect(scene, journal, shot),
  };
}

async function variablesOf(scene: DashboardScene): Promise<void> {
  const variables = sceneGraph.getVariables(scene);
  while (variables.state.variables.some((one) => variables.isVariableLoadingOrWaitingToUpdate(one))) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function render(scene: DashboardScene, shot: Shot, theme: ReturnType<typeof createTheme>): void {
  const root = document.getElementById('root') as HTMLElement;
  document.body.style.background = theme.colors.background.canvas;
  createRoot(root).render(
    <ThemeContext.Provider value={theme}>
      <MemoryRouter>
        <GlobalStyles />
        <div style={{ padding: PADDING }}>
          <Header dashboard={shot.dashboard} range={sceneGraph.getTimeRange(scene).state.value} scene={scene} />
          <scene.Component model={scene} />
        </div>
        <PortalContainer />
      </MemoryRouter>
    </ThemeContext.Provider>,
  );
}

function boardHeight(): number {
  const items = [...document.querySelectorAll('.react-grid-item')].map((item) => item.getBoundingClientRect().bottom);
  return Math.ceil(Math.max(0, ...items) + PADDING);
}

draw().then(
  (picture) => {
    window.picture = picture;
  },
  (error) => {
    console.error(error);
    window.picture = { failure: String(error) } as Picture;
  },
);
