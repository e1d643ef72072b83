// I own: the page's half of a run: its clock, and what is asked of the worker. One request to let
// time pass is under way at most, so a slow machine makes a run slow and never piles work up.

import type { Command, Info, PresetInfo } from './bridge';
import { History } from './history';
import type { Meter } from './meter';
import type {
  Answer,
  Done,
  FromWorker,
  Links,
  Opened,
  Question,
  Refused,
  Tick,
  ToWorker,
} from './protocol';

/** What the rest of the page hears of. */
export interface Listener {
  ready?(presets: PresetInfo[]): void;
  opened?(info: Info): void;
  refused?(message: string): void;
  tick?(tick: Tick): void;
  done?(done: Done): void;
  links?(links: Links): void;
  state?(): void;
}

/** A real second shows this much virtual time; `Infinity`: as fast as the machine can. */
export const SPEEDS = [
  0.0005,
  0.001,
  0.002,
  0.005,
  0.01,
  0.02,
  0.05,
  0.1,
  0.2,
  0.5,
  1,
  2,
  5,
  10,
  60,
  600,
  Infinity,
] as const;

/** How long a step of one round is shown, milliseconds. */
const ROUND_MS = 700;
/** A picture that comes later than this does not make up for the time that was lost. */
const LONGEST_FRAME_MS = 50;
/** What is asked for at a time at the highest speed, virtual ns. */
const FAST_CHUNK = 20e9;

export class Engine {
  info: Info | null = null;
  history = new History(1, 1, 1e6);
  playing = false;
  speed = 0.05;
  /** Time that the worker has reached. */
  reached = 0;
  /** Time that is shown. */
  shown = 0;
  /** Visitors did something: the run is theirs, and does not stop at its end. */
  touched = false;
  /** A long way is being made up. */
  busy = false;
  /** What the worker cannot keep up with, as a share of the chosen speed. */
  pace = 1;
  private numbers: [Float64Array[], Float64Array] = [[], new Float64Array(0)];
  private goal = 0;
  private run = 0;
  private asked = false;
  private pausedAtEnd = false;
  private roundFrom = -1;
  private nextId = 0;
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private readonly listeners: Listener[] = [];
  private readonly worker = new Worker(new URL('./worker.ts', import.meta.url), {
    type: 'module',
  });

  constructor(meter: Meter) {
    this.worker.onmessage = (event: MessageEvent<FromWorker>) =>
      meter.during(() => this.hear(event.data));
    this.worker.onerror = (event) =>
      this.tell((one) => one.refused?.(`the simulator did not start: ${event.message}`));
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  /** Another run, from its JSON; played from `at`. */
  open(json: string, at = 0): void {
    this.run += 1;
    this.asked = false;
    this.busy = true;
    this.post({ kind: 'open', run: this.run, json, at });
  }

  play(): void {
    if (this.playing) return;
    this.playing = true;
    this.goal = this.shown;
    this.changed();
  }

  pause(): void {
    if (!this.playing) return;
    this.playing = false;
    this.post({ kind: 'advance', run: this.run, until: 0 });
    this.changed();
  }

  setSpeed(speed: number): void {
    this.speed = speed;
    this.changed();
  }

  /** One gossip round, shown slowly. */
  round(): void {
    this.playing = false;
    this.shown = this.reached;
    this.roundFrom = this.reached;
    this.post({ kind: 'round', run: this.run });
    this.changed();
  }

  seek(to: number): void {
    this.roundFrom = -1;
    this.busy = true;
    this.shown = to;
    this.goal = to;
    this.post({ kind: 'seek', run: this.run, to });
    this.changed();
  }

  command(command: Command): void {
    this.touched = true;
    this.post({ kind: 'command', run: this.run, command });
  }

  askLinks(member: number): void {
    this.post({ kind: 'links', run: this.run, member });
  }

  focus(rule: number): void {
    if (this.info) this.info.focus.rule = rule;
    this.post({ kind: 'focus', run: this.run, rule });
  }

  /** A question to the worker; fails with its words. */
  ask(question: Question): Promise<string> {
    const id = (this.nextId += 1);
    this.post({ kind: 'ask', id, question });
    return new Promise((good, bad) => {
      this.waiting.set(id, (answer) => {
        if (answer.failed) bad(new Error(answer.value));
        else good(answer.value);
      });
    });
  }

  /** The end of the seek slider. */
  get end(): number {
    return Math.max(this.info?.end_ns ?? 0, this.reached, this.history.last);
  }

  /** Virtual seconds in one real second, as they are shown now: frames fly by this. */
  get shownSpeed(): number {
    return Math.min(this.speed, 1e3) * Math.max(0.05, this.pace);
  }

  /** Called before each picture: lets the clock go on by `dt` real milliseconds. */
  frame(dt: number): void {
    const passed = Math.min(dt, LONGEST_FRAME_MS);
    if (this.roundFrom >= 0) {
      const step = ((this.reached - this.roundFrom) * passed) / ROUND_MS;
      this.shown = Math.min(this.reached, this.shown + step);
      if (this.shown >= this.reached && this.reached > this.roundFrom) this.roundFrom = -1;
      return;
    }
    if (!this.playing || this.busy || !this.info) {
      if (!this.busy) this.shown = this.reached;
      return;
    }
    const step = Number.isFinite(this.speed) ? passed * 1e6 * this.speed : FAST_CHUNK;
    this.goal = Math.min(this.goal + step, this.reached + 3 * step);
    this.shown = Math.min(this.reached, Math.max(this.shown, this.goal - step));
    if (!this.asked && this.goal > this.reached) {
      this.asked = true;
      this.post({ kind: 'advance', run: this.run, until: Math.round(this.stopAtEnd(this.goal)) });
    }
  }

  /** A run that nobody touched stops once where it was meant to end. */
  private stopAtEnd(goal: number): number {
    const end = this.info?.end_ns ?? 0;
    if (this.touched || this.pausedAtEnd || end <= 0 || this.reached > end) return goal;
    return Math.min(goal, end);
  }

  private hear(message: FromWorker): void {
    if (message.kind === 'ready') {
      const presets = JSON.parse(message.presets) as PresetInfo[];
      this.tell((one) => one.ready?.(presets));
    } else if (message.kind === 'answer') {
      this.waiting.get(message.id)?.(message);
      this.waiting.delete(message.id);
    } else if (message.run === this.run) {
      this.inRun(message);
    }
  }

  private inRun(message: Opened | Refused | Tick | Done | Links): void {
    switch (message.kind) {
      case 'opened':
        this.opened(message.info);
        break;
      case 'refused':
        this.busy = false;
        this.tell((one) => one.refused?.(message.message));
        break;
      case 'tick':
        this.ticked(message);
        break;
      case 'done':
        this.history.cut(message.at);
        this.tell((one) => one.done?.(message));
        break;
      case 'links':
        this.tell((one) => one.links?.(message));
        break;
    }
  }

  private opened(info: Info): void {
    this.info = info;
    this.speed = nearest(info.speed);
    this.reached = 0;
    this.shown = 0;
    this.goal = 0;
    this.touched = false;
    this.pausedAtEnd = false;
    this.busy = true;
    this.roundFrom = -1;
    // Whole nanoseconds. A sample of a large cluster takes milliseconds: fewer of them.
    const samples = info.members > 32 ? 300 : 1200;
    const every = Math.round(Math.max(2e5, info.end_ns / samples));
    this.history = new History(Math.max(1, info.groups.length), info.members, every);
    this.post({ kind: 'sampling', every });
    this.tell((one) => one.opened?.(info));
    this.changed();
  }

  private ticked(tick: Tick): void {
    if (tick.members.length > 0) {
      this.numbers = [tick.members, tick.clusters];
    } else {
      [tick.members, tick.clusters] = this.numbers;
    }
    const gained = tick.now - this.reached;
    if (this.asked && this.goal > this.reached) {
      const share = gained / (this.goal - this.reached);
      this.pace += (Math.min(1, share) - this.pace) * 0.1;
    }
    this.asked = false;
    this.reached = tick.now;
    if (this.busy) {
      this.shown = tick.now;
      this.goal = tick.now;
    }
    this.busy = tick.busy;
    if (this.history.add(tick.samples)) this.post({ kind: 'sampling', every: this.history.every });
    const end = this.info?.end_ns ?? 0;
    if (this.playing && !this.touched && !this.pausedAtEnd && end > 0 && tick.now >= end) {
      this.pausedAtEnd = true;
      this.pause();
    }
    this.tell((one) => one.tick?.(tick));
  }

  private post(message: ToWorker): void {
    this.worker.postMessage(message);
  }

  private changed(): void {
    this.tell((one) => one.state?.());
  }

  private tell(what: (listener: Listener) => void): void {
    for (const listener of this.listeners) what(listener);
  }
}

function nearest(speed: number): number {
  const off = (one: number) => Math.abs(Math.log(one / speed));
  return SPEEDS.reduce((best, one) => (off(one) < off(best) ? one : best), 1 as number);
}
