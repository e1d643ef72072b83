// I own: how long pictures take, and how much of that is script. The tests read it.

/** So many pictures are remembered. */
const KEPT = 1200;

export class Meter {
  /** Milliseconds between pictures. */
  readonly gaps: number[] = [];
  /** Milliseconds of script for each picture: drawing, and hearing the worker since the last. */
  readonly script: number[] = [];
  private spent = 0;

  /** Times something that happens between pictures. */
  during<T>(work: () => T): T {
    const start = performance.now();
    try {
      return work();
    } finally {
      this.spent += performance.now() - start;
    }
  }

  /** A picture is done. */
  picture(gap: number): void {
    this.gaps.push(gap);
    this.script.push(this.spent);
    this.spent = 0;
    if (this.gaps.length > KEPT) {
      this.gaps.shift();
      this.script.shift();
    }
  }

  clear(): void {
    this.gaps.length = 0;
    this.script.length = 0;
  }
}
