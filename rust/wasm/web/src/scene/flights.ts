// I own: the frames that are drawn between members. Bounded: the oldest make room for new ones.

import { F, Fate } from '../columns';

/** So many frames are drawn at a time, at most. */
export const MOST = 4096;
/** A frame is seen for so long at least, milliseconds of real time, however fast it flies. */
export const SEEN_MS = 150;

/** A ring of frames, one array a column. */
export class Flights {
  readonly sent = new Float64Array(MOST);
  readonly until = new Float64Array(MOST);
  readonly from = new Uint16Array(MOST);
  readonly to = new Uint16Array(MOST);
  readonly size = new Float32Array(MOST);
  readonly news = new Uint8Array(MOST);
  readonly lost = new Uint8Array(MOST);
  count = 0;
  /** Share of late that had to be drawn slower than they fly. */
  stretched = 0;
  private next = 0;

  clear(): void {
    this.count = 0;
    this.next = 0;
  }

  /** Takes up what a tick brought. `least` is the shortest flight that can be seen, virtual ns. */
  add(batch: Float64Array, least: number): void {
    for (let i = 0; i + F.stride <= batch.length; i += F.stride) {
      const sent = batch[i + F.sent] ?? 0;
      const arrive = batch[i + F.arrive] ?? sent;
      const fate = batch[i + F.fate] ?? Fate.arrives;
      this.stretched += ((arrive - sent < least * 0.8 ? 1 : 0) - this.stretched) * 0.02;
      const slot = this.next;
      this.sent[slot] = sent;
      this.until[slot] = sent + Math.max(arrive - sent, least);
      this.from[slot] = batch[i + F.from] ?? 0;
      this.to[slot] = batch[i + F.to] ?? 0;
      // Area follows bytes: a full frame of 1,200 bytes is some five times as wide as an empty one.
      this.size[slot] = Math.max(1.8, Math.sqrt(batch[i + F.bytes] ?? 0) * 0.24);
      this.news[slot] = (batch[i + F.rows] ?? 0) > 0 ? 1 : 0;
      this.lost[slot] = fate === Fate.lost || fate === Fate.cut ? 1 : 0;
      this.next = (slot + 1) % MOST;
      this.count = Math.min(MOST, this.count + 1);
    }
  }

  /** Calls `see` for each frame that is under way at `now`, with how far it is. */
  each(now: number, see: (slot: number, way: number) => void): void {
    for (let i = 0; i < this.count; i += 1) {
      const sent = this.sent[i] ?? 0;
      const until = this.until[i] ?? 0;
      if (sent <= now && now < until) see(i, (now - sent) / (until - sent));
    }
  }
}
