// I own: the samples of a run, as columns for the plots. Bounded: when there are too many, every
// second one is left out and fewer are asked for.

import type { Sample } from './protocol';

/** So many samples are kept at most. */
const MOST = 2400;
/** Up to so many members each has a line of its own; beyond, the band between them is kept. */
export const LINES_TO = 16;

/** Columns by sample. */
export class History {
  at: number[] = [];
  truth: number[][] = [];
  apart: number[][] = [];
  over: number[][] = [];
  bound: number[][] = [];
  /** One line a member, or (of many members) least and most. */
  used: (number | null)[][] = [];
  mean: number[] = [];
  most: number[] = [];
  /** Virtual time between samples. */
  every = 1e6;
  version = 0;

  constructor(
    private groups: number,
    private members: number,
    every: number,
  ) {
    this.every = every;
    const lists = () => Array.from({ length: groups }, () => [] as number[]);
    this.truth = lists();
    this.apart = lists();
    this.over = lists();
    this.bound = lists();
    const lines = members <= LINES_TO ? members : 2;
    this.used = Array.from({ length: lines }, () => []);
  }

  /** Takes up samples later than those held; true when the time between samples has doubled. */
  add(samples: Sample[]): boolean {
    for (const sample of samples) {
      if (this.at.length > 0 && sample.at <= (this.at[this.at.length - 1] ?? 0)) continue;
      this.push(sample);
    }
    if (samples.length > 0) this.version += 1;
    if (this.at.length <= MOST) return false;
    this.columns().forEach((column) => keepEverySecond(column));
    this.every *= 2;
    return true;
  }

  /** Forgets what came after `now`: the future has changed. */
  cut(now: number): void {
    let keep = this.at.length;
    while (keep > 0 && (this.at[keep - 1] ?? 0) > now) keep -= 1;
    for (const column of this.columns()) column.length = keep;
    this.version += 1;
  }

  get last(): number {
    return this.at[this.at.length - 1] ?? 0;
  }

  private push(sample: Sample): void {
    this.at.push(sample.at);
    for (let i = 0; i < this.groups; i += 1) {
      this.truth[i]?.push(sample.truth[i] ?? 0);
      this.apart[i]?.push(sample.apart[i] ?? 0);
      this.over[i]?.push(sample.over[i] ?? 0);
      this.bound[i]?.push(sample.bound[i] ?? 0);
    }
    if (this.members <= LINES_TO) {
      this.used.forEach((line, i) => {
        const value = sample.used[i] ?? Number.NaN;
        line.push(Number.isNaN(value) ? null : value);
      });
    } else {
      const seen = sample.used.filter((value) => !Number.isNaN(value));
      this.used[0]?.push(seen.length > 0 ? Math.min(...seen) : null);
      this.used[1]?.push(seen.length > 0 ? Math.max(...seen) : null);
    }
    this.mean.push(sample.bytes[0]);
    this.most.push(sample.bytes[1]);
  }

  private columns(): (number | null)[][] {
    return [
      this.at,
      ...this.truth,
      ...this.apart,
      ...this.over,
      ...this.bound,
      ...this.used,
      this.mean,
      this.most,
    ];
  }
}

function keepEverySecond(column: unknown[]): void {
  const kept = Math.ceil(column.length / 2);
  for (let i = 0; i < kept; i += 1) column[i] = column[2 * i];
  column.length = kept;
}

/** Rates are means over this long, virtual nanoseconds. */
const RATE_NS = 5e8;

/** Bytes since the start as bytes in a second, over the samples of the last half second. */
export function rates(at: number[], total: number[]): number[] {
  let from = 0;
  return at.map((now, i) => {
    while (from < i && now - (at[from] ?? 0) > RATE_NS) from += 1;
    const start = Math.max(0, Math.min(from, i - 1));
    const span = now - (at[start] ?? 0);
    const sent = Math.max(0, (total[i] ?? 0) - (total[start] ?? 0));
    return span > 0 ? sent / (Math.max(span, RATE_NS) / 1e9) : 0;
  });
}
