// I own: the two canvases of the stage and when they are drawn. The one behind holds links and is
// drawn when they change; the one in front holds frames and members and is drawn while they move.

import { C } from '../columns';
import type { Tick } from '../protocol';
import { calm, type Colours, colours } from '../theme';
import { Flights, SEEN_MS } from './flights';
import { drawLinks, FrameArtist } from './frames';
import { layout, type Layout, type Place, type Spot } from './layout';
import { Cuts } from './links';
import { drawMembers, type Look, Vessels } from './members';

/** A stroke that is being drawn over the stage. */
export interface Stroke {
  from: Spot;
  to: Spot;
  member: number;
}

/** Above this many device pixels a stage is drawn at a lower resolution: 4K in full. */
const MOST_PIXELS = 8_300_000;

export class Stage {
  readonly flights = new Flights();
  held: Layout = layout(1, 1, 300, 200);
  cuts = new Cuts(1);
  selected = 0;
  /** The ring in which members are selected. */
  ring = 0;
  hovered: Place | null = null;
  stroke: Stroke | null = null;
  private vessels: Vessels[] = [];
  private titles: string[] = [];
  private artist = new FrameArtist();
  private members: Float64Array[] = [];
  private limits: number[] = [];
  private count = 1;
  private scale = 1;
  private stale = true;
  private fresh = true;
  private readonly back: CanvasRenderingContext2D;
  private readonly front: CanvasRenderingContext2D;

  constructor(
    private readonly box: HTMLElement,
    private readonly backCanvas: HTMLCanvasElement,
    private readonly frontCanvas: HTMLCanvasElement,
  ) {
    const back = backCanvas.getContext('2d');
    const front = frontCanvas.getContext('2d');
    if (!back || !front) throw new Error('this browser draws no canvas');
    this.back = back;
    this.front = front;
    new ResizeObserver(() => this.resize()).observe(box);
  }

  /** Another run: so many members, a ring for each of these titles. */
  open(members: number, titles: string[]): void {
    this.count = members;
    this.titles = titles;
    this.cuts = new Cuts(members);
    this.vessels = titles.map(() => new Vessels(members));
    this.members = [];
    this.ring = 0;
    this.flights.clear();
    this.selected = Math.min(this.selected, members - 1);
    this.resize();
  }

  /** Takes up what a tick brought; `speed` is virtual seconds in one real second. */
  take(tick: Tick, speed: number, real: number): void {
    const jumped = this.members.length === 0 || tick.busy;
    this.members = tick.members;
    this.limits = this.titles.map((_, i) => tick.clusters[i * C.stride + C.limit] ?? 1);
    if (this.cuts.set(tick.cuts)) this.stale = true;
    if (tick.busy) {
      this.flights.clear();
    } else {
      this.flights.add(tick.flights, SEEN_MS * 1e6 * speed);
      tick.pulses.forEach((counts, i) => this.vessels[i]?.pulse(counts, real));
    }
    if (jumped) this.settle(1);
  }

  /** The links have to be drawn again: another theme or selection. */
  refresh(): void {
    this.stale = true;
    this.fresh = true;
  }

  select(member: number, ring: number): void {
    this.selected = member;
    this.ring = ring;
    this.stale = true;
  }

  /** Draws one picture for virtual time `now`. */
  draw(now: number, real: number): void {
    const palette = colours();
    if (this.stale) {
      this.back.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      drawLinks(this.back, this.held, this.cuts, this.selected, palette);
      this.stale = false;
    }
    this.settle(calm() || this.fresh ? 1 : 0.3);
    this.fresh = false;
    const pen = this.front;
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.held.width, this.held.height);
    if (this.members.length === 0) return;
    if (!calm()) this.artist.draw(pen, this.held, this.flights, now, palette);
    this.held.rings.forEach((ring, i) => {
      const vessels = this.vessels[i];
      const members = this.members[i];
      if (!vessels || !members) return;
      const look: Look = {
        members,
        limit: this.limits[i] ?? 1,
        selected: this.ring === i ? this.selected : -1,
        hovered: this.hovered?.ring === i ? this.hovered.member : -1,
        held: this.stroke?.member ?? -1,
        real,
      };
      drawMembers(pen, this.held, ring, vessels, look, palette);
      this.drawTitle(pen, i, palette);
    });
    this.drawStroke(pen, palette.cut);
  }

  private settle(share: number): void {
    this.vessels.forEach((vessels, i) => {
      const members = this.members[i];
      if (members) vessels.settle(members, this.limits[i] ?? 1, share);
    });
  }

  /** What a ring is, in its middle, where there is more than one. */
  private drawTitle(pen: CanvasRenderingContext2D, i: number, palette: Colours): void {
    const ring = this.held.rings[i];
    const title = this.titles[i];
    if (!ring || !title) return;
    pen.font = '600 17px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    const width = pen.measureText(title).width + 24;
    pen.fillStyle = palette.raised;
    pen.strokeStyle = palette.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(ring.cx - width / 2, ring.cy - 16, width, 32, 16);
    pen.fill();
    pen.stroke();
    pen.fillStyle = palette.ink;
    pen.fillText(title, ring.cx, ring.cy + 1);
  }

  private drawStroke(pen: CanvasRenderingContext2D, colour: string): void {
    const stroke = this.stroke;
    if (!stroke) return;
    pen.strokeStyle = colour;
    pen.lineWidth = 2.5;
    pen.setLineDash([8, 5]);
    pen.beginPath();
    pen.moveTo(stroke.from.x, stroke.from.y);
    pen.lineTo(stroke.to.x, stroke.to.y);
    pen.stroke();
    pen.setLineDash([]);
  }

  private resize(): void {
    const width = Math.max(1, this.box.clientWidth);
    const height = Math.max(1, this.box.clientHeight);
    const ratio = Math.min(devicePixelRatio || 1, 3);
    this.scale = Math.min(ratio, Math.sqrt(MOST_PIXELS / (width * height)));
    for (const canvas of [this.backCanvas, this.frontCanvas]) {
      canvas.width = Math.round(width * this.scale);
      canvas.height = Math.round(height * this.scale);
    }
    this.held = layout(this.count, Math.max(1, this.titles.length), width, height);
    this.stale = true;
  }
}
