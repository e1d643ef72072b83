// I own: what the plots keep of a run, and how long lists are thinned evenly. Pure.

import { C, M, State } from './columns';
import type { Group, Sample } from './protocol';

/** One point of the plots. */
export function sampleOf(
  at: number,
  members: Float64Array,
  clusters: Float64Array,
  groups: Group[],
): Sample {
  const column = (name: number) => groups.map((_, i) => clusters[i * C.stride + name] ?? 0);
  const count = members.length / M.stride;
  const used = new Float64Array(count);
  let sum = 0;
  let most = 0;
  for (let i = 0; i < count; i += 1) {
    const row = i * M.stride;
    const there = members[row + M.state] === State.up || members[row + M.state] === State.slow;
    used[i] = there ? (members[row + M.used] ?? 0) : Number.NaN;
    const bytes = members[row + M.bytesSent] ?? 0;
    sum += bytes;
    most = Math.max(most, bytes);
  }
  return {
    at,
    truth: column(C.truth),
    apart: column(C.apart),
    over: column(C.over),
    bound: column(C.bound),
    used,
    bytes: [sum / Math.max(1, count), most],
  };
}

/** At most `most` records of `stride` numbers, taken evenly; the rest is left out. */
export function thin(records: Float64Array, stride: number, most: number): Float64Array {
  const count = records.length / stride;
  if (count <= most) return records;
  const kept = new Float64Array(most * stride);
  for (let i = 0; i < most; i += 1) {
    const at = Math.floor((i * count) / most) * stride;
    kept.set(records.subarray(at, at + stride), i * stride);
  }
  return kept;
}
