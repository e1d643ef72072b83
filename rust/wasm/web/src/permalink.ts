// I own: a run in the address of the page. A preset that nobody touched is named; everything else
// is there in full, compressed: rules, seed, settings and what was done, with its time.

import type { Run } from './bridge';

/** What an address says. */
export interface Link {
  preset?: string;
  seed?: number;
  run?: string;
  /** Where to look, virtual nanoseconds. */
  at: number;
}

/** Longer runs than this are not put into addresses, characters. */
export const MOST = 60_000;

async function squeeze(bytes: Uint8Array, stream: CompressionStream | DecompressionStream) {
  const source = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream();
  return new Uint8Array(await new Response(source.pipeThrough(stream)).arrayBuffer());
}

/** A text as letters that an address may hold. */
export async function pack(text: string): Promise<string> {
  const bytes = await squeeze(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** The reverse; fails where the letters were cut or changed. */
export async function unpack(letters: string): Promise<string> {
  const binary = atob(letters.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
  const plain = await squeeze(bytes, new DecompressionStream('deflate-raw'));
  return new TextDecoder('utf-8', { fatal: true }).decode(plain);
}

/** The hash of a link, with `#`. */
export async function write(link: Link): Promise<string> {
  const parts = new URLSearchParams();
  if (link.preset) parts.set('preset', link.preset);
  if (link.seed !== undefined) parts.set('seed', String(link.seed));
  if (link.run) parts.set('run', await pack(link.run));
  if (link.at > 0) parts.set('at', String(Math.round(link.at)));
  return `#${parts.toString()}`;
}

/** Reads a hash; null when it names nothing. */
export async function read(hash: string): Promise<Link | null> {
  const parts = new URLSearchParams(hash.replace(/^#/, ''));
  const at = Math.max(0, Number(parts.get('at')) || 0);
  const run = parts.get('run');
  if (run) return { run: await unpack(run), at };
  const preset = parts.get('preset');
  if (!preset) return null;
  const seed = Number(parts.get('seed') ?? Number.NaN);
  return Number.isInteger(seed) && seed >= 0 ? { preset, seed, at } : { preset, at };
}

/** The JSON of a run as this page reads it, or null: a scenario file, which the simulator reads. */
export function asRun(json: string): Run | null {
  const held: unknown = JSON.parse(json);
  const known = typeof held === 'object' && held !== null && 'format' in held;
  return known ? (held as Run) : null;
}
