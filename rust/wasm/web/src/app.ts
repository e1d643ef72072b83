// I own: what the parts of the page share: the run, the selection, and what a click means.

import type { Command, Info, Run, RuleInfo } from './bridge';
import { M } from './columns';
import type { Engine } from './engine';
import type { Group, Tick } from './protocol';
import type { Stage } from './scene/stage';

/** What a click on a member does. */
export type ClickMeans = 'burst' | 'look' | 'kill';

export class App {
  /** The run as it was opened: what "start again" and the editors begin with. */
  base: Run | null = null;
  /** The preset it came from, untouched. */
  preset = '';
  selected = 0;
  /** Which of the groups the selected member was selected in. */
  group = 0;
  click: ClickMeans = 'burst';
  hits = 30;
  last: Tick | null = null;
  private readonly listeners: (() => void)[] = [];

  constructor(
    readonly engine: Engine,
    readonly stage: Stage,
  ) {}

  get info(): Info | null {
    return this.engine.info;
  }

  get groups(): Group[] {
    return groupsOf(this.info);
  }

  /** The rule that is looked at. */
  get rule(): RuleInfo | undefined {
    return this.info?.rules[this.groups[this.group]?.rule ?? 0];
  }

  /** A number of a member under the rule that is looked at, by column. */
  value(member: number, column: number, group = this.group): number {
    return this.last?.members[group]?.[member * M.stride + column] ?? 0;
  }

  /** A number of a group, by column. */
  cluster(group: number, column: number, stride: number): number {
    return this.last?.clusters[group * stride + column] ?? 0;
  }

  select(member: number, group = this.group): void {
    const count = this.info?.members ?? 1;
    this.selected = ((member % count) + count) % count;
    this.group = Math.min(group, Math.max(0, this.groups.length - 1));
    this.stage.select(this.selected, this.group);
    for (const listener of this.listeners) listener();
  }

  onSelect(listener: () => void): void {
    this.listeners.push(listener);
  }

  burst(member: number, hits = this.hits): void {
    const rule = this.groups[this.group]?.rule ?? 0;
    const key = this.info?.focus.key ?? 0;
    this.command({ burst: { member, hits, rule, key } });
  }

  /** Something that needs time to show: goes on if it was paused. */
  command(command: Command): void {
    this.engine.command(command);
    this.engine.play();
  }
}

/** The rules of a run that are shown side by side; the focused one where it names none. */
export function groupsOf(info: Info | null): Group[] {
  if (!info) return [];
  return info.groups.length > 0 ? info.groups : [{ title: '', rule: info.focus.rule }];
}

/** How people number members: from 1. */
export function named(member: number): string {
  return `member ${member + 1}`;
}
