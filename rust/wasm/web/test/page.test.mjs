// What a visitor does, in a real browser. Run by `tools/simulator --test`, or
// `npm test -- FOLDER` on a built folder.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import {
  choose,
  folder,
  goTo,
  launch,
  numbers,
  reopened,
  serve,
  spot,
  trace,
  until,
  visit,
} from './lib.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SECOND = 1e9;
/** All that is loaded, compressed by brotli as static hosts do. */
const MOST_BYTES = 600_000;

let server;
let browser;
let pages = [];

before(async () => {
  server = await serve();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  server?.close();
});

async function open(options = {}, hash = '') {
  const page = await visit(browser, server.address, options, hash);
  pages.push(page);
  return page;
}

// What holds of every page that a test has opened.
afterEach(async () => {
  const seen = pages;
  pages = [];
  for (const page of seen) {
    const strangers = page.asked.filter(
      (url) => !url.startsWith(server.address) && !/^(blob|data):/.test(url),
    );
    const objections = await page.evaluate(() => globalThis.gabion.app.last?.violations ?? []);
    await page.context().close();
    assert.deepEqual(page.wrong, [], 'errors in the console');
    assert.deepEqual(strangers, [], 'requests to elsewhere');
    assert.deepEqual(objections, [], 'objections of the checkers');
  }
});

const fresh = (page) =>
  page.evaluate(() => {
    globalThis.gabion.engine.setSpeed(0.5);
  });

test('all that is loaded is small', () => {
  const files = readdirSync(folder, { recursive: true }).map((name) => join(folder, name));
  const texts = files.filter((file) => statSync(file).isFile()).map((file) => readFileSync(file));
  const sum = (press) => texts.reduce((all, text) => all + press(text).length, 0);
  const total = sum((text) => brotliCompressSync(text));
  const gzip = sum((text) => gzipSync(text, { level: 9 }));
  console.log(`# ${texts.length} files: ${total} bytes by brotli, ${gzip} by gzip`);
  assert.ok(total <= MOST_BYTES, `${total} bytes`);
});

test('who opens the page sees a burst spread and the disagreement fall to zero', async () => {
  const page = await open();
  await until(page, (held) => held.disagreement > 0, 'no burst was seen');
  await until(page, (held) => held.truth > 0 && held.disagreement === 0, 'members never agreed');
  await page.waitForFunction(() => /agree on/.test(document.querySelector('#story').textContent));
});

test('every scene ends where its file says, as in native runs', { timeout: 600_000 }, async () => {
  const page = await open();
  const ids = await page.$$eval('[data-preset]', (all) => all.map((one) => one.dataset.preset));
  assert.ok(ids.length >= 9, ids.join());
  for (const id of ids) {
    await choose(page, id);
    const info = await page.evaluate(() => globalThis.gabion.engine.info);
    assert.ok(info.ends, `${id} documents no end`);
    await goTo(page, info.end_ns);
    const held = await numbers(page);
    const { truth, over, disagreement, admitted, denied, frames, bytes } = held;
    const ends = { truth, over, disagreement, admitted, denied, frames, bytes };
    assert.deepEqual({ ...ends, trace: await trace(page) }, info.ends, id);
  }
});

test('a click sends a burst', async () => {
  const page = await open();
  await fresh(page);
  await until(page, (held) => held.truth > 0, 'nothing happened');
  await page.fill('#hits', '7');
  await page.dispatchEvent('#hits', 'change');
  const before = await numbers(page);
  const { x, y } = await spot(page, 3);
  await page.mouse.click(x, y);
  await until(
    page,
    (held) => held.admitted + held.denied >= before.admitted + before.denied + 7,
    'the burst did not arrive',
  );
  assert.equal(await page.textContent('#member-title'), 'Member 4');
  assert.match(await page.textContent('#story'), /7 requests arrive at member 4/);
});

test('a stroke cuts the network, sides go apart, and Heal brings them together', async () => {
  const page = await open();
  await fresh(page);
  await page.evaluate(() => (globalThis.gabion.app.hits = 5));
  const box = await page.locator('.front').boundingBox();
  await page.mouse.move(box.x + 4, box.y + box.height * 0.55);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height * 0.55, { steps: 4 });
  await page.mouse.move(box.x + box.width - 4, box.y + box.height * 0.55, { steps: 4 });
  await page.mouse.up();
  const cut = await until(page, (held) => held.cuts > 0, 'nothing was cut');
  assert.equal(cut.cuts % 2, 0);
  const { x, y } = await spot(page, 0);
  await page.mouse.click(x, y);
  await until(page, (held) => held.truth > 0 && held.disagreement > 0, 'no side knew more');
  await page.click('#tab-network');
  await page.click('#heal');
  await until(page, (held) => held.cuts === 0, 'still cut');
  await until(page, (held) => held.disagreement === 0, 'members never agreed', 60_000);
  const steps = await page.$$eval('.coach li.done', (all) => all.length);
  assert.ok(steps >= 3, `${steps} of the first steps are checked off`);
});

test('a stroke from member to member cuts that link, and a second one mends it', async () => {
  const page = await open();
  const from = await spot(page, 0);
  const to = await spot(page, 2);
  const drag = async () => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(to.x, to.y, { steps: 5 });
    await page.mouse.up();
  };
  await drag();
  const held = await until(page, (one) => one.cuts > 0, 'nothing was cut');
  assert.equal(held.cuts, 2);
  await drag();
  await until(page, (one) => one.cuts === 0, 'it was not mended');
});

test('a member is killed and starts again', async () => {
  const page = await open();
  await fresh(page);
  await page.click('#kill');
  await page.waitForFunction(() => document.querySelector('#member-state').textContent === 'down');
  assert.match(await page.textContent('#story'), /Member 1 is killed/);
  await page.click('#kill');
  await page.waitForFunction(() => document.querySelector('#member-state').textContent === 'up');
});

test('a clock that is set wrong shows, and the network takes loss and delay', async () => {
  const page = await open();
  await fresh(page);
  await page.selectOption('#skew', '200');
  await page.waitForFunction(() =>
    /200 ms/.test(document.querySelector('#member-clock').textContent),
  );
  await page.click('#tab-network');
  await page.fill('#loss', '30');
  await page.dispatchEvent('#loss', 'change');
  await page.selectOption('#delay', '4000000 6000000');
  await page.fill('#rate', '200');
  await page.click('#load-start');
  await until(page, (held) => held.lost > 0, 'nothing was lost');
  await page.click('#load-stop');
  await page.waitForFunction(() =>
    /requests stop/.test(document.querySelector('#story').textContent),
  );
});

test('seek: earlier times come out as they were, and later ones again', async () => {
  const page = await open();
  await goTo(page, 4 * SECOND);
  await page.evaluate(() => globalThis.gabion.app.burst(1, 9));
  await goTo(page, 6 * SECOND);
  const late = [await numbers(page), await trace(page)];
  await goTo(page, 2 * SECOND);
  const early = [await numbers(page), await trace(page)];
  assert.ok(early[0].truth < late[0].truth);
  await goTo(page, 6 * SECOND);
  assert.deepEqual([await numbers(page), await trace(page)], late);
  const slider = page.locator('#seek');
  await slider.focus();
  await page.keyboard.press('Home');
  await page.waitForFunction(() => globalThis.gabion.engine.reached === 0);
  await goTo(page, 2 * SECOND);
  assert.deepEqual([await numbers(page), await trace(page)], early);
});

test('one gossip round is one step', async () => {
  const page = await open();
  await page.evaluate(() => globalThis.gabion.engine.pause());
  await page.waitForTimeout(100);
  const before = await numbers(page);
  await page.click('#round');
  const after = await until(page, (held) => held.reached > before.reached, 'no step');
  assert.ok(after.reached - before.reached <= SECOND);
  assert.ok(after.frames > before.frames);
});

test('a permalink carries seed, settings and what was done', async () => {
  const page = await open({}, '#preset=first-steps&seed=77');
  assert.equal(await page.evaluate(() => globalThis.gabion.engine.info.seed), 77);
  await goTo(page, 2 * SECOND);
  await page.evaluate(() => {
    globalThis.gabion.app.burst(2, 11);
    globalThis.gabion.app.command({ fault: { partition: { side: [0, 1] } } });
  });
  await until(page, (held) => held.cuts > 0, 'not cut');
  await goTo(page, 5 * SECOND);
  const link = await page.evaluate(() => globalThis.gabion.share.toHash());
  const held = [await numbers(page), await trace(page)];
  assert.ok(link.length < 2500, `${link.length} characters`);
  const other = await open({}, new URL(link).hash);
  assert.equal(await other.evaluate(() => globalThis.gabion.engine.reached), 5 * SECOND);
  assert.deepEqual([await numbers(other), await trace(other)], held);
});

test('a damaged link says so and opens the first scene', async () => {
  const page = await open({}, '#run=AAAA');
  assert.equal(await page.textContent('#stage-title'), 'First steps');
});

test('what was exported is imported as the same run', async () => {
  const page = await open();
  await goTo(page, 2 * SECOND);
  await page.evaluate(() => globalThis.gabion.app.burst(2, 11));
  await goTo(page, 3 * SECOND);
  const held = await trace(page);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
  const file = await download.path();
  const scenario = JSON.parse(readFileSync(file, 'utf8'));
  assert.equal(scenario.members, 5);
  const buffer = readFileSync(file);
  await reopened(page, () =>
    page.setInputFiles('#import', { name: 'run.json', mimeType: 'application/json', buffer }),
  );
  await goTo(page, 3 * SECOND);
  assert.equal(await trace(page), held);
  await page.setInputFiles('#import', {
    name: 'bad.json',
    mimeType: 'application/json',
    buffer: Buffer.from('{"members": 0}'),
  });
  await page.waitForFunction(() =>
    /Refused/.test(document.querySelector('#top-tools').textContent),
  );
});

test('bad rule text shows the error of the real parser beside its field', async () => {
  const page = await open();
  await page.click('#tab-rule');
  const good = await page.inputValue('#rule-rate');
  await page.fill('#rule-rate', '10/parsec');
  await page.waitForFunction(() => document.querySelector('#fault-rate').textContent !== '');
  const said = JSON.parse(
    await page.evaluate(() =>
      globalThis.gabion.engine.ask({
        what: 'rules',
        members: 5,
        text: 'api rate=10/parsec window=10s',
      }),
    ),
  );
  assert.equal(said.ok, false);
  assert.ok((await page.textContent('#fault-rate')).includes(said.faults[0].message));
  assert.equal(await page.getAttribute('#rule-rate', 'aria-invalid'), 'true');
  assert.ok(await page.isDisabled('#rule-apply'));
  await page.fill('#rule-rate', good);
  await page.waitForFunction(() => document.querySelector('#fault-rate').textContent === '');
  await page.waitForFunction(() => !document.querySelector('#rule-apply').disabled);
});

test('the editor starts a cluster of another size under another rule', async () => {
  const page = await open();
  await page.click('#tab-rule');
  await page.fill('#rule-rate', '50/s');
  await page.fill('#rule-window', '20s');
  await page.fill('#members', '12');
  await page.fill('#seed', '5');
  await reopened(page, () => page.click('#rule-apply'));
  const info = await page.evaluate(() => globalThis.gabion.engine.info);
  assert.deepEqual([info.members, info.seed, info.rules[0].limit], [12, 5, 1000]);
});

test('everything can be done with keys, and is said', async () => {
  const page = await open();
  await fresh(page);
  await page.focus('.front');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.textContent('#member-title'), 'Member 2');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() =>
    /arrive at member 2/.test(document.querySelector('#story').textContent),
  );
  await page.keyboard.press('c');
  await until(page, (held) => held.cuts === 8, 'member 2 is not cut off');
  await page.keyboard.press('h');
  await until(page, (held) => held.cuts === 0, 'not healed');
  await page.keyboard.press('k');
  await page.waitForFunction(() => document.querySelector('#member-state').textContent === 'down');
  await page.keyboard.press(' ');
  assert.equal(await page.evaluate(() => globalThis.gabion.engine.playing), false);
  await page.waitForFunction(() =>
    /Member 2 is selected/.test(document.querySelector('.front').getAttribute('aria-label')),
  );
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid', 'the focus can be seen');
});

test('the table says what the stage shows', async () => {
  const page = await open();
  await goTo(page, 4 * SECOND);
  await page.click('#table summary');
  await page.waitForFunction(() => document.querySelectorAll('#table tbody tr').length === 5);
  const sees = await page.$$eval('#table tbody tr', (rows) =>
    rows.map((row) => row.children[2].textContent),
  );
  const held = await numbers(page);
  assert.deepEqual(sees, Array(5).fill(String(held.truth)));
});

test('who wants little movement gets none unasked', async () => {
  const page = await open({ reducedMotion: 'reduce' });
  assert.equal(await page.evaluate(() => globalThis.gabion.engine.playing), false);
});

for (const [name, width, height] of [
  ['a small phone', 360, 740],
  ['4K', 3840, 2160],
]) {
  test(`the page fits ${name}`, async () => {
    const page = await open({ viewport: { width, height } });
    await page.waitForTimeout(300);
    const seen = await page.evaluate(() => {
      const canvas = document.querySelector('.front');
      return {
        over: document.documentElement.scrollWidth - innerWidth,
        stage: canvas.getBoundingClientRect().width,
        pixels: canvas.width,
      };
    });
    assert.ok(seen.over <= 0, `${seen.over} px wider than the screen`);
    assert.ok(seen.stage >= Math.min(width, 2000) * 0.5, JSON.stringify(seen));
    const { x, y } = await spot(page, 0);
    assert.ok(x > 0 && x < width, `member 1 at ${x}, ${y}`);
  });
}

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds nothing, ${colorScheme}`, { timeout: 300_000 }, async () => {
    for (const [scene, width] of [
      ['first-steps', 1440],
      ['paces', 1440],
      ['cut-in-half', 360],
    ]) {
      const page = await open(
        { colorScheme, viewport: { width, height: 900 } },
        `#preset=${scene}`,
      );
      await goTo(page, 4 * SECOND);
      await page.click('#table summary');
      for (const tab of ['member', 'network', 'rule']) {
        await page.click(`#tab-${tab}`);
        await page.waitForTimeout(250);
        await page.evaluate(AXE);
        const found = await page.evaluate(() => globalThis.axe.run());
        const said = found.violations.map((one) =>
          [one.id, ...one.nodes.map((node) => `${node.target} ${node.failureSummary}`)].join(' '),
        );
        assert.deepEqual(said, [], `${scene}, ${tab}, ${width} px`);
      }
    }
  });
}

test('256 members do not freeze the page', { timeout: 300_000 }, async () => {
  const page = await open();
  const run = await page.evaluate(async () => {
    const { engine } = globalThis.gabion;
    const held = JSON.parse(await engine.ask({ what: 'preset', name: 'members-64' }));
    held.scenario.members = 256;
    delete held.ends;
    return JSON.stringify(held);
  });
  await reopened(page, () =>
    page.evaluate((json) => {
      const { app, engine } = globalThis.gabion;
      app.preset = '';
      app.base = JSON.parse(json);
      engine.open(json);
    }, run),
  );
  const start = await numbers(page);
  await page.evaluate(() => {
    globalThis.gabion.engine.play();
    globalThis.gabion.meter.clear();
  });
  await page.waitForTimeout(5000);
  const gaps = await page.evaluate(() => globalThis.gabion.meter.gaps);
  const end = await numbers(page);
  const longest = Math.max(...gaps);
  const passed = (end.reached - start.reached) / 1e6;
  console.log(`# 256 members: ${gaps.length} pictures in 5 s, longest ${longest.toFixed(0)} ms`);
  console.log(`# 256 members: ${passed.toFixed(0)} ms of virtual time passed`);
  assert.ok(end.reached > start.reached, 'time stands still');
  assert.ok(longest < 1000, 'the page froze');
});
