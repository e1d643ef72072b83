// I own: what the page and its worker say to each other. All times are virtual nanoseconds.

import type { Command, Info, LinkInfo } from './bridge';

/** A rule that is shown; usually one, several when they are compared side by side. */
export interface Group {
  title: string;
  rule: number;
}

/** A point of the plots. Arrays over groups, or over members (by the first group). */
export interface Sample {
  at: number;
  truth: number[];
  apart: number[];
  over: number[];
  bound: number[];
  /** What each member sees; NaN where it is not there. */
  used: Float64Array;
  /** Bytes sent since the start: mean and most of all members. */
  bytes: [mean: number, most: number];
}

/** What came of letting time pass. */
export interface Tick {
  kind: 'tick';
  run: number;
  now: number;
  /** A long way is being made up: nothing is drawn meanwhile. */
  busy: boolean;
  /** For each group, `M.stride` numbers a member. Empty: as before. */
  members: Float64Array[];
  /** `C.stride` numbers a group. Empty: as before. */
  clusters: Float64Array;
  /** A fair sample of the frames sent since the last tick, `F.stride` numbers each. */
  flights: Float64Array;
  /** For each group, per member: requests admitted and denied since the last tick. */
  pulses: Uint32Array[];
  /** Links that carry nothing, from and to. */
  cuts: Float64Array;
  samples: Sample[];
  /** What the simulator's own checkers found. None on a good run. */
  violations: string[];
}

export interface Opened {
  kind: 'opened';
  run: number;
  info: Info;
}

export interface Refused {
  kind: 'refused';
  run: number;
  message: string;
}

export interface Links {
  kind: 'links';
  run: number;
  member: number;
  links: LinkInfo[];
}

export interface Answer {
  kind: 'answer';
  id: number;
  value: string;
  failed: boolean;
}

/** A command was carried out, or (with `message`) was not. */
export interface Done {
  kind: 'done';
  run: number;
  command: Command;
  at: number;
  message: string;
}

export interface Ready {
  kind: 'ready';
  presets: string;
}

export type FromWorker = Tick | Opened | Refused | Links | Answer | Done | Ready;

/** Questions that are answered with a text. */
export type Question =
  | { what: 'run' }
  | { what: 'scenario' }
  | { what: 'trace' }
  | { what: 'preset'; name: string }
  | { what: 'rules'; text: string; members: number };

export type ToWorker =
  | { kind: 'open'; run: number; json: string; at: number }
  | { kind: 'advance'; run: number; until: number }
  | { kind: 'seek'; run: number; to: number }
  | { kind: 'round'; run: number }
  | { kind: 'command'; run: number; command: Command }
  | { kind: 'sampling'; every: number }
  | { kind: 'links'; run: number; member: number }
  | { kind: 'focus'; run: number; rule: number }
  | { kind: 'ask'; id: number; question: Question };
