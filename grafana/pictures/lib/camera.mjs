import { access, constants, mkdir } from 'node:fs/promises';
import path from 'node:path';

import { chromium } from 'playwright-core';

import { PageServer } from './server.mjs';

// No window, no GPU and nothing in the background that the network would be asked for.
const FLAGS = [
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
];

const PATIENCE_MS = 60_000;
const HEADER_HEIGHT = 120;
// Of the grid, with the gap below.
const ROW_HEIGHT = 38;

/** One browser, which draws one shot after the other. */
export class Camera {
  static async open(executable = 'chromium') {
    const server = new PageServer();
    const address = await server.open();
    try {
      const executablePath = executable.includes('/') ? executable : await onPath(executable);
      const browser = await chromium.launch({ executablePath, args: FLAGS });
      return new Camera(server, address, browser, await browser.newContext());
    } catch (error) {
      server.close();
      throw error;
    }
  }

  #server;
  #address;
  #browser;
  #context;

  constructor(server, address, browser, context) {
    this.#server = server;
    this.#address = address;
    this.#browser = browser;
    this.#context = context;
  }

  async close() {
    await this.#browser.close();
    this.#server.close();
  }

  /** Writes the picture to shot.out, and says what is on it. */
  async draw(shot, dashboard) {
    const started = performance.now();
    this.#server.prometheus = shot.prometheus;
    this.#server.shot = {
      dashboard,
      from: shot.from ?? dashboard.time?.from ?? 'now-6h',
      to: shot.to ?? dashboard.time?.to ?? 'now',
      theme: shot.theme,
      scrapeSeconds: shot.scrape,
      variables: shot.var,
      expand: shot.expand,
    };
    const page = await this.#context.newPage();
    const failures = [];
    const pageErrors = listen(page);
    try {
      const size = await this.#photograph(page, dashboard, shot, failures);
      const report = await page.evaluate(() => window.picture.report?.() ?? {});
      const { dashboard: file, out, width, theme } = shot;
      const head = { dashboard: file, out, title: dashboard.title, theme, width, height: size };
      return { ...head, seconds: secondsSince(started), ...report, pageErrors: [...pageErrors], failures };
    } finally {
      await page.close();
    }
  }

  async #photograph(page, dashboard, { width, out }, failures) {
    await page.setViewportSize({ width, height: estimate(dashboard) });
    await page.goto(this.#address);
    await page.waitForFunction(() => window.picture, undefined, { timeout: PATIENCE_MS });
    const failure = await page.evaluate(() => window.picture.failure);
    if (failure) {
      failures.push(failure);
      return undefined;
    }
    await settle(page, failures);
    const height = await page.evaluate(() => window.picture.height());
    await page.setViewportSize({ width, height });
    await page.evaluate(() => window.picture.unsettle());
    await settle(page, failures);
    await mkdir(path.dirname(out), { recursive: true });
    await page.screenshot({ path: out, animations: 'disabled' });
    return height;
  }
}

/** About how high a board is in pixels, as seldom a panel is then laid out twice. */
function estimate({ panels }) {
  return HEADER_HEIGHT + ROW_HEIGHT * Math.max(0, ...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
}

async function settle(page, failures) {
  try {
    await page.evaluate(() => document.fonts.ready.then(() => true));
    await page.waitForFunction(() => window.picture.isSettled(), undefined, { timeout: PATIENCE_MS, polling: 50 });
  } catch (error) {
    failures.push(`not all panels were drawn within ${PATIENCE_MS / 1000} s: ${error.message}`);
  }
}

/** The errors that the page reports from now on, each once. */
function listen(page) {
  const errors = new Set();
  page.on('console', (message) => {
    if (message.type() === 'error') {
      errors.add(message.text().slice(0, 500));
    }
  });
  page.on('pageerror', (error) => errors.add((error.stack ?? error.message).slice(0, 500)));
  page.on('response', (response) => {
    if (response.status() >= 400) {
      errors.add(`${response.status()} ${new URL(response.url()).pathname}`);
    }
  });
  return errors;
}

async function onPath(name) {
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    const file = path.join(folder, name);
    if (
      await access(file, constants.X_OK).then(
        () => true,
        () => false,
      )
    ) {
      return file;
    }
  }
  throw new Error(`${name} is not on the PATH`);
}

function secondsSince(started) {
  return Math.round((performance.now() - started) / 100) / 10;
}
