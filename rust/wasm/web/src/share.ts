// I own: a run as a link and as a file, and a run from one.

import type { App } from './app';
import type { Run } from './bridge';
import { button, h, say } from './dom';
import { asRun, MOST, read, write } from './permalink';

/** Opens a run: its JSON, the run if this page wrote it, and where to look. */
export type Open = (json: string, run: Run | null, preset: string, at: number) => void;

/** Files above this are refused, bytes. */
const MOST_BYTES = 8_000_000;

export class Share {
  private readonly said = h('span', { class: 'hint', role: 'status' });
  private wrote = '';

  constructor(
    root: HTMLElement,
    private readonly app: App,
    private readonly open: Open,
    private readonly first: () => void,
  ) {
    const link = button(
      'Copy link',
      'This run with its seed, settings and all that was done',
      () => void this.copy(),
    );
    link.id = 'share';
    const save = button(
      'Export',
      'A scenario for ./tools/sim --replay FILE',
      () => void this.save(),
    );
    save.id = 'export';
    const file = h('input', { type: 'file', accept: '.json,application/json', id: 'import' });
    file.className = 'hidden';
    file.tabIndex = -1;
    file.setAttribute('aria-label', 'Scenario file');
    const pick = button('Import', 'A scenario or run that was exported', () => file.click());
    file.addEventListener('change', () => {
      const chosen = file.files?.[0];
      if (chosen) void this.load(chosen);
      file.value = '';
    });
    root.append(this.said, link, save, pick, file);
    addEventListener('hashchange', () => {
      if (location.hash !== this.wrote) void this.fromHash();
    });
  }

  /** Opens what the address says, or the first scene. */
  async fromHash(): Promise<void> {
    try {
      const link = await read(location.hash);
      if (!link) return this.first();
      if (link.run) {
        this.open(link.run, asRun(link.run), '', link.at);
        return;
      }
      const json = await this.app.engine.ask({ what: 'preset', name: link.preset ?? '' });
      const run = JSON.parse(json) as Run;
      const seeded = link.seed !== undefined && link.seed !== run.scenario.seed;
      if (link.seed !== undefined) run.scenario.seed = link.seed;
      this.open(seeded ? JSON.stringify(run) : json, run, link.preset ?? '', link.at);
    } catch (error) {
      this.tell(`The link is damaged: ${error instanceof Error ? error.message : ''}`);
      this.first();
    }
  }

  /** Writes the run into the address. */
  async toHash(): Promise<string> {
    const { app } = this;
    const at = app.engine.reached;
    let hash: string;
    if (app.preset && !app.engine.touched) {
      const seed = app.base?.scenario.seed ?? 0;
      hash = await write({ preset: app.preset, seed, at });
    } else {
      const run = JSON.parse(await app.engine.ask({ what: 'run' })) as Run;
      run.end_ns = Math.max(app.engine.end, run.end_ns);
      hash = await write({ run: JSON.stringify(run), at });
      if (hash.length > MOST) {
        this.tell('This run is too long for a link: export it as a file.');
        return location.href;
      }
    }
    this.wrote = hash;
    history.replaceState(null, '', hash);
    return location.href;
  }

  tell(text: string): void {
    say(this.said, text);
    setTimeout(() => say(this.said, ''), 6000);
  }

  private async copy(): Promise<void> {
    const link = await this.toHash();
    try {
      await navigator.clipboard.writeText(link);
      this.tell('Copied.');
    } catch {
      this.tell('The link is in the address bar.');
    }
  }

  private async save(): Promise<void> {
    const json = await this.app.engine.ask({ what: 'scenario' });
    const url = URL.createObjectURL(new Blob([json], { type: 'application/json' }));
    const name = `gabion-${this.app.preset || 'run'}-${this.app.info?.seed ?? 0}.json`;
    h('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    this.tell(`Replay it with ./tools/sim --replay ${name}`);
  }

  private async load(file: File): Promise<void> {
    if (file.size > MOST_BYTES) {
      this.tell('This file is too large for a scenario.');
      return;
    }
    try {
      const text = await file.text();
      this.open(text, asRun(text), '', 0);
    } catch (error) {
      this.tell(`Not a scenario: ${error instanceof Error ? error.message : 'no JSON'}`);
    }
  }
}
