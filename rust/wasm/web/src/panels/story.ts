// I own: the run in words, for those who watch and those who listen; and the first steps.

import { type App, named } from '../app';
import type { Command, Fault } from '../bridge';
import { C, M, State } from '../columns';
import { byId, h, say } from '../dom';
import { clock, count, duration, plural } from '../format';
import type { Done, Tick } from '../protocol';

/** Lines that are kept. */
const LINES = 6;

/** What a command was, in words. */
export function words(command: Command): string {
  if ('burst' in command) {
    return `${plural(command.burst.hits, 'request')} arrive at ${named(command.burst.member)}.`;
  }
  if ('kill' in command)
    return `${capital(named(command.kill.member))} is killed: its memory is lost.`;
  if ('start' in command) return `${capital(named(command.start.member))} starts, knowing nothing.`;
  if ('load' in command) {
    const where = command.load.at === undefined ? 'all members' : named(command.load.at);
    return `${count(command.load.per_second)} requests a second at ${where} from now on.`;
  }
  if ('stop_load' in command || 'stop_loads' in command) return 'The steady requests stop.';
  if ('links' in command) return linkWords(command.links);
  return faultWords(command.fault);
}

function linkWords(links: {
  loss_ppm?: number;
  delay_min_ns?: number;
  delay_max_ns?: number;
}): string {
  const parts: string[] = [];
  if (links.loss_ppm !== undefined) parts.push(`${links.loss_ppm / 10_000} % of frames are lost`);
  if (links.delay_max_ns !== undefined) {
    parts.push(
      `links take about ${duration(((links.delay_min_ns ?? 0) + links.delay_max_ns) / 2)}`,
    );
  }
  return `${capital(parts.join(', '))}.`;
}

function faultWords(fault: Fault): string {
  if (fault === 'heal') return 'The network is healed: all links carry again.';
  if ('partition' in fault) {
    const side = fault.partition.side.map((member) => member + 1);
    const few = side.length <= 8 ? side.join(', ') : plural(side.length, 'member');
    return `The network is cut: ${few} on one side, the rest on the other.`;
  }
  if ('apart' in fault) {
    return `The link between ${named(fault.apart.one)} and ${named(fault.apart.other)} is cut.`;
  }
  if ('mend' in fault) {
    const { one, other } = fault.mend;
    return `The link between ${named(one)} and ${named(other)} carries again.`;
  }
  if ('clock_step' in fault) {
    const { member, by_ns } = fault.clock_step;
    const way = by_ns > 0 ? 'forward' : 'back';
    return `The clock of ${named(member)} jumps ${duration(Math.abs(by_ns))} ${way}.`;
  }
  return 'Something was done to the network.';
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What is noticed by comparing one tick with the last. */
export class Story {
  private readonly list = byId('story');
  private apartSince = -1;
  private apartMost = 0;
  private full = false;
  private over = false;
  private states: number[] = [];
  private cuts = -1;
  private epoch = -1;

  constructor(
    private readonly app: App,
    private readonly coach: Coach,
  ) {
    app.engine.listen({
      opened: () => this.begin(),
      tick: (tick) => this.notice(tick),
      done: (done) => this.done(done),
    });
  }

  /** One line, with its virtual time. */
  tell(text: string, at = this.app.engine.reached): void {
    const line = h('p', {}, h('time', {}, clock(at)), h('span', {}, text));
    this.list.append(line);
    while (this.list.children.length > LINES) this.list.firstElementChild?.remove();
  }

  private begin(): void {
    this.list.replaceChildren();
    const { info } = this.app;
    this.tell(`${info?.members ?? 0} members meet, each with an empty memory.`, 0);
    this.apartSince = -1;
    this.full = false;
    this.over = false;
    this.states = [];
    this.cuts = -1;
    this.epoch = -1;
  }

  private done(done: Done): void {
    if (done.message) {
      this.tell(`Refused: ${done.message}`, done.at);
      return;
    }
    this.tell(words(done.command), done.at);
    this.coach.did(done.command);
  }

  private notice(tick: Tick): void {
    this.members(tick);
    this.links(tick);
    if (tick.busy) return;
    this.window(tick);
    this.agreement(tick);
    this.limit(tick);
    for (const text of tick.violations) this.tell(`A checker of the simulator objects: ${text}`);
  }

  private members(tick: Tick): void {
    const members = tick.members[0] ?? new Float64Array(0);
    for (let i = 0; i < members.length / M.stride; i += 1) {
      const state = members[i * M.stride + M.state] ?? 0;
      const before = this.states[i];
      this.states[i] = state;
      if (before === undefined || before === state || tick.busy) continue;
      if (state === State.down) this.tell(`${capital(named(i))} is down.`);
      if (state === State.up) this.tell(`${capital(named(i))} is up.`);
      if (state === State.away) this.tell(`${capital(named(i))} has left.`);
    }
  }

  private links(tick: Tick): void {
    const cuts = tick.cuts.length / 2;
    if (this.cuts >= 0 && cuts !== this.cuts && !tick.busy) {
      if (cuts === 0) this.tell('All links carry.');
      else if (this.cuts === 0) this.tell(`${plural(Math.ceil(cuts / 2), 'link')} cut.`);
    }
    this.cuts = cuts;
  }

  private window(tick: Tick): void {
    const epoch = tick.clusters[C.epochStart] ?? 0;
    if (this.epoch >= 0 && epoch > this.epoch) {
      this.tell('A new window begins: older hits no longer count.', epoch);
      this.full = false;
    }
    this.epoch = epoch;
  }

  private agreement(tick: Tick): void {
    const apart = tick.clusters[C.apart] ?? 0;
    if (apart > 0) {
      if (this.apartSince < 0) {
        this.apartSince = tick.now;
        this.apartMost = 0;
      }
      this.apartMost = Math.max(this.apartMost, apart);
      return;
    }
    if (this.apartSince < 0) return;
    const took = tick.now - this.apartSince;
    this.apartSince = -1;
    const truth = tick.clusters[C.truth] ?? 0;
    // Small differences come and go with every request: a line for each would be noise.
    const limit = tick.clusters[C.limit] ?? 1;
    if (this.apartMost < Math.max(3, limit / 50)) return;
    this.tell(`All members agree on ${plural(truth, 'hit')}, after ${duration(took)}.`, tick.now);
    this.coach.agreed();
  }

  private limit(tick: Tick): void {
    const truth = tick.clusters[C.truth] ?? 0;
    const limit = tick.clusters[C.limit] ?? 0;
    const over = tick.clusters[C.over] ?? 0;
    if (!this.full && limit > 0 && truth >= limit) {
      this.tell(`The limit of ${count(limit)} is reached: who knows it denies.`, tick.now);
      this.full = true;
    }
    if (truth < limit) this.full = false;
    if (!this.over && over > 0) this.tell('More than the limit was admitted: news was late.');
    this.over = over > 0;
  }
}

/** The first steps, checked off as they are done. */
export class Coach {
  private readonly done = new Set<string>();
  private readonly items = new Map<string, HTMLElement>();
  private burst = false;

  constructor(root: HTMLElement, app: App) {
    const steps: [string, string, string][] = [
      ['burst', 'Send a burst.', 'Click a member: requests arrive there, and it fills.'],
      ['agree', 'Watch the news travel.', 'Dots are frames. Disagreement falls to 0.'],
      [
        'cut',
        'Break the network.',
        'Drag a line across the links, then send bursts on both sides.',
      ],
      ['heal', 'Heal it.', 'Each side learns what the other counted.'],
    ];
    const list = h('ol', {});
    steps.forEach(([key, title, text], i) => {
      const item = h(
        'li',
        {},
        h('span', { class: 'mark', 'aria-hidden': 'true' }, String(i + 1)),
        h('span', {}, h('b', {}, title), ` ${text}`, h('span', { class: 'hidden' })),
      );
      this.items.set(key, item);
      list.append(item);
    });
    const tools = h(
      'div',
      { class: 'row' },
      h(
        'button',
        { type: 'button', id: 'coach-burst', onclick: () => app.burst(app.selected) },
        'Send a burst',
      ),
      h(
        'button',
        { type: 'button', id: 'coach-cut', onclick: () => cutInHalf(app) },
        'Cut in half',
      ),
      h(
        'button',
        {
          type: 'button',
          id: 'coach-heal',
          onclick: () => app.command({ fault: 'heal' }),
        },
        'Heal',
      ),
    );
    root.append(h('h3', { id: 'coach-title' }, 'Your first minute'), list, tools);
    this.show();
  }

  did(command: Command): void {
    if ('burst' in command) {
      this.burst = true;
      this.mark('burst');
    }
    if (!('fault' in command)) return;
    if (command.fault === 'heal') {
      if (this.done.has('cut')) this.mark('heal');
    } else if ('partition' in command.fault || 'apart' in command.fault) {
      this.mark('cut');
    }
  }

  agreed(): void {
    if (this.burst) this.mark('agree');
  }

  private mark(step: string): void {
    this.done.add(step);
    this.show();
  }

  private show(): void {
    let next = true;
    for (const [key, item] of this.items) {
      const done = this.done.has(key);
      item.className = done ? 'done' : next ? 'next' : '';
      if (!done) next = false;
      const mark = item.querySelector('.mark');
      if (mark && done) say(mark, '✓');
      const spoken = item.querySelector('.hidden');
      if (spoken) say(spoken, done ? ' (done)' : '');
    }
  }
}

/** Half of the members on one side, the others on the other. */
export function cutInHalf(app: App): void {
  const half = Math.min(64, Math.floor((app.info?.members ?? 2) / 2));
  const side = Array.from({ length: half }, (_, member) => member);
  app.command({ fault: { partition: { side } } });
}
