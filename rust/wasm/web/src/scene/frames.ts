// I own: how links and the frames on them are drawn. News are discs, all else is small and pale;
// what is lost ends as a cross half-way.

import type { Colours } from '../theme';
import type { Flights } from './flights';
import type { Layout, Spot } from './layout';
import type { Cuts } from './links';

/** Up to so many members the links are drawn; beyond, they would be one grey disc. */
const LINKS_TO = 96;
/** Frames keep so far to the right of their link, so that both ways can be told apart, pixels. */
const LANE = 2.5;
/** A lost frame ends after this part of its way. */
const LOST_AT = 0.55;

type Pen = CanvasRenderingContext2D;

/** Draws what seldom changes: the links, and where they are cut. */
export function drawLinks(
  pen: Pen,
  held: Layout,
  cuts: Cuts,
  selected: number,
  colours: Colours,
): void {
  pen.clearRect(0, 0, held.width, held.height);
  for (const { spots } of held.rings) {
    if (held.count <= LINKS_TO) mesh(pen, spots, cuts, colours);
    severed(pen, spots, cuts, colours);
    if (held.count <= LINKS_TO) spokes(pen, spots, cuts, selected, colours);
  }
}

function line(pen: Pen, a: Spot | undefined, b: Spot | undefined): void {
  if (!a || !b) return;
  pen.moveTo(a.x, a.y);
  pen.lineTo(b.x, b.y);
}

/** Calls `see` for each pair of members. */
function pairs(spots: Spot[], see: (one: number, other: number) => void): void {
  for (let one = 0; one < spots.length; one += 1) {
    for (let other = one + 1; other < spots.length; other += 1) see(one, other);
  }
}

function mesh(pen: Pen, spots: Spot[], cuts: Cuts, colours: Colours): void {
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.globalAlpha = Math.max(0.14, Math.min(0.9, 9 / spots.length));
  pen.beginPath();
  pairs(spots, (one, other) => {
    if (cuts.between(one, other) === 0) line(pen, spots[one], spots[other]);
  });
  pen.stroke();
  pen.globalAlpha = 1;
}

function severed(pen: Pen, spots: Spot[], cuts: Cuts, colours: Colours): void {
  if (cuts.size === 0) return;
  const many = spots.length > 24;
  pen.strokeStyle = colours.cut;
  pen.lineWidth = 1;
  pen.globalAlpha = many ? 0.18 : 0.75;
  pen.setLineDash([2, 5]);
  pen.beginPath();
  const marks: Spot[] = [];
  pairs(spots, (one, other) => {
    const a = spots[one];
    const b = spots[other];
    if (!a || !b || cuts.between(one, other) === 0) return;
    line(pen, a, b);
    if (!many) marks.push({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  });
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  pen.lineWidth = 2;
  pen.beginPath();
  for (const mark of marks) cross(pen, mark.x, mark.y, 4);
  pen.stroke();
}

function spokes(pen: Pen, spots: Spot[], cuts: Cuts, selected: number, colours: Colours): void {
  pen.strokeStyle = colours.pick;
  pen.globalAlpha = 0.45;
  pen.lineWidth = 1;
  pen.beginPath();
  spots.forEach((spot, other) => {
    if (other !== selected && cuts.between(selected, other) === 0) line(pen, spots[selected], spot);
  });
  pen.stroke();
  pen.globalAlpha = 1;
}

function cross(pen: Pen, x: number, y: number, size: number): void {
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size);
  pen.lineTo(x - size, y + size);
}

/** Draws the frames that are under way. */
export class FrameArtist {
  private readonly quiet: number[] = [];
  private readonly news: number[] = [];
  private readonly lost: number[] = [];

  draw(pen: Pen, held: Layout, flights: Flights, now: number, colours: Colours): void {
    this.sort(held, flights, now);
    // On a very large stage everything is larger.
    const grow = Math.max(1, held.radius / 30);
    pen.fillStyle = colours.quiet;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    for (let i = 0; i < this.quiet.length; i += 3) {
      const x = this.quiet[i] ?? 0;
      const y = this.quiet[i + 1] ?? 0;
      pen.rect(x - grow, y - grow, 2 * grow, 2 * grow);
    }
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = colours.news;
    pen.beginPath();
    for (let i = 0; i < this.news.length; i += 3) {
      const x = this.news[i] ?? 0;
      const y = this.news[i + 1] ?? 0;
      const r = (this.news[i + 2] ?? 1) * grow;
      pen.moveTo(x + r, y);
      pen.arc(x, y, r, 0, 2 * Math.PI);
    }
    pen.fill();
    pen.strokeStyle = colours.cut;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (let i = 0; i < this.lost.length; i += 3) {
      cross(pen, this.lost[i] ?? 0, this.lost[i + 1] ?? 0, this.lost[i + 2] ?? 2);
    }
    pen.stroke();
  }

  /** Where everything is, one list for each way of drawing: each is one stroke of the pen. */
  private sort(held: Layout, flights: Flights, now: number): void {
    this.quiet.length = 0;
    this.news.length = 0;
    this.lost.length = 0;
    const { rings, radius } = held;
    flights.each(now, (slot, way) => {
      const from = flights.from[slot] ?? 0;
      const to = flights.to[slot] ?? 0;
      for (const { spots } of rings) this.place(flights, slot, way, spots[from], spots[to], radius);
    });
  }

  private place(
    flights: Flights,
    slot: number,
    way: number,
    a: Spot | undefined,
    b: Spot | undefined,
    radius: number,
  ): void {
    if (!a || !b) return;
    const dx = b.x - a.x;
    const dy = b.y - a.y;
    const far = Math.hypot(dx, dy) || 1;
    const gone = flights.lost[slot] === 1;
    const part = gone ? Math.min(way, LOST_AT) : way;
    const along = (radius + part * Math.max(0, far - 2 * radius)) / far;
    const x = a.x + dx * along - (dy / far) * LANE;
    const y = a.y + dy * along + (dx / far) * LANE;
    if (gone && way >= LOST_AT) this.lost.push(x, y, 2 + 3 * (1 - way));
    else if (flights.news[slot] === 1) this.news.push(x, y, flights.size[slot] ?? 1.5);
    else this.quiet.push(x, y, 1);
  }
}
