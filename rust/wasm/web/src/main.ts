// I own: putting the page together, and its one loop. Promises: nothing is asked of any network
// after the page has loaded; all work on one picture is bounded.

import './style/page.css';
import { App, named } from './app';
import type { PresetInfo, Run } from './bridge';
import { C, M } from './columns';
import { byId, h, say, select } from './dom';
import { Engine } from './engine';
import { count } from './format';
import { Meter } from './meter';
import { Facts } from './panels/facts';
import { drawLegend } from './panels/legend';
import { MemberPanel } from './panels/member';
import { NetworkPanel } from './panels/network';
import { Plots } from './panels/plots';
import { Presets } from './panels/presets';
import { RulePanel } from './panels/rule';
import { Coach, Story } from './panels/story';
import { MemberTable } from './panels/table';
import { Tabs } from './panels/tabs';
import { Transport } from './panels/transport';
import { asPartition } from './scene/layout';
import { listen } from './scene/pointer';
import { Stage } from './scene/stage';
import { Share } from './share';
import { calm, onTheme, setTheme, startTheme, theme, type Theme } from './theme';

/** Numbers beside the stage change so often, milliseconds. */
const NUMBERS_MS = 120;
/** A stroke over more links than this cuts them as a partition or not at all. */
const MOST_PAIRS = 600;

startTheme();
const meter = new Meter();
const engine = new Engine(meter);
const frontCanvas = byId('stage').querySelector<HTMLCanvasElement>('.front');
const backCanvas = byId('stage').querySelector<HTMLCanvasElement>('.back');
if (!frontCanvas || !backCanvas) throw new Error('no canvas');
const front = frontCanvas;
const stage = new Stage(byId('stage'), backCanvas, front);
const app = new App(engine, stage);
onTheme(() => stage.refresh());

const tabs = new Tabs(byId('tabs'), byId('panels'));
const member = new MemberPanel(tabs.add('Member', 'member'), app);
const network = new NetworkPanel(tabs.add('Network', 'network'), app);
new RulePanel(tabs.add('Rule', 'rule'), app, (run) => open(JSON.stringify(run), run, '', 0));
const transport = new Transport(byId('transport'), app, () => {
  if (app.base) open(JSON.stringify(app.base), app.base, app.preset, 0);
});
const facts = new Facts(byId('facts'), app);
new Story(app, new Coach(byId('coach'), app));
const table = new MemberTable(byId<HTMLDetailsElement>('table'), byId('table-scroll'), app, (m) =>
  member.kill(m),
);
const plots = new Plots(byId('plots'), app);
const share = new Share(byId('top-tools'), app, open, () => void preset(list[0]?.id ?? ''));
byId('top-tools').append(themeChoice());
drawLegend(byId('legend'));

let openedAt = 0;
let list: PresetInfo[] = [];
let presets: Presets | null = null;

function themeChoice(): HTMLElement {
  const choice = select(
    [
      ['auto', 'as the system'],
      ['light', 'light'],
      ['dark', 'dark'],
    ],
    theme(),
    (value) => setTheme(value as Theme),
  );
  choice.id = 'theme';
  return h(
    'span',
    { class: 'row' },
    h('label', { for: 'theme', class: 'label' }, 'Colours'),
    choice,
  );
}

/** Opens a run. What it is called and where it came from goes with it. */
function open(json: string, run: Run | null, from: string, at: number): void {
  app.base = run;
  app.preset = from;
  openedAt = at;
  engine.open(json, at);
}

async function preset(id: string): Promise<void> {
  const json = await engine.ask({ what: 'preset', name: id });
  open(json, JSON.parse(json) as Run, id, 0);
}

engine.listen({
  ready(all) {
    list = all;
    presets = new Presets(byId('presets'), all, (id) => void preset(id));
    void share.fromHash();
  },
  opened(info) {
    stage.open(
      info.members,
      app.groups.map((group) => group.title),
    );
    presets?.mark(app.preset);
    say(byId('stage-title'), info.title ?? 'A run of your own');
    say(byId('stage-tells'), info.tells ?? 'Started again from a file, a link or the editors.');
    const limit = info.rules[app.groups[0]?.rule ?? 0]?.limit ?? 100;
    transport.suggest(limit);
    app.select(0, 0);
    if (!app.base)
      void engine.ask({ what: 'run' }).then((run) => (app.base = JSON.parse(run) as Run));
    if (openedAt > 0 || calm()) engine.pause();
    else engine.play();
  },
  refused(message) {
    share.tell(`Refused: ${message}`);
    if (engine.info) return;
    say(byId('stage-title'), 'The simulator did not start');
    say(byId('stage-tells'), message);
  },
  tick(tick) {
    app.last = tick;
    stage.take(tick, engine.shownSpeed, performance.now());
  },
  done: () => void share.toHash(),
  state: () => {
    if (!engine.playing && app.base) void share.toHash();
  },
});

listen(front, stage, {
  click(at) {
    app.select(at.member, at.ring);
    if (app.click === 'burst') app.burst(at.member);
    if (app.click === 'kill') member.kill(at.member);
  },
  pair(one, other) {
    const cut = stage.cuts.between(one, other) > 0;
    app.command({ fault: cut ? { mend: { one, other } } : { apart: { one, other } } });
  },
  cut(pairs) {
    const side = asPartition(pairs, engine.info?.members ?? 0);
    if (side && side.every((one) => one < 64)) {
      app.command({ fault: { partition: { side } } });
    } else if (pairs.length <= MOST_PAIRS) {
      for (const [one, other] of pairs) app.command({ fault: { apart: { one, other } } });
    } else {
      share.tell('Too many links for one stroke.');
    }
  },
  point(at) {
    front.title = at
      ? `${named(at.member)}: sees ${count(app.value(at.member, M.used, at.ring))}`
      : '';
  },
});

const KEYS: Record<string, () => void> = {
  ArrowRight: () => app.select(app.selected + 1),
  ArrowDown: () => app.select(app.selected + 1),
  ArrowLeft: () => app.select(app.selected - 1),
  ArrowUp: () => app.select(app.selected - 1),
  Enter: () => app.burst(app.selected),
  ' ': () => transport.toggle(),
  '.': () => engine.round(),
  k: () => member.kill(),
  c: () => member.isolate(),
  h: () => network.heal(),
};
front.addEventListener('keydown', (event) => {
  const deed = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!deed || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  deed();
});

/** What the stage shows, in one sentence, for who does not see it. */
function describe(): void {
  const at = app.selected;
  const apart = app.groups.map((_, i) => app.cluster(i, C.apart, C.stride));
  const text =
    `${engine.info?.members ?? 0} members in a ring. Member ${at + 1} is selected: it sees ` +
    `${count(app.value(at, M.used))} hits. Disagreement ${apart.map(count).join(', ')}.`;
  if (front.getAttribute('aria-label') !== text) front.setAttribute('aria-label', text);
}

/** Says when what is seen is not quite what happens. */
function note(): void {
  const box = byId('stage-note');
  const slow = engine.playing && engine.pace < 0.6;
  const text = engine.busy
    ? 'Running there from the seed …'
    : slow
      ? 'This machine is slower than the chosen speed.'
      : stage.flights.stretched > 0.5
        ? 'Frames are drawn slower than they fly.'
        : '';
  box.hidden = text === '';
  say(box, text);
}

let lastPicture = performance.now();
let lastNumbers = 0;

function picture(real: number): void {
  const gap = real - lastPicture;
  lastPicture = real;
  meter.during(() => {
    engine.frame(gap);
    stage.draw(engine.shown, real);
    transport.draw();
    if (real - lastNumbers >= NUMBERS_MS) {
      lastNumbers = real;
      numbers();
    } else {
      plots.draw();
    }
  });
  meter.picture(gap);
  requestAnimationFrame(picture);
}

let turn = 0;

/** Parts that change seldom, one after the other. */
function numbers(): void {
  facts.draw();
  turn = (turn + 1) % 3;
  if (turn === 0) table.draw();
  if (turn === 1 && tabs.open === 0) member.draw();
  if (turn === 2) {
    describe();
    note();
  }
}

requestAnimationFrame(picture);
// For the console and the tests.
Object.assign(globalThis, { gabion: { app, engine, stage, meter, share } });
