// The bars: frame times with 64 members and 1,000 requests a second, first paint, and an hour of
// virtual time. A benchmark: prints what it measured, exit 1 when a bar is missed.
//
//   node test/bars.mjs FOLDER

import { goTo, launch, serve, settled, visit } from './lib.mjs';

const TRIES = 3;
const SECONDS = 10;

function share(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

async function frames(page, speed) {
  await page.evaluate((at) => {
    const { app, engine } = globalThis.gabion;
    app.engine.touched = true;
    engine.setSpeed(at);
    engine.play();
  }, speed);
  await page.waitForTimeout(1500);
  await page.evaluate(() => globalThis.gabion.meter.clear());
  await page.waitForTimeout(SECONDS * 1000);
  const { gaps, script, pace } = await page.evaluate(() => {
    const { meter, engine } = globalThis.gabion;
    return { gaps: meter.gaps, script: meter.script, pace: engine.pace };
  });
  return {
    p50: share(gaps, 0.5),
    p95: share(gaps, 0.95),
    p99: share(gaps, 0.99),
    script: share(script, 0.95),
    pace,
  };
}

async function best(browser, address, speed) {
  let held = null;
  for (let i = 0; i < TRIES; i += 1) {
    const page = await visit(browser, address, {}, '#preset=members-64');
    await settled(page);
    const one = await frames(page, speed);
    await page.context().close();
    if (!held || one.p95 + one.script < held.p95 + held.script) held = one;
  }
  return held;
}

async function paint(browser, address) {
  const page = await visit(browser, address);
  const [first] = await page.evaluate(() =>
    performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime),
  );
  await page.context().close();
  return first ?? Number.NaN;
}

/** Five members at rest but for the scene's bursts, as the page makes up a long way. */
async function hour(browser, address) {
  const page = await visit(browser, address);
  const start = Date.now();
  await goTo(page, 3600e9);
  const took = Date.now() - start;
  await page.context().close();
  return took;
}

const server = await serve();
const browser = await launch();
const missed = [];
const bar = (name, value, most, unit = 'ms') => {
  console.log(`${name.padEnd(52)} ${value.toFixed(1).padStart(8)} ${unit}  bar ${most} ${unit}`);
  if (!(value <= most)) missed.push(name);
};
try {
  bar('first paint', await paint(browser, server.address), 1000);
  bar('an hour of virtual time, 5 members', await hour(browser, server.address), 10_000);
  for (const [words, speed] of [
    ['5 times slower', 0.2],
    ['real time', 1],
  ]) {
    const held = await best(browser, server.address, speed);
    bar(`64 members, 1,000 requests/s, ${words}: frame p50`, held.p50, 20);
    bar(`64 members, 1,000 requests/s, ${words}: frame p95`, held.p95, 34);
    bar(`64 members, 1,000 requests/s, ${words}: script p95`, held.script, 8);
    console.log(
      `  the simulator kept ${(100 * held.pace).toFixed(0)} % of that speed;` +
        ` frame p99 ${held.p99.toFixed(1)} ms`,
    );
  }
} finally {
  await browser.close();
  server.close();
}
if (missed.length > 0) console.log(`missed: ${missed.join('; ')}`);
process.exit(missed.length > 0 ? 1 : 0);
