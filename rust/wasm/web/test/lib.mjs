// I own: a static server on loopback, Chromium, and the handles that the tests pull. I promise: the
// server hands out the built folder only; every console error and every request is remembered.

import { createServer } from 'node:http';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, extname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const here = dirname(fileURLToPath(import.meta.url));
export const folder = resolve(process.env.SIMULATOR ?? process.argv[2] ?? 'dist');

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
};

/** Serves the folder; gives its address and a way to end it. */
export async function serve() {
  const server = createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname;
    const file = join(folder, normalize(path === '/' ? '/index.html' : path));
    if (!file.startsWith(folder) || !existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain' });
    response.end(readFileSync(file));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const address = `http://127.0.0.1:${server.address().port}/`;
  return { address, close: () => server.close() };
}

/** Chromium of this system. */
export function launch() {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  if (!existsSync(executablePath)) {
    throw new Error(`no ${executablePath}: apt-get install chromium, or set CHROMIUM`);
  }
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
}

/** Opens the page; what went wrong in it is kept in `page.wrong`, every request in `page.asked`. */
export async function visit(browser, address, options = {}, hash = '') {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 1000 },
    reducedMotion: 'no-preference',
    ...options,
  });
  const page = await context.newPage();
  page.wrong = [];
  page.asked = [];
  page.on('console', (line) => {
    if (['error', 'warning'].includes(line.type())) page.wrong.push(line.text());
  });
  page.on('pageerror', (error) => page.wrong.push(String(error)));
  page.on('request', (request) => page.asked.push(request.url()));
  await page.goto(address + hash);
  await settled(page);
  return page;
}

/** Waits until a run is open and where it was to be opened. */
export async function settled(page) {
  await page.waitForFunction(
    () => {
      const { app, engine } = globalThis.gabion ?? {};
      return app?.last && engine.info && !engine.busy;
    },
    null,
    { timeout: 60_000 },
  );
}

/** Pauses, and goes to a virtual time. */
export async function goTo(page, at, timeout = 120_000) {
  await page.evaluate((to) => {
    const { engine } = globalThis.gabion;
    engine.pause();
    engine.seek(to);
  }, at);
  await page.waitForFunction(
    (to) => {
      const { engine } = globalThis.gabion;
      return !engine.busy && engine.reached === to;
    },
    at,
    { timeout },
  );
}

/** The cluster's numbers by name, of the first rule shown. */
export function numbers(page) {
  return page.evaluate(() => {
    const { app, engine } = globalThis.gabion;
    const names = [
      'now',
      'truth',
      'limit',
      'over',
      'bound',
      'disagreement',
      'unknown',
      'admitted',
      'denied',
      'failedOpen',
      'frames',
      'bytes',
      'lost',
      'cut',
      'merged',
      'dropped',
      'epochStart',
      'epoch',
      'violations',
    ];
    const held = Object.fromEntries(names.map((name, i) => [name, app.last.clusters[i]]));
    return { ...held, cuts: app.last.cuts.length / 2, reached: engine.reached };
  });
}

export function trace(page) {
  return page.evaluate(() => globalThis.gabion.engine.ask({ what: 'trace' }));
}

/** Opens a scene by its button. */
export async function choose(page, id) {
  await reopened(page, () => page.click(`[data-preset="${id}"]`));
}

/** Does something that opens another run, and waits until that is there. */
export async function reopened(page, deed) {
  const before = await page.evaluate(() => globalThis.gabion.engine.run);
  await deed();
  await page.waitForFunction((run) => globalThis.gabion.engine.run > run, before);
  await settled(page);
}

/** Where a member is on the screen, once the page has come to rest. */
export async function spot(page, member, ring = 0) {
  let last = await read(page, member, ring);
  for (;;) {
    await page.waitForTimeout(60);
    const next = await read(page, member, ring);
    if (next.x === last.x && next.y === last.y) return next;
    last = next;
  }
}

function read(page, member, ring) {
  return page.evaluate(
    ([at, in_]) => {
      const box = document.querySelector('.front').getBoundingClientRect();
      const place = globalThis.gabion.stage.held.rings[in_].spots[at];
      return { x: box.left + place.x, y: box.top + place.y };
    },
    [member, ring],
  );
}

/** Waits for a condition on the numbers. */
export async function until(page, what, why, timeout = 30_000) {
  const end = Date.now() + timeout;
  for (;;) {
    const held = await numbers(page);
    if (what(held)) return held;
    if (Date.now() > end) throw new Error(`${why}: ${JSON.stringify(held)}`);
    await page.waitForTimeout(40);
  }
}
