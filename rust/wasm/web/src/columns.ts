// I own: the column numbers of bridge.d.ts as values (its enums are types only).

/** Columns of one frame. */
export const F = {
  sent: 0,
  arrive: 1,
  from: 2,
  to: 3,
  bytes: 4,
  rows: 5,
  kind: 6,
  fate: 7,
  stride: 8,
} as const;

/** What befalls a frame. */
export const Fate = { arrives: 0, lost: 1, cut: 2, copy: 3, damaged: 4 } as const;

/** Columns of one line of verdicts. */
export const V = { member: 0, rule: 1, admitted: 2, denied: 3, failedOpen: 4, stride: 5 } as const;

/** Columns of one member. */
export const M = {
  state: 0,
  used: 1,
  own: 2,
  truth: 3,
  remaining: 4,
  bound: 5,
  stale: 6,
  unreachable: 7,
  peersUp: 8,
  admitted: 9,
  denied: 10,
  failedOpen: 11,
  framesSent: 12,
  bytesSent: 13,
  framesHeard: 14,
  bytesHeard: 15,
  rows: 16,
  clockError: 17,
  clockOffset: 18,
  life: 19,
  stride: 20,
} as const;

/** States of a member. */
export const State = { up: 0, down: 1, slow: 2, away: 3 } as const;

/** Columns of the cluster. */
export const C = {
  now: 0,
  truth: 1,
  limit: 2,
  over: 3,
  bound: 4,
  apart: 5,
  unknown: 6,
  admitted: 7,
  denied: 8,
  failedOpen: 9,
  frames: 10,
  bytes: 11,
  lost: 12,
  cut: 13,
  merged: 14,
  framesDropped: 15,
  epochStart: 16,
  epoch: 17,
  violations: 18,
  troubled: 19,
  stride: 20,
} as const;
