// I own: the list of scenes.

import type { PresetInfo } from '../bridge';
import { h } from '../dom';

export class Presets {
  private readonly buttons = new Map<string, HTMLButtonElement>();

  constructor(
    private readonly root: HTMLElement,
    list: PresetInfo[],
    choose: (id: string) => void,
  ) {
    for (const preset of list) {
      const choice = h(
        'button',
        { type: 'button', onclick: () => choose(preset.id) },
        preset.title,
      );
      choice.title = preset.tells;
      choice.dataset.preset = preset.id;
      this.buttons.set(preset.id, choice);
      root.append(h('li', {}, choice));
    }
  }

  /** Marks the scene that runs; none when it is somebody's own. */
  mark(id: string): void {
    for (const [name, choice] of this.buttons) {
      choice.setAttribute('aria-current', String(name === id));
      // Sideways only, where scenes stand in one line: the page itself stays where it is.
      if (name === id) this.root.scrollLeft = choice.offsetLeft - this.root.offsetLeft - 40;
    }
  }
}
