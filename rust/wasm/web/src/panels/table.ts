// I own: the stage as a table, for those who do not see it or want the numbers.

import type { App } from '../app';
import { M, State } from '../columns';
import { h, say } from '../dom';
import { bytes, count, duration } from '../format';

const STATES = ['up', 'down', 'slow', 'not there'];
const HEADS = [
  'Member',
  'State',
  'Sees',
  'Admitted itself',
  'Truth',
  'Denied',
  'May be over by',
  'News old by',
  'Clock wrong by',
  'Sent',
  'Do',
];

export class MemberTable {
  private readonly body = h('tbody', {});

  constructor(
    private readonly details: HTMLDetailsElement,
    root: HTMLElement,
    private readonly app: App,
    private readonly kill: (member: number) => void,
  ) {
    const head = h('tr', {});
    for (const name of HEADS) head.append(h('th', { scope: 'col' }, name));
    root.append(
      h(
        'table',
        {},
        h('caption', { class: 'hidden' }, 'Members, as on the stage'),
        h('thead', {}, head),
        this.body,
      ),
    );
    details.addEventListener('toggle', () => this.draw());
    app.engine.listen({ opened: () => this.body.replaceChildren() });
  }

  /** Some times a second, while it is open. */
  draw(): void {
    if (!this.details.open || !this.app.info) return;
    const members = this.app.info.members;
    while (this.body.children.length < members)
      this.body.append(this.row(this.body.children.length));
    for (let i = 0; i < members; i += 1) this.fill(i);
  }

  private row(member: number): HTMLElement {
    const select = h(
      'button',
      { type: 'button', onclick: () => this.app.select(member) },
      'Select',
    );
    const burst = h('button', { type: 'button', onclick: () => this.app.burst(member) }, 'Burst');
    const kill = h('button', { type: 'button', onclick: () => this.kill(member) }, 'Kill');
    for (const [control, name] of [
      [select, 'Select'],
      [burst, 'Burst at'],
      [kill, 'Kill'],
    ] as const) {
      control.setAttribute('aria-label', `${name} member ${member + 1}`);
    }
    const row = h('tr', {}, h('th', { scope: 'row' }, String(member + 1)));
    for (let i = 1; i < HEADS.length - 1; i += 1)
      row.append(h('td', { class: i === 1 ? 'text' : '' }));
    row.append(h('td', {}, select, ' ', burst, ' ', kill));
    return row;
  }

  private fill(member: number): void {
    const { app } = this;
    const row = this.body.children[member];
    if (!row) return;
    const at = (column: number) => app.value(member, column);
    const texts = [
      STATES[at(M.state)] ?? '',
      count(at(M.used)),
      count(at(M.own)),
      count(at(M.truth)),
      count(at(M.denied)),
      count(at(M.bound)),
      duration(at(M.stale)),
      duration(at(M.clockError)),
      bytes(at(M.bytesSent)),
    ];
    texts.forEach((text, i) => row.children[i + 1] && say(row.children[i + 1] as Element, text));
    const kill = row.lastElementChild?.lastElementChild;
    const down = at(M.state) === State.down || at(M.state) === State.away;
    if (!kill) return;
    say(kill, down ? 'Start' : 'Kill');
    kill.setAttribute('aria-label', `${down ? 'Start' : 'Kill'} member ${member + 1}`);
  }
}
