// I own: numbers as people read them.

const MS = 1e6;
const SECOND = 1e9;

/** A duration, nanoseconds, with about three digits. */
export function duration(ns: number): string {
  const size = Math.abs(ns);
  if (size === 0) return '0';
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < MS) return `${digits(ns / 1e3)} µs`;
  if (size < SECOND) return `${digits(ns / MS)} ms`;
  if (size < 120 * SECOND) return `${digits(ns / SECOND)} s`;
  if (size < 7200 * SECOND) return `${digits(ns / (60 * SECOND))} min`;
  return `${digits(ns / (3600 * SECOND))} h`;
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

/** A point in virtual time, always as wide: minutes, seconds, milliseconds. */
export function clock(ns: number): string {
  const ms = Math.floor(ns / MS);
  const two = (n: number) => String(n).padStart(2, '0');
  const minutes = Math.floor(ms / 60_000);
  const rest = `${two(Math.floor(ms / 1000) % 60)}.${String(ms % 1000).padStart(3, '0')}`;
  return minutes >= 60
    ? `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}:${rest}`
    : `${two(minutes)}:${rest}`;
}

/** Bytes, decimal. */
export function bytes(n: number): string {
  if (n < 1e3) return `${Math.round(n)} B`;
  if (n < 1e6) return `${digits(n / 1e3)} KB`;
  return `${digits(n / 1e6)} MB`;
}

/** A count, digits grouped. */
export function count(n: number): string {
  return Math.round(n).toLocaleString('en-GB');
}

/** `1 hit`, `2 hits`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
