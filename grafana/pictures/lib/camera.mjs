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
const SETTLE_MS = 300;
const FIRST_HEIGHT = 1000;

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
      const size = await this.#photograph(page, shot, failures);
      const report = await page.evaluate(() => window.picture.report?.() ?? {});
      const { dashboard: file, out, width, theme } = shot;
      const head = { dashboard: file, out, title: dashboard.title, theme, width, height: size };
      return { ...head, seconds: secondsSince(started), ...report, pageErrors: [...pageErrors], failures };
    } finally {
      await page.close();
    }
  }

  async #photograph(page, { width, out }, failures) {
    await page.setViewportSize({ width, height: FIRST_HEIGHT });
    await page.goto(this.#address);
    await page.waitForFunction(() => window.picture, undefined, { timeout: PATIENCE_MS });
    const failure = await page.evaluate(() => window.picture.failure);
    if (failure) {
      failures.push(failure);
    } else {
      await settle(page, failures);
    }
    const height = failure ? FIRST_HEIGHT : await page.evaluate(() => window.picture.height());
    await page.setViewportSize({ width, height });
    await paint(page);
    await mkdir(path.dirname(out), { recursive: true });
    await page.screenshot({ path: out, animations: 'disabled' });
    return height;
  }
}

async function settle(page, failures) {
  try {
    await page.waitForFunction(() => window.picture.isSettled(), undefined, { timeout: PATIENCE_MS, polling: 100 });
  } catch (error) {
    failures.push(`not all panels were drawn within ${PATIENCE_MS / 1000} s: ${error.message}`);
  }
}

/** Waits until what the page knows is on its screen. */
async function paint(page) {
  await page.waitForTimeout(SETTLE_MS);
  await page.evaluate(async () => {
    await document.fonts.ready;
    // A frame is on the screen when the next one begins.
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  });
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
