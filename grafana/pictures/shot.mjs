#!/usr/bin/env node
/* Draws dashboards, and prints a line of JSON about each picture. USAGE below says how. */
import { readFile } from 'node:fs/promises';

import { readArguments, UsageError } from './lib/arguments.mjs';
import { Camera } from './lib/camera.mjs';

const USAGE = `usage:
  shot.mjs --dashboard FILE.json --out FILE.png --prometheus URL [OPTION...]
  shot.mjs --batch FILE.json [OPTION...]

A batch is a list of objects with these options as keys, var an object of names and values; options of the command
line hold for all of them. One browser draws them all.

  --dashboard FILE   the dashboard's JSON
  --out FILE         the picture, PNG
  --prometheus URL   where its data comes from
  --from T, --to T   the time shown: now-1h, ISO 8601 or milliseconds since 1970 (the dashboard's own)
  --width N          pixels (1600)
  --theme T          dark or light (dark)
  --scrape N         seconds between two scrapes, for $__rate_interval (15)
  --var NAME=VALUE   a variable's value; once for each value of several, $__all for all
  --expand           draw collapsed rows open
  --chromium FILE    the browser (chromium on the PATH)

Prints a line of JSON per picture. Exit status: 0, 1 if a picture has errors, 2 if the arguments make no sense.`;

/** What is wrong with a picture; that panels have no data can be as it should be, which the caller knows. */
const ERRORS = ['failures', 'queryErrors', 'panelErrors', 'pageErrors', 'blankPanels', 'overlaps'];

async function main() {
  const { shots, chromium, help } = await readArguments(process.argv.slice(2));
  if (help) {
    console.log(USAGE);
    return 0;
  }
  // Found out before the browser starts, as a batch takes a while.
  const dashboards = await Promise.all(shots.map(({ dashboard }) => readDashboard(dashboard)));
  const camera = await Camera.open(chromium);
  let status = 0;
  try {
    for (const [index, shot] of shots.entries()) {
      const report = await camera.draw(shot, dashboards[index]);
      console.log(JSON.stringify(report));
      status = ERRORS.some((kind) => report[kind]?.length) ? 1 : status;
    }
  } finally {
    await camera.close();
  }
  return status;
}

async function readDashboard(file) {
  let dashboard;
  try {
    dashboard = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`${file}: ${error.message}`);
  }
  if (!Array.isArray(dashboard?.panels)) {
    throw new UsageError(`${file}: no dashboard, it has no list of panels`);
  }
  return dashboard;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof UsageError ? `shot.mjs: ${error.message}\n${USAGE}` : error);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
