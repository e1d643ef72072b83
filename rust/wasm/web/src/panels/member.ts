// I own: everything about the selected member, and what can be done to it.

import { type App, named } from '../app';
import type { LinkInfo } from '../bridge';
import { M, State } from '../columns';
import { button, field, h, say, select } from '../dom';
import { bytes, count, duration, plural } from '../format';

/** What is shown of a member: name, how it reads, what it means. */
type Row = [name: string, id: string, read: (app: App, member: number) => string];

const STATES = ['up', 'down', 'slow: its driver stands still', 'not there'];

const ROWS: Row[] = [
  ['State', 'state', (app, m) => STATES[app.value(m, M.state)] ?? ''],
  ['Sees', 'used', (app, m) => count(app.value(m, M.used))],
  ['Admitted itself', 'own', (app, m) => count(app.value(m, M.own))],
  ['Really', 'truth', (app, m) => count(app.value(m, M.truth))],
  ['Left, it says', 'remaining', (app, m) => count(app.value(m, M.remaining))],
  ['Requests admitted', 'admitted', (app, m) => count(app.value(m, M.admitted))],
  ['Requests denied', 'denied', (app, m) => count(app.value(m, M.denied))],
  ['May be over by', 'bound', (app, m) => count(app.value(m, M.bound))],
  ['News may be old by', 'stale', (app, m) => duration(app.value(m, M.stale))],
  ['Hears peers', 'peers', (app, m) => count(app.value(m, M.peersUp))],
  ['Does not reach', 'unreachable', (app, m) => count(app.value(m, M.unreachable))],
  ['Clock is wrong by', 'clock', (app, m) => duration(app.value(m, M.clockError))],
  ['Corrects its clock by', 'offset', (app, m) => duration(app.value(m, M.clockOffset))],
  ['Counters it holds', 'rows', (app, m) => count(app.value(m, M.rows))],
  ['Frames sent', 'frames-sent', (app, m) => count(app.value(m, M.framesSent))],
  ['Bytes sent', 'sent', (app, m) => bytes(app.value(m, M.bytesSent))],
  ['Frames heard', 'frames-heard', (app, m) => count(app.value(m, M.framesHeard))],
  ['Bytes heard', 'heard', (app, m) => bytes(app.value(m, M.bytesHeard))],
];

export class MemberPanel {
  private readonly title = h('span', { id: 'member-title' });
  private readonly list = h('select', { id: 'member-list' });
  private readonly values = new Map<string, HTMLElement>();
  private readonly rule = h('dd', { class: 'whole' });
  private readonly budget = h('dd', {});
  private readonly life: HTMLButtonElement;
  private readonly body = h('tbody', {});

  constructor(
    root: HTMLElement,
    private readonly app: App,
  ) {
    const list = h('dl', {}, this.rule);
    for (const [name, id] of ROWS) {
      const value = h('dd', { id: `member-${id}` });
      this.values.set(id, value);
      list.append(h('dt', {}, name), value);
    }
    list.append(h('dt', {}, 'May hold back'), this.budget);
    this.life = button('Kill', 'Ends its process: its memory is lost', () => this.kill());
    this.life.id = 'kill';
    this.life.className = 'warn';
    root.append(
      h('h3', {}, this.title),
      field('Which member', 'Or click one on the stage.', this.list),
      this.deeds(),
      this.skew(),
      h('hr', {}),
      list,
      h('hr', {}),
      this.links(),
    );
    this.list.addEventListener('change', () => app.select(Number(this.list.value)));
    app.onSelect(() => this.selected());
    app.engine.listen({ opened: () => this.opened(), links: (all) => this.drawLinks(all.links) });
  }

  /** Some times a second, while it is open. */
  draw(): void {
    const { app } = this;
    for (const [, id, read] of ROWS) {
      const value = this.values.get(id);
      if (value) say(value, read(app, app.selected));
    }
    const { rule } = app;
    const hold = rule ? (rule.error_budget_ppm / 1e6) * rule.limit : 0;
    const members = Math.max(1, app.info?.members ?? 1);
    const percent = (rule?.error_budget_ppm ?? 0) / 10_000;
    say(this.budget, `${plural(Math.max(1, Math.floor(hold / members)), 'hit')} (${percent} %)`);
    say(this.rule, rule ? rule.describe : '');
    say(this.life, this.down() ? 'Start' : 'Kill');
    app.engine.askLinks(app.selected);
  }

  kill(member = this.app.selected): void {
    this.app.command(this.down(member) ? { start: { member } } : { kill: { member } });
  }

  /** Cuts a member off from all others. */
  isolate(member = this.app.selected): void {
    if (member < 64) this.app.command({ fault: { partition: { side: [member] } } });
    else this.app.command({ fault: { apart: { one: member, other: 0 } } });
  }

  private down(member = this.app.selected): boolean {
    const state = this.app.value(member, M.state);
    return state === State.down || state === State.away;
  }

  private deeds(): HTMLElement {
    const burst = button(
      'Send a burst',
      'As many requests as stand below the stage',
      () => this.app.burst(this.app.selected),
      'strong',
    );
    burst.id = 'burst';
    const off = button('Cut off', 'No frame reaches it or leaves it', () => this.isolate());
    off.id = 'isolate';
    return h('div', { class: 'row' }, burst, off, this.life);
  }

  private skew(): HTMLElement {
    const steps: [string, string][] = [
      ['0', 'choose'],
      ['200', '0.2 s forward'],
      ['-200', '0.2 s back'],
      ['10000', '10 s forward'],
      ['-10000', '10 s back'],
    ];
    const list = select(steps, '0', (value) => {
      const by_ns = Number(value) * 1e6;
      list.value = '0';
      if (by_ns === 0) return;
      this.app.command({ fault: { clock_step: { member: this.app.selected, by_ns } } });
    });
    list.id = 'skew';
    return field(
      'Set its clock wrong',
      'Members agree on a cluster time; wrong clocks are found.',
      list,
    );
  }

  private links(): HTMLElement {
    const head = h('tr', {});
    for (const name of ['Peer', 'State', 'Round trip', 'Silent', 'Untold']) {
      head.append(h('th', { scope: 'col' }, name));
    }
    return h(
      'div',
      { class: 'links', tabindex: 0, role: 'region', 'aria-label': 'Its links' },
      h('table', {}, h('thead', {}, head), this.body),
    );
  }

  private drawLinks(links: LinkInfo[]): void {
    while (this.body.children.length > links.length) this.body.lastElementChild?.remove();
    links.forEach((link, i) => {
      let row = this.body.children[i];
      if (!row) {
        row = h('tr', {}, h('th', { scope: 'row' }), h('td'), h('td'), h('td'), h('td'));
        this.body.append(row);
      }
      const state = !link.up ? 'down' : link.hears_us ? 'up' : 'deaf';
      const cells = [
        String(link.to + 1),
        state,
        duration(link.rtt_ns),
        duration(link.silent_ns),
        count(link.backlog + link.in_flight),
      ];
      cells.forEach((text, cell) => row.children[cell] && say(row.children[cell], text));
    });
  }

  private opened(): void {
    const count = this.app.info?.members ?? 1;
    this.list.replaceChildren();
    for (let i = 0; i < count; i += 1) {
      this.list.append(h('option', { value: i }, String(i + 1)));
    }
    this.app.select(Math.min(this.app.selected, count - 1));
  }

  private selected(): void {
    const title = this.app.groups[this.app.group]?.title ?? '';
    say(this.title, `Member ${this.app.selected + 1}${title ? `, rule ${title}` : ''}`);
    this.list.value = String(this.app.selected);
    this.list.title = named(this.app.selected);
    this.draw();
  }
}
