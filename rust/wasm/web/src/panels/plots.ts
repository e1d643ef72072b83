// I own: the four plots. Each is drawn when it is in sight and something is new, one in a picture,
// so that none of them costs a frame of the stage.

import uPlot from 'uplot';
import type { App } from '../app';
import { C } from '../columns';
import { h, say } from '../dom';
import { bytes, count, duration } from '../format';
import { History, LINES_TO, rates } from '../history';
import { type Colours, colours, onTheme } from '../theme';

type Column = (number | null)[];

/** One line of a plot. */
interface Line {
  label: string;
  colour: keyof Colours;
  values: Column;
  dash?: number[];
  width?: number;
  fill?: boolean;
  /** Not in the key: one of many alike. */
  quiet?: boolean;
}

interface Kind {
  id: string;
  title: string;
  hint: string;
  lines(history: History, app: App): Line[];
  now(app: App, history: History): string;
  value(value: number): string;
}

const DASHES = [[], [7, 4], [2, 3]];

function perGroup(app: App, columns: number[][], colour: Line['colour'], label: string): Line[] {
  const many = app.groups.length > 1;
  return columns.map((values, i) => ({
    label: many ? (app.groups[i]?.title ?? '') : label,
    colour: many ? 'series' : colour,
    values,
    dash: many ? (DASHES[i % 3] ?? []) : [],
    width: 2,
  }));
}

function views(history: History, app: App): Line[] {
  const lines: Line[] = [];
  if (app.groups.length <= 1) {
    const many = (app.info?.members ?? 1) > LINES_TO;
    history.used.forEach((values, i) => {
      const label = many ? (i === 0 ? 'who knows least' : 'who knows most') : 'members';
      lines.push({
        label,
        colour: many ? 'news' : 'admit',
        values,
        width: 1.25,
        quiet: !many && i > 0,
      });
    });
  }
  lines.push(
    ...perGroup(app, history.truth, 'truth', 'the truth').map((line) => ({
      ...line,
      dash: app.groups.length > 1 ? (line.dash ?? []) : [6, 4],
    })),
  );
  const limit = app.cluster(0, C.limit, C.stride);
  // Far below its limit a counter would be a flat line under an empty plot.
  if (Math.max(...history.truth.map(last)) >= limit / 4)
    lines.push({
      label: 'the limit',
      colour: 'deny',
      values: history.at.map(() => limit),
      dash: [2, 4],
      width: 1.5,
    });
  return lines;
}

function bytesLines(history: History): Line[] {
  return [
    { label: 'mean', colour: 'news', values: rates(history.at, history.mean), width: 2 },
    { label: 'busiest', colour: 'soft', values: rates(history.at, history.most), dash: [3, 3] },
  ];
}

function each(app: App, column: number): string {
  return app.groups
    .map((group, i) => {
      const title = group.title ? `${group.title} ` : '';
      return title + count(app.cluster(i, column, C.stride));
    })
    .join(', ');
}

function last(column: Column): number {
  return column[column.length - 1] ?? 0;
}

const KINDS: Kind[] = [
  {
    id: 'views',
    title: 'What each member sees',
    hint: 'Where lines meet, all know the same.',
    lines: views,
    now: (app) => `Truth ${each(app, C.truth)}; most that somebody lacks: ${each(app, C.unknown)}.`,
    value: count,
  },
  {
    id: 'apart',
    title: 'Disagreement',
    hint: 'Hits between who knows most and who knows least.',
    lines: (history, app) =>
      perGroup(app, history.apart, 'news', 'disagreement').map((line) => ({ ...line, fill: true })),
    now: (app) => `Now ${each(app, C.apart)}.`,
    value: count,
  },
  {
    id: 'over',
    title: 'Beyond the limit',
    hint: 'What was admitted too much, and what was said to be possible.',
    lines: (history, app) => [
      ...perGroup(app, history.over, 'deny', 'admitted too much').map((line) => ({
        ...line,
        fill: true,
      })),
      ...(app.groups.length > 1 ? [] : history.bound).map((values): Line => ({
        label: 'stated as possible',
        colour: 'other',
        values,
        dash: [6, 4],
      })),
    ],
    now: (app) => `Now ${each(app, C.over)}, stated as possible ${each(app, C.bound)}.`,
    value: count,
  },
  {
    id: 'bytes',
    title: 'Bytes a member sends in a second',
    hint: 'Gossip costs what changes.',
    lines: bytesLines,
    now: (_, history) => `Now ${bytes(last(rates(history.at, history.mean)))} a second.`,
    value: (value) => bytes(value),
  },
];

/** One plot and its words. */
class Plot {
  private chart: uPlot | null = null;
  private shape = '';
  private drawn = -1;
  private seen = false;
  private readonly canvas = h('div', { class: 'canvas', 'aria-hidden': 'true' });
  private readonly now = h('p', { class: 'now' });
  private readonly key = h('ul', { class: 'key' });

  constructor(
    root: HTMLElement,
    private readonly kind: Kind,
    private readonly app: App,
  ) {
    root.append(
      h(
        'figure',
        { class: 'plot', id: `plot-${kind.id}` },
        h(
          'figcaption',
          {},
          h('h3', {}, kind.title),
          h('p', { class: 'hint' }, kind.hint),
          this.now,
        ),
        this.canvas,
        this.key,
      ),
    );
    new IntersectionObserver((all) => {
      this.seen = all.some((one) => one.isIntersecting);
    }).observe(this.canvas);
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    onTheme(() => this.reset());
  }

  /** Draws what is new; false when there was nothing to do. */
  draw(): boolean {
    const { history } = this.app.engine;
    const mark = history.version;
    if (!this.seen || this.drawn === mark || history.at.length < 2) return false;
    this.drawn = mark;
    const lines = this.kind.lines(history, this.app);
    const shape = lines.map((line) => line.label + line.colour).join();
    if (!this.chart || shape !== this.shape) {
      this.shape = shape;
      this.build(lines);
    }
    const x = history.at.map((at) => at / 1e9);
    this.chart?.setData([x, ...lines.map((line) => line.values)] as uPlot.AlignedData);
    say(this.now, this.kind.now(this.app, history));
    return true;
  }

  reset(): void {
    this.chart?.destroy();
    this.chart = null;
    this.drawn = -1;
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.chart && width > 0) this.chart.setSize({ width, height });
  }

  private build(lines: Line[]): void {
    this.chart?.destroy();
    const palette = colours();
    const hue = (line: Line, i: number): string =>
      line.colour === 'series' ? (palette.series[i % 3] ?? palette.ink) : palette[line.colour];
    const axis: uPlot.Axis = {
      stroke: palette.soft,
      grid: { stroke: palette.line, width: 1 },
      ticks: { stroke: palette.line, width: 1, size: 4 },
      font: `${Math.round(rem() * 0.78)}px ${FONT}`,
    };
    const series = lines.map((line, i): uPlot.Series => ({
      label: line.label,
      stroke: hue(line, i),
      width: line.width ?? 1.5,
      dash: line.dash ?? [],
      points: { show: false },
      ...(line.fill ? { fill: `${hue(line, i)}22` } : {}),
    }));
    this.chart = new uPlot(
      {
        width: Math.max(50, this.canvas.clientWidth),
        height: Math.max(50, this.canvas.clientHeight),
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false },
          y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] },
        },
        series: [{}, ...series],
        axes: [
          {
            ...axis,
            values: (_, all) => all.map((at) => duration(at * 1e9)),
            space: 62,
            size: rem() * 1.9,
          },
          {
            ...axis,
            size: rem() * 3.7,
            values: (_, all) => all.map((one) => this.kind.value(one)),
          },
        ],
        hooks: { draw: [(chart) => this.cursor(chart, palette)] },
      },
      [[0], ...lines.map(() => [null])] as uPlot.AlignedData,
      this.canvas,
    );
    this.legend(lines, hue);
  }

  private legend(lines: Line[], hue: (line: Line, i: number) => string): void {
    this.key.replaceChildren();
    lines.forEach((line, i) => {
      if (line.quiet) return;
      const swatch = h('span', {
        class: (line.dash ?? []).length > 0 ? 'swatch dashed' : 'swatch',
      });
      swatch.style.setProperty('border-color', hue(line, i));
      this.key.append(h('li', {}, swatch, line.label));
    });
  }

  /** Where the stage stands in time: after a step back, the rest is still to come. */
  private cursor(chart: uPlot, palette: Colours): void {
    const { engine } = this.app;
    if (engine.history.last - engine.shown < engine.history.every * 2) return;
    const x = chart.valToPos(engine.shown / 1e9, 'x', true);
    chart.ctx.save();
    chart.ctx.strokeStyle = palette.pick;
    chart.ctx.lineWidth = 2;
    chart.ctx.beginPath();
    chart.ctx.moveTo(x, chart.bbox.top);
    chart.ctx.lineTo(x, chart.bbox.top + chart.bbox.height);
    chart.ctx.stroke();
    chart.ctx.restore();
  }
}

/** The page's type size, pixels. */
function rem(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

export class Plots {
  private readonly plots: Plot[];
  private next = 0;

  constructor(root: HTMLElement, app: App) {
    this.plots = KINDS.map((kind) => new Plot(root, kind, app));
    app.engine.listen({ opened: () => this.plots.forEach((plot) => plot.reset()) });
  }

  /** Draws one plot at most. */
  draw(): void {
    for (let i = 0; i < this.plots.length; i += 1) {
      const plot = this.plots[this.next];
      this.next = (this.next + 1) % this.plots.length;
      if (plot?.draw()) return;
    }
  }
}
