// I own: the four numbers above the stage.

import type { App } from '../app';
import { C } from '../columns';
import { h, say } from '../dom';
import { bytes, count, duration } from '../format';

/** Gossip is told as its mean over this long, virtual nanoseconds. */
const WINDOW = 1e9;

interface Tile {
  box: HTMLElement;
  value: HTMLElement;
  note: HTMLElement;
}

/** The value of one group: the number itself and what stands small behind it. */
type Value = [number: string, rest: string];

export class Facts {
  private readonly truth: Tile;
  private readonly apart: Tile;
  private readonly over: Tile;
  private readonly bytes: Tile;

  constructor(
    root: HTMLElement,
    private readonly app: App,
  ) {
    const tile = (title: string, id: string): Tile => {
      const value = h('dd', { class: 'value', id });
      const note = h('dd', { class: 'note' });
      const box = h('div', { class: 'fact' }, h('dt', {}, title), value, note);
      root.append(box);
      return { box, value, note };
    };
    this.truth = tile('Really admitted', 'fact-truth');
    this.apart = tile('Disagreement', 'fact-apart');
    this.over = tile('Beyond the limit', 'fact-over');
    this.bytes = tile('Gossip of one member', 'fact-bytes');
  }

  /** Some times a second. */
  draw(): void {
    const { app } = this;
    if (!app.last) return;
    const each = (make: (at: (column: number) => number) => Value): Value[] =>
      app.groups.map((_, i) => make((column) => app.cluster(i, column, C.stride)));
    const most = (column: number) =>
      Math.max(0, ...app.groups.map((_, i) => app.cluster(i, column, C.stride)));
    this.fill(
      this.truth,
      each((at) => [count(at(C.truth)), ` of ${count(at(C.limit))}`]),
    );
    say(this.truth.note, this.window());
    this.fill(
      this.apart,
      each((at) => [count(at(C.apart)), '']),
    );
    this.mood(this.apart, most(C.apart) === 0 ? 'good' : '');
    say(
      this.apart.note,
      most(C.apart) === 0
        ? 'All members know the same.'
        : 'Hits between who knows most and who knows least.',
    );
    const many = app.groups.length > 1;
    this.fill(
      this.over,
      each((at) => [count(at(C.over)), many ? ` (${count(at(C.bound))})` : '']),
    );
    this.mood(this.over, most(C.over) > 0 && !many ? 'bad' : '');
    say(
      this.over.note,
      many
        ? 'Behind it: as many as members say is possible.'
        : `Members say that at most ${count(most(C.bound))} are possible now.`,
    );
    this.gossip();
  }

  private window(): string {
    const rule = this.app.info?.rules[this.app.groups[0]?.rule ?? 0];
    return rule ? `In a window of ${duration(rule.window_ns)}, all members together.` : '';
  }

  private gossip(): void {
    const { at, mean } = this.app.engine.history;
    let from = at.length - 1;
    while (from > 0 && (at[at.length - 1] ?? 0) - (at[from] ?? 0) < WINDOW) from -= 1;
    const span = ((at[at.length - 1] ?? 0) - (at[from] ?? 0)) / 1e9;
    const sent = (mean[mean.length - 1] ?? 0) - (mean[from] ?? 0);
    this.fill(this.bytes, [[`${bytes(span > 0 ? Math.max(0, sent / span) : 0)}/s`, '']]);
    const frames = this.app.cluster(0, C.frames, C.stride);
    const lost = this.app.cluster(0, C.lost, C.stride) + this.app.cluster(0, C.cut, C.stride);
    const gone = lost > 0 ? `, ${count(lost)} of them never arrived` : '';
    say(this.bytes.note, `Over the last second. ${count(frames)} frames in all${gone}.`);
  }

  private fill(tile: Tile, values: Value[]): void {
    const many = values.length > 1;
    const key = JSON.stringify(values);
    if (tile.value.dataset.key === key) return;
    tile.value.dataset.key = key;
    tile.value.className = many ? 'value many' : 'value';
    tile.value.replaceChildren(
      ...values.map(([number, rest], i) => {
        const title = many ? `${this.app.groups[i]?.title ?? ''} ` : '';
        return h(
          'span',
          {},
          many ? h('small', {}, title) : null,
          many ? h('span', {}, `${number}${rest}`) : number,
          many ? null : h('small', {}, rest),
        );
      }),
    );
  }

  private mood(tile: Tile, mood: '' | 'good' | 'bad'): void {
    tile.box.className = mood === '' ? 'fact' : `fact ${mood}`;
  }
}
