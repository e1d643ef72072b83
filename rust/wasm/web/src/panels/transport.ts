// I own: play, pause, one round, speed, the clock and the seek slider; and what a click does.

import type { App, ClickMeans } from '../app';
import { button, h, say, select } from '../dom';
import { SPEEDS } from '../engine';
import { clock } from '../format';

const SVG = 'http://www.w3.org/2000/svg';

/** Paths of the few pictures on buttons. */
const ICONS = {
  play: 'M4 2.5v13l11-6.5z',
  pause: 'M4 2.5h3.6v13H4zM10.4 2.5H14v13h-3.6z',
  round: 'M3 2.5v13l8.6-6.5zM12.4 2.5H15v13h-2.6z',
  again:
    'M9 3a6 6 0 1 0 5.7 7.9h-2A4.2 4.2 0 1 1 9 4.8c1.1 0 2 .4 2.8 1.1' +
    'L9.6 8H15V2.6l-1.9 1.9A6 6 0 0 0 9 3z',
};

function icon(control: HTMLButtonElement, path: string, name: string): void {
  const picture = document.createElementNS(SVG, 'svg');
  picture.setAttribute('viewBox', '0 0 18 18');
  picture.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', path);
  picture.append(line);
  control.replaceChildren(picture, h('span', { class: 'hidden' }, name));
}

function speedName(speed: number): string {
  if (!Number.isFinite(speed)) return 'as fast as it can';
  if (speed === 1) return 'real time';
  return speed < 1 ? `${Math.round(1 / speed)} times slower` : `${speed} times faster`;
}

export class Transport {
  private readonly playButton = button('Play', 'Lets virtual time run (Space)', () =>
    this.toggle(),
  );
  private readonly time = h('span', { class: 'time', id: 'clock' });
  private readonly slider = h('input', {
    type: 'range',
    min: 0,
    max: 1000,
    step: 1,
    value: 0,
    id: 'seek',
    'aria-label': 'Virtual time; earlier times are run again from the seed',
  });
  private readonly end = h('span', { class: 'hint' });
  private readonly speeds: HTMLSelectElement;
  private dragging = false;
  private shownAs = '';

  constructor(
    root: HTMLElement,
    private readonly app: App,
    again: () => void,
  ) {
    const round = button('', 'Runs until the next news has been sent and has arrived (.)', () =>
      app.engine.round(),
    );
    icon(round, ICONS.round, 'One gossip round');
    round.className = 'icon';
    round.id = 'round';
    const restart = button('', 'Starts this scene again, at time 0', again);
    icon(restart, ICONS.again, 'Start again');
    restart.className = 'icon';
    restart.id = 'again';
    this.playButton.id = 'play';
    this.playButton.className = 'icon strong';
    this.speeds = select(
      SPEEDS.map((speed) => [String(speed), speedName(speed)] as const),
      '1',
      (value) => app.engine.setSpeed(Number(value)),
    );
    this.speeds.id = 'speed';
    const speed = h(
      'span',
      { class: 'row' },
      h('label', { for: 'speed', class: 'label' }, 'Speed'),
      this.speeds,
    );
    root.append(
      h(
        'div',
        { class: 'line' },
        this.playButton,
        round,
        restart,
        this.time,
        h('span', { class: 'seek' }, this.slider, this.end),
        speed,
      ),
      h('div', { class: 'line' }, this.clicks(), this.burst()),
    );
    this.listen();
    app.engine.listen({ state: () => this.state(), opened: () => this.state() });
    this.state();
  }

  toggle(): void {
    if (this.app.engine.playing) this.app.engine.pause();
    else this.app.engine.play();
  }

  /** Called with each picture. */
  draw(): void {
    const { engine } = this.app;
    say(this.time, clock(engine.shown));
    if (!this.dragging) {
      this.slider.value = String(Math.round((1000 * engine.shown) / Math.max(1, engine.end)));
    }
    say(this.end, clock(engine.end));
  }

  private listen(): void {
    const { engine } = this.app;
    const there = () => Math.round((Number(this.slider.value) / 1000) * engine.end);
    this.slider.addEventListener('input', () => {
      this.dragging = true;
      this.slider.setAttribute('aria-valuetext', clock(there()));
    });
    this.slider.addEventListener('change', () => {
      this.dragging = false;
      engine.pause();
      engine.seek(there());
    });
  }

  private state(): void {
    const { engine } = this.app;
    const name = engine.playing ? 'Pause' : 'Play';
    if (name !== this.shownAs) {
      this.shownAs = name;
      icon(this.playButton, engine.playing ? ICONS.pause : ICONS.play, name);
    }
    this.speeds.value = String(engine.speed);
  }

  private clicks(): HTMLElement {
    const kinds: [ClickMeans, string][] = [
      ['burst', 'sends a burst'],
      ['look', 'only selects'],
      ['kill', 'kills or starts'],
    ];
    const set = h('fieldset', { class: 'choices' }, h('legend', {}, 'A click'));
    for (const [kind, text] of kinds) {
      const choice = h('input', {
        type: 'radio',
        name: 'click',
        value: kind,
        checked: kind === this.app.click,
        onchange: () => (this.app.click = kind),
      });
      set.append(h('label', {}, choice, text));
    }
    return set;
  }

  private burst(): HTMLElement {
    const input = h('input', {
      type: 'number',
      min: 1,
      max: 100000,
      value: this.app.hits,
      id: 'hits',
      onchange: () => this.setHits(Number(input.value)),
    });
    return h(
      'span',
      { class: 'row' },
      h('label', { for: 'hits', class: 'label' }, 'Requests in a burst'),
      input,
    );
  }

  /** Requests in a burst; what is out of range is put right where it stands. */
  private setHits(hits: number): void {
    this.app.hits = Math.max(1, Math.min(100_000, Math.round(hits) || 1));
    const input = document.getElementById('hits') as HTMLInputElement | null;
    if (input) input.value = String(this.app.hits);
  }

  /** A burst that shows something under this limit: a third of it. */
  suggest(limit: number): void {
    this.setHits(Math.max(1, Math.min(2000, Math.round(limit / 3))));
  }
}
