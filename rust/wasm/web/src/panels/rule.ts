// I own: the rule editor and the size of the cluster. Every text goes through the real parser; what
// it objects to stands beside the field.

import type { App } from '../app';
import type { Run, RuleCheck, RuleFault, RuleInfo } from '../bridge';
import { button, field, h, say } from '../dom';
import { count, duration } from '../format';
import { type Key, KEYS, putTogether, takeApart, type Words } from '../rules';

const HINTS: Record<Key, [label: string, hint: string]> = {
  rate: ['Rate', 'How many in which time: 100/s, 600/m, 1000/h.'],
  window: ['Window', 'The time it is enforced over: 10s, 1m. Empty: the unit of the rate.'],
  bucket: ['Bucket', 'The grain inside a sliding window: 1s. Empty: a fixed window.'],
  burst: ['Burst', 'Depth of a token bucket: so many at once. Instead of a window.'],
  error_budget: ['Error budget', 'What may stay untold, as a share of what is left: 1%.'],
  pace: [
    'Pace',
    'fast: never denies while there is room. paced: shares out near the limit. ' +
      'strict: each member has its own part.',
  ],
};

/** Typing pauses for so long before a text is read, milliseconds. */
const PAUSE_MS = 200;

export class RulePanel {
  private lines: string[] = [''];
  private line = 0;
  private readonly which = h('select', { id: 'rule-which' });
  private readonly inputs = new Map<Key, HTMLInputElement | HTMLSelectElement>();
  private readonly faults = new Map<Key | 'members' | 'text', HTMLElement>();
  private readonly members = h('input', { type: 'number', min: 2, max: 256, id: 'members' });
  private readonly seed = h('input', { type: 'number', min: 0, step: 1, id: 'seed' });
  private readonly text = h('textarea', { rows: 3, spellcheck: 'false', id: 'rule-text' });
  private readonly meaning = h('p', { class: 'hint', id: 'rule-meaning', 'aria-live': 'polite' });
  private readonly apply: HTMLButtonElement;
  private readonly whichField: HTMLElement;
  private timer = 0;

  constructor(
    root: HTMLElement,
    private readonly app: App,
    private readonly start: (run: Run) => void,
  ) {
    this.apply = button(
      'Start again with this',
      'A new run from time 0',
      () => void this.use(),
      'strong',
    );
    this.apply.id = 'rule-apply';
    this.whichField = field('Which rule', 'This scene has several, side by side.', this.which);
    const fields = KEYS.map((key) => this.field(key));
    const more = h(
      'details',
      {},
      h('summary', {}, 'As text'),
      this.withFault(
        'text',
        field('Rules, one a line', 'NAME key=value ..., as the simulator reads it.', this.text),
      ),
    );
    root.append(
      h('h3', {}, 'The rule'),
      this.whichField,
      h('div', { class: 'pair' }, ...fields.slice(0, 4)),
      ...fields.slice(4),
      this.meaning,
      more,
      h('hr', {}),
      h('h3', {}, 'The cluster'),
      h(
        'div',
        { class: 'pair' },
        this.withFault('members', field('Members', '2 to 256.', this.members)),
        field('Seed', 'Chooses everything random.', this.seed),
      ),
      h('div', { class: 'row' }, this.apply),
    );
    this.which.addEventListener('change', () => this.choose(Number(this.which.value)));
    this.text.addEventListener('input', () => this.typedText());
    this.members.addEventListener('input', () => this.later());
    app.engine.listen({ opened: () => this.opened(), refused: (message) => this.refused(message) });
  }

  private field(key: Key): HTMLElement {
    const [label, hint] = HINTS[key];
    let control: HTMLInputElement | HTMLSelectElement;
    if (key === 'pace') {
      control = h('select', {});
      for (const pace of ['fast', 'paced', 'strict']) control.append(h('option', {}, pace));
    } else {
      control = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
    }
    control.id = `rule-${key}`;
    control.addEventListener('input', () => this.typed());
    this.inputs.set(key, control);
    return this.withFault(key, field(label, hint, control));
  }

  private withFault(key: Key | 'members' | 'text', box: HTMLElement): HTMLElement {
    const fault = h('p', { class: 'fault', id: `fault-${key}`, role: 'alert' });
    this.faults.set(key, fault);
    box.append(fault);
    return box;
  }

  private opened(): void {
    const { info, base } = this.app;
    if (!info) return;
    this.lines = (info.rules_text || info.rules.map((rule) => rule.words).join('\n')).split('\n');
    this.members.value = String(info.members);
    this.seed.value = String(base?.scenario.seed ?? info.seed);
    this.which.replaceChildren(
      ...info.rules.map((rule, i) => h('option', { value: i }, rule.name)),
    );
    this.whichField.hidden = info.rules.length <= 1;
    this.choose(Math.min(this.line, this.lines.length - 1));
    void this.check();
  }

  private choose(line: number): void {
    this.line = line;
    this.which.value = String(line);
    this.showFields();
    this.text.value = this.lines.join('\n');
  }

  private showFields(): void {
    const words = takeApart(this.lines[this.line] ?? '');
    for (const [key, control] of this.inputs) {
      control.value = words.fields[key] ?? (key === 'pace' ? 'fast' : '');
    }
  }

  private typed(): void {
    const words: Words = takeApart(this.lines[this.line] ?? '');
    for (const [key, control] of this.inputs) words.fields[key] = control.value;
    if (words.fields.pace === 'fast') delete words.fields.pace;
    this.lines[this.line] = putTogether(words);
    this.text.value = this.lines.join('\n');
    this.later();
  }

  private typedText(): void {
    this.lines = this.text.value.split('\n');
    this.line = Math.min(this.line, this.lines.length - 1);
    this.showFields();
    this.later();
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.check(), PAUSE_MS);
  }

  /** Shows what the parser says; true when it understood everything. */
  private async check(): Promise<boolean> {
    const members = Number(this.members.value) || 2;
    const text = this.lines.join('\n');
    const said = await this.app.engine.ask({ what: 'rules', text, members });
    const check = JSON.parse(said) as RuleCheck;
    for (const fault of this.faults.values()) say(fault, '');
    for (const control of this.inputs.values()) control.removeAttribute('aria-invalid');
    this.text.removeAttribute('aria-invalid');

    if (check.ok) {
      const rule = check.rules[this.line];
      if (rule) say(this.meaning, meaning(rule));
    } else {
      say(this.meaning, '');
      for (const fault of check.faults) this.showFault(fault);
    }
    this.apply.disabled = !check.ok;
    return check.ok;
  }

  private showFault(fault: RuleFault): void {
    const advice = fault.suggestion ? ` ${fault.suggestion}` : '';
    const text = `${fault.message}${advice}`;
    const control = this.inputs.get(fault.key as Key);
    if (control && fault.line === this.line + 1) {
      control.setAttribute('aria-invalid', 'true');
      const beside = this.faults.get(fault.key as Key);
      if (beside) say(beside, [beside.textContent, text].filter(Boolean).join(' '));
      return;
    }
    this.text.setAttribute('aria-invalid', 'true');
    const under = this.faults.get('text');
    const place = `${fault.line}:${fault.column}: ${fault.key ? `${fault.key}: ` : ''}`;
    if (under) say(under, [under.textContent, place + text].filter(Boolean).join(' '));
    under?.closest('details')?.setAttribute('open', '');
  }

  private async use(): Promise<void> {
    const { base, info } = this.app;
    if (!base || !info || !(await this.check())) return;
    const members = Math.max(2, Math.min(256, Math.round(Number(this.members.value)) || 2));
    this.members.value = String(members);
    const scenario = { ...base.scenario, members, seed: Math.max(0, Number(this.seed.value) || 0) };
    if (members !== info.members) {
      // What a scene says of single members may name some that are no longer there.
      delete scenario.links;
      delete scenario.clocks;
      scenario.faults = (base.scenario.faults ?? []).filter((fault) => fits(fault.do, members));
      scenario.loads = (base.scenario.loads ?? []).filter((load) => fits(load.target, members));
    }
    this.start({ ...base, rules: this.lines.join('\n'), scenario });
  }

  private refused(message: string): void {
    const beside = this.faults.get('members');
    if (beside) say(beside, message);
  }
}

/** Whether something of a scene names only members that are there. */
function fits(what: unknown, members: number): boolean {
  if (typeof what !== 'object' || what === null) return true;
  return Object.entries(what).every(([name, value]) => {
    if (['member', 'one', 'other', 'from', 'to'].includes(name) && typeof value === 'number') {
      return value < members;
    }
    if (Array.isArray(value)) return value.every((member) => Number(member) < members);
    return fits(value, members);
  });
}

function meaning(rule: RuleInfo): string {
  const rest =
    `At rest members may be over by ${count(rule.bound_at_rest_hits)}; ` +
    `counted in steps of ${duration(rule.epoch_ns)}.`;
  return [rule.describe, rest, ...rule.notices].join(' ');
}
