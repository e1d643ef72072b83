// I own: the tabs beside the stage. Arrow keys move between them, as the pattern for tabs has it.

import { h } from '../dom';

export class Tabs {
  private readonly buttons: HTMLButtonElement[] = [];
  private readonly panels: HTMLElement[] = [];
  /** The one that is open. */
  open = 0;

  constructor(
    private readonly bar: HTMLElement,
    private readonly root: HTMLElement,
  ) {}

  /** Adds a tab; its panel is filled by the caller. */
  add(name: string, id: string): HTMLElement {
    const index = this.buttons.length;
    const tab = h(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: `tab-${id}`,
        'aria-controls': `panel-${id}`,
        onclick: () => this.show(index),
      },
      name,
    );
    tab.addEventListener('keydown', (event) => this.key(event));
    const panel = h('div', {
      class: 'panel',
      role: 'tabpanel',
      id: `panel-${id}`,
      'aria-labelledby': `tab-${id}`,
    });
    this.buttons.push(tab);
    this.panels.push(panel);
    this.bar.append(tab);
    this.root.append(panel);
    this.show(0);
    return panel;
  }

  show(index: number): void {
    this.open = index;
    this.buttons.forEach((tab, i) => {
      tab.setAttribute('aria-selected', String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
    });
    this.panels.forEach((panel, i) => (panel.hidden = i !== index));
  }

  private key(event: KeyboardEvent): void {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const count = this.buttons.length;
    this.show((this.open + step + count) % count);
    this.buttons[this.open]?.focus();
  }
}
