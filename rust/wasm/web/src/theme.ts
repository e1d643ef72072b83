// I own: light or dark, and the colours that the canvas and the plots take from the style sheet.

export interface Colours {
  ink: string;
  soft: string;
  line: string;
  paper: string;
  raised: string;
  news: string;
  quiet: string;
  other: string;
  admit: string;
  deny: string;
  own: string;
  theirs: string;
  truth: string;
  cut: string;
  pick: string;
  series: string[];
}

const NAMES = [
  'ink',
  'soft',
  'line',
  'paper',
  'raised',
  'news',
  'quiet',
  'other',
  'admit',
  'deny',
  'own',
  'theirs',
  'truth',
  'cut',
  'pick',
] as const satisfies readonly Exclude<keyof Colours, 'series'>[];

let known: Colours | null = null;
const listeners: (() => void)[] = [];

/** The present palette. */
export function colours(): Colours {
  if (!known) {
    const style = getComputedStyle(document.documentElement);
    const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const single = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
    const series = [read('series-1'), read('series-2'), read('series-3')];
    known = { ...single, series } as unknown as Colours;
  }
  return known;
}

/** Called whenever the palette has changed. */
export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

export type Theme = 'auto' | 'light' | 'dark';

/** What the visitor chose; `auto` follows the system. */
export function theme(): Theme {
  const held = document.documentElement.dataset.theme;
  return held === 'light' || held === 'dark' ? held : 'auto';
}

/** Chooses a theme and remembers it where the browser allows that. */
export function setTheme(next: Theme): void {
  const root = document.documentElement;
  if (next === 'auto') delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem('gabion-theme', next);
  } catch {
    // Private windows may refuse: the choice then lasts as long as the page.
  }
  changed();
}

/** Whether the page is dark now. */
export function dark(): boolean {
  const held = theme();
  return held === 'dark' || (held === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
}

/** Takes up an earlier choice and follows the system. */
export function startTheme(): void {
  try {
    const held = localStorage.getItem('gabion-theme');
    if (held === 'light' || held === 'dark') document.documentElement.dataset.theme = held;
  } catch {
    // As above.
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
}

function changed(): void {
  known = null;
  for (const listener of listeners) listener();
}

/** Whether the visitor asked for little movement. */
export function calm(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}
