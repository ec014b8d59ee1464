import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = fileURLToPath(new URL('..', import.meta.url));
const PAGE = path.join(HERE, 'dist');
const GRAFANA = path.join(HERE, 'node_modules/@grafana/ui/dist/public');

// Grafana's packages name these files, and come without them.
const INTER = '/usr/share/fonts/opentype/inter';
const FONTS = {
  '/public/fonts/inter/Inter-Regular.woff2': `${INTER}/Inter-Regular.otf`,
  '/public/fonts/inter/Inter-Medium.woff2': `${INTER}/Inter-Medium.otf`,
  '/public/fonts/inter/Inter-Italic.woff2': `${INTER}/Inter-Italic.otf`,
  '/public/fonts/inter/Inter-MediumItalic.woff2': `${INTER}/Inter-MediumItalic.otf`,
};
const MONOSPACE = '/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.otf': 'font/otf',
  '.ttf': 'font/ttf',
};

/** Serves the page, the shot that it is to draw, and the API of that shot's Prometheus, on the loopback interface. */
export class PageServer {
  /** What the page gets as shot.json. */
  shot = {};
  /** The URL of its Prometheus. */
  prometheus = '';

  #server = http.createServer((request, response) =>
    this.#answer(request, response).catch((error) => fail(response, 500, error)),
  );

  async open() {
    await new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request, response) {
    const url = new URL(request.url, 'http://localhost');
    if (url.pathname === '/shot.json') {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(this.shot));
    } else if (url.pathname.startsWith('/prometheus/')) {
      await this.#askPrometheus(url, response);
    } else {
      await sendFile(fileOf(url.pathname), response);
    }
  }

  // Through here, so that it does not matter what Prometheus allows other pages.
  async #askPrometheus({ pathname, search }, response) {
    const target = this.prometheus.replace(/\/$/, '') + pathname.replace('/prometheus', '') + search;
    let answer;
    try {
      answer = await fetch(target);
    } catch (error) {
      fail(response, 502, `no answer from ${this.prometheus}: ${error.cause?.message ?? error.message}`);
      return;
    }
    // The page reads errors from the body; as a status the browser would report each of them once more.
    response.setHeader('content-type', 'application/json');
    response.end(await answer.text());
  }
}

function fileOf(pathname) {
  if (pathname in FONTS) {
    return FONTS[pathname];
  }
  if (pathname.startsWith('/public/fonts/roboto/')) {
    return MONOSPACE;
  }
  const relative = pathname.startsWith('/public/') ? pathname.replace(/^\/public\/(build\/)?/, '') : pathname;
  const root = pathname.startsWith('/public/') ? GRAFANA : PAGE;
  const file = path.join(root, relative === '/' ? 'index.html' : relative);
  return file.startsWith(root + path.sep) ? file : path.join(root, 'none');
}

async function sendFile(file, response) {
  const there = await stat(file).catch(() => undefined);
  if (!there?.isFile()) {
    fail(response, 404, `no ${path.basename(file)}`);
    return;
  }
  response.setHeader('content-type', TYPES[path.extname(file)] ?? 'application/octet-stream');
  // A batch asks for the same files again and again.
  response.setHeader('cache-control', 'max-age=3600');
  createReadStream(file).pipe(response);
}

function fail(response, status, reason) {
  response.statusCode = status;
  response.end(String(reason));
}
