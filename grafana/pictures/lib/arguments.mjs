import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';

export class UsageError extends Error {}

const OPTIONS = {
  dashboard: { type: 'string' },
  out: { type: 'string' },
  prometheus: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
  width: { type: 'string' },
  theme: { type: 'string' },
  scrape: { type: 'string' },
  var: { type: 'string', multiple: true },
  expand: { type: 'boolean' },
  batch: { type: 'string' },
  chromium: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
};

const OF_A_SHOT = ['dashboard', 'out', 'prometheus', 'from', 'to', 'width', 'theme', 'scrape', 'var', 'expand'];

/** The shots that the command line asks for, each with all that it needs. Throws UsageError. */
export async function readArguments(list) {
  const { batch, chromium, help, ...common } = parse(list);
  if (help) {
    return { shots: [], help };
  }
  const shots = batch === undefined ? [{}] : await readBatch(batch);
  return {
    chromium,
    shots: shots.map((shot) =>
      complete({ ...common, ...shot, var: { ...variables(common.var), ...variables(shot.var) } }),
    ),
  };
}

function parse(list) {
  try {
    return parseArgs({ args: list, options: OPTIONS }).values;
  } catch (error) {
    throw new UsageError(error.message);
  }
}

async function readBatch(file) {
  let shots;
  try {
    shots = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`${file}: ${error.message}`);
  }
  if (!Array.isArray(shots)) {
    throw new UsageError(`${file}: a batch is a list`);
  }
  return shots;
}

/** Names and lists of values, from NAME=VALUE pairs or from an object. */
function variables(given = []) {
  if (!Array.isArray(given)) {
    return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, [value].flat().map(String)]));
  }
  const chosen = {};
  for (const pair of given) {
    const [name, ...rest] = pair.split('=');
    if (!name || !rest.length) {
      throw new UsageError(`--var takes NAME=VALUE, not ${pair}`);
    }
    chosen[name] = [...(chosen[name] ?? []), rest.join('=')];
  }
  return chosen;
}

function complete(given) {
  const unknown = Object.keys(given).filter((name) => !OF_A_SHOT.includes(name));
  if (unknown.length) {
    throw new UsageError(`a shot has no ${unknown.join(', ')}`);
  }
  for (const name of ['dashboard', 'out', 'prometheus']) {
    if (!given[name]) {
      throw new UsageError(`--${name} is missing`);
    }
  }
  const { width = 1600, theme = 'dark', scrape = 15, expand = false } = given;
  if (!['dark', 'light'].includes(theme)) {
    throw new UsageError(`--theme is dark or light, not ${theme}`);
  }
  const numbers = { width: positive('width', width), scrape: positive('scrape', scrape) };
  return { ...given, ...numbers, theme, expand, from: time(given.from), to: time(given.to) };
}

function positive(name, given) {
  const number = Number(given);
  if (!(number > 0 && number < 100_000)) {
    throw new UsageError(`--${name} is a positive number, not ${given}`);
  }
  return number;
}

/** Milliseconds as ISO 8601; all else as it is. */
function time(given) {
  return /^\d+$/.test(String(given ?? '')) ? new Date(Number(given)).toISOString() : given;
}
