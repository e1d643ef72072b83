// Pictures of every scene, for the documentation. Look at them before they are committed.
//
//   node test/pictures.mjs FOLDER OUT

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { choose, goTo, launch, serve, visit } from './lib.mjs';

const MS = 1e6;
/** When there is most to see, virtual milliseconds. */
const MOMENTS = {
  'first-steps': 3048,
  burst: 12_040,
  'cut-in-half': 5200,
  'one-alone': 4200,
  'loss-30': 5300,
  'rolling-restart': 3300,
  'skewed-clocks': 3300,
  paces: 12_300,
  'members-64': 6000,
};
const out = process.argv[3];
if (!out) throw new Error('usage: node test/pictures.mjs FOLDER OUT');
mkdirSync(out, { recursive: true });
const server = await serve();
const browser = await launch();
try {
  const page = await visit(browser, server.address, { viewport: { width: 1200, height: 960 } });
  const ids = await page.$$eval('[data-preset]', (all) => all.map((one) => one.dataset.preset));
  for (const id of ids) {
    await choose(page, id);
    await goTo(page, (MOMENTS[id] ?? 2000) * MS);
    await page.waitForTimeout(500);
    const clip = await page.evaluate(() => {
      const top = document.querySelector('.scene-head').getBoundingClientRect();
      const low = document.querySelector('.legend').getBoundingClientRect();
      const edge = 12;
      const height = low.bottom - top.top + 2 * edge;
      return { x: top.x - edge, y: top.y - edge, width: top.width + 2 * edge, height };
    });
    await page.screenshot({ path: join(out, `${id}.png`), clip });
  }
  const whole = { viewport: { width: 1440, height: 940 }, colorScheme: 'dark' };
  const other = await visit(browser, server.address, whole, '#preset=cut-in-half');
  await goTo(other, 4000 * MS);
  await other.waitForTimeout(800);
  await other.screenshot({ path: join(out, 'page.png') });
} finally {
  await browser.close();
  server.close();
}
