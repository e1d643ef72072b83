// I own: what is done to all links, and the steady stream of requests.

import type { App } from '../app';
import { button, field, h, say, select } from '../dom';
import { cutInHalf } from './story';

/** One way, nanoseconds: least and most, and what it is like. */
const DELAYS: [string, string][] = [
  ['50000 300000', 'one room: 0.05 to 0.3 ms'],
  ['400000 1200000', 'one building: 0.4 to 1.2 ms'],
  ['4000000 6000000', 'one city: 4 to 6 ms'],
  ['18000000 24000000', 'one continent: about 20 ms'],
  ['60000000 90000000', 'across an ocean: about 75 ms'],
];

export class NetworkPanel {
  private readonly loss = h('input', {
    type: 'range',
    min: 0,
    max: 60,
    step: 5,
    value: 0,
    id: 'loss',
  });
  private readonly lossText = h('output', { for: 'loss' }, '0 %');
  private readonly delay: HTMLSelectElement;
  private readonly rate = h('input', { type: 'number', min: 1, max: 20000, value: 50, id: 'rate' });
  private readonly stop: HTMLButtonElement;

  constructor(
    root: HTMLElement,
    private readonly app: App,
  ) {
    const half = button('Cut in half', 'Two halves that do not reach each other', () =>
      cutInHalf(app),
    );
    half.id = 'cut-half';
    half.className = 'warn';
    const heal = button(
      'Heal',
      'All links carry again, none loses frames',
      () => this.heal(),
      'strong',
    );
    heal.id = 'heal';
    this.delay = select([['', 'as the scene has it'], ...DELAYS], '', () => this.setDelay());
    this.delay.id = 'delay';
    this.loss.addEventListener('input', () => say(this.lossText, `${this.loss.value} %`));
    this.loss.addEventListener('change', () =>
      app.command({ links: { loss_ppm: Number(this.loss.value) * 10_000 } }),
    );
    const start = button('Start', 'Requests at random times, at all members', () => this.start());
    start.id = 'load-start';
    this.stop = button('Stop', 'No more of them', () => app.command({ stop_loads: {} }));
    this.stop.id = 'load-stop';
    root.append(
      h('h3', {}, 'The network'),
      h(
        'p',
        { class: 'hint' },
        'A cut network is safe to try: each side goes on by what it knows, ' +
          'and admits a limit of its own at most.',
      ),
      h('div', { class: 'row' }, half, heal),
      this.lossField(),
      this.delayField(),
      h('hr', {}),
      h('h3', {}, 'Steady requests'),
      field(
        'Requests a second',
        'At random times, at any member, for the counter that is shown.',
        this.rate,
      ),
      h('div', { class: 'row' }, start, this.stop),
    );
    app.engine.listen({ opened: () => this.opened() });
  }

  /** Heals links and sets loss back to none. */
  heal(): void {
    this.app.command({ fault: 'heal' });
    if (this.loss.value !== '0') {
      this.app.command({ links: { loss_ppm: 0 } });
      this.showLoss(0);
    }
  }

  private lossField(): HTMLElement {
    this.loss.setAttribute('aria-describedby', 'loss-hint');
    return h(
      'div',
      { class: 'field' },
      h('label', { for: 'loss' }, 'Frames that are lost: ', this.lossText),
      this.loss,
      h(
        'p',
        { class: 'hint', id: 'loss-hint' },
        'A lost row is noticed and told again, as it is by then.',
      ),
    );
  }

  private delayField(): HTMLElement {
    return field(
      'How long frames take',
      'News cannot be faster than its links: meanwhile members decide by older numbers.',
      this.delay,
    );
  }

  private setDelay(): void {
    const [least, most] = this.delay.value.split(' ').map(Number);
    if (least === undefined || most === undefined) return;
    this.app.command({ links: { delay_min_ns: least, delay_max_ns: most } });
  }

  private start(): void {
    const per_second = Math.max(1, Math.min(20_000, Math.round(Number(this.rate.value)) || 1));
    this.rate.value = String(per_second);
    for (const group of this.app.groups)
      this.app.command({ load: { per_second, rule: group.rule } });
  }

  private opened(): void {
    this.delay.value = '';
    this.showLoss((this.app.base?.scenario.calm?.loss_ppm ?? 0) / 10_000);
  }

  private showLoss(percent: number): void {
    this.loss.value = String(percent);
    say(this.lossText, `${percent} %`);
  }
}
