// I own: which links carry nothing, as a set that is cheap to compare and to ask.

/** Cut links of a cluster: whole ones (neither way) and half ones (one way only). */
export class Cuts {
  private held = new Set<number>();
  private seen = '';
  /** Counts changes, so that a cached picture knows when it is stale. */
  version = 0;

  constructor(private readonly members: number) {}

  /** Takes up pairs (from, to); true when something changed. */
  set(pairs: Float64Array): boolean {
    const seen = pairs.join();
    if (seen === this.seen) return false;
    this.seen = seen;
    this.held = new Set();
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      this.held.add((pairs[i] ?? 0) * this.members + (pairs[i + 1] ?? 0));
    }
    this.version += 1;
    return true;
  }

  /** 0: carries both ways; 1: one way only; 2: nothing. */
  between(one: number, other: number): 0 | 1 | 2 {
    const there = this.held.has(one * this.members + other) ? 1 : 0;
    const back = this.held.has(other * this.members + one) ? 1 : 0;
    return (there + back) as 0 | 1 | 2;
  }

  /** How many directed links are cut. */
  get size(): number {
    return this.held.size;
  }
}
