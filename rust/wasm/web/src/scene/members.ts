// I own: how members are drawn. A member is a vessel: it fills with the hits that it knows of, its
// own at the bottom, and turns to another colour and shape when it is full.

import { M, State } from '../columns';
import { calm, type Colours } from '../theme';
import type { Layout, Ring, Spot } from './layout';

/** Pulses last for so long, milliseconds of real time. */
const PULSE_MS = 520;
/** A member starts a pulse no more often than this, milliseconds. */
const PULSE_GAP_MS = 130;

/** What is seen of members beside their numbers: levels that settle, and pulses. */
export class Vessels {
  readonly level: Float32Array;
  readonly ownLevel: Float32Array;
  readonly admitted: Float64Array;
  readonly denied: Float64Array;

  constructor(readonly count: number) {
    this.level = new Float32Array(count);
    this.ownLevel = new Float32Array(count);
    this.admitted = new Float64Array(count).fill(-1e9);
    this.denied = new Float64Array(count).fill(-1e9);
  }

  /** Starts pulses for what members answered since the last tick. */
  pulse(counts: Uint32Array, real: number): void {
    for (let i = 0; i < this.count; i += 1) {
      if ((counts[2 * i] ?? 0) > 0) start(this.admitted, i, real);
      if ((counts[2 * i + 1] ?? 0) > 0) start(this.denied, i, real);
    }
  }

  /** Moves levels towards what members see now; `share` 1 at once. */
  settle(members: Float64Array, limit: number, share: number): void {
    for (let i = 0; i < this.count; i += 1) {
      const at = i * M.stride;
      const level = Math.min(1.2, (members[at + M.used] ?? 0) / limit);
      const own = Math.min(1.2, (members[at + M.own] ?? 0) / limit);
      this.level[i] = near(this.level[i] ?? 0, level, share);
      this.ownLevel[i] = near(this.ownLevel[i] ?? 0, own, share);
    }
  }

  /** Whether something still moves. */
  moving(real: number): boolean {
    for (let i = 0; i < this.count; i += 1) {
      if (real - Math.max(this.admitted[i] ?? 0, this.denied[i] ?? 0) < PULSE_MS) return true;
    }
    return false;
  }
}

function start(times: Float64Array, i: number, real: number): void {
  if (real - (times[i] ?? 0) > PULSE_GAP_MS) times[i] = real;
}

function near(from: number, to: number, share: number): number {
  return Math.abs(to - from) < 0.002 ? to : from + (to - from) * share;
}

export interface Look {
  /** `M.stride` numbers a member. */
  members: Float64Array;
  limit: number;
  selected: number;
  hovered: number;
  /** A member that a stroke started from. */
  held: number;
  real: number;
}

type Pen = CanvasRenderingContext2D;

/** Draws all members and their pulses. */
export function drawMembers(
  pen: Pen,
  held: Layout,
  ring: Ring,
  vessels: Vessels,
  look: Look,
  colours: Colours,
): void {
  drawPulses(pen, held, ring, vessels, look.real, colours);
  ring.spots.forEach((spot, i) => {
    drawMember(pen, held, spot, i, vessels, look, colours);
    if (held.labels) name(pen, held, ring, spot, i, colours);
  });
}

function drawPulses(
  pen: Pen,
  held: Layout,
  ring: Ring,
  vessels: Vessels,
  real: number,
  colours: Colours,
): void {
  // Who wants little movement sees pulses fade and not grow.
  const reach = calm() ? 0 : Math.max(7, held.radius * 0.75);
  ring.spots.forEach((spot, i) => {
    const good = (real - (vessels.admitted[i] ?? 0)) / PULSE_MS;
    if (good >= 0 && good < 1) {
      pen.globalAlpha = (1 - good) * 0.8;
      pen.strokeStyle = colours.admit;
      pen.lineWidth = 1 + 2 * (1 - good);
      pen.beginPath();
      pen.arc(spot.x, spot.y, held.radius + 2 + good * reach, 0, 2 * Math.PI);
      pen.stroke();
    }
    const bad = (real - (vessels.denied[i] ?? 0)) / PULSE_MS;
    if (bad >= 0 && bad < 1) {
      pen.globalAlpha = 1 - bad;
      pen.strokeStyle = colours.deny;
      pen.lineWidth = 1 + 2 * (1 - bad);
      diamond(pen, spot, held.radius * 1.35 + 3 + bad * reach);
      pen.stroke();
    }
  });
  pen.globalAlpha = 1;
}

/** A square that stands on its corner: the shape of a denial. */
function diamond(pen: Pen, spot: Spot, size: number): void {
  pen.beginPath();
  pen.moveTo(spot.x, spot.y - size);
  pen.lineTo(spot.x + size, spot.y);
  pen.lineTo(spot.x, spot.y + size);
  pen.lineTo(spot.x - size, spot.y);
  pen.closePath();
}

function drawMember(
  pen: Pen,
  held: Layout,
  spot: Spot,
  i: number,
  vessels: Vessels,
  look: Look,
  colours: Colours,
): void {
  const at = i * M.stride;
  const state = look.members[at + M.state] ?? State.up;
  const r = held.radius;
  if (state === State.down || state === State.away) {
    drawAbsent(pen, held, spot, i, state === State.down, look, colours);
    return;
  }
  const full = (look.members[at + M.used] ?? 0) >= look.limit;
  circle(pen, spot, r);
  pen.fillStyle = colours.raised;
  pen.fill();
  segment(
    pen,
    spot,
    r,
    vessels.level[i] ?? 0,
    full ? colours.deny : colours.theirs,
    full ? 0.3 : 1,
  );
  segment(
    pen,
    spot,
    r,
    vessels.ownLevel[i] ?? 0,
    full ? colours.deny : colours.own,
    full ? 0.5 : 1,
  );
  if (held.labels) drawTruth(pen, spot, r, at, look, colours);
  circle(pen, spot, r);
  pen.strokeStyle = full ? colours.deny : colours.soft;
  pen.lineWidth = full ? Math.max(1.5, r * 0.12) : 1.25;
  if (state === State.slow) pen.setLineDash([2, 3]);
  pen.stroke();
  pen.setLineDash([]);
  if (full && r >= 5) {
    diamond(pen, { x: spot.x, y: spot.y - r }, Math.max(3, r * 0.24));
    pen.fillStyle = colours.deny;
    pen.fill();
  }
  drawMarks(pen, held, spot, i, look, colours);
  if (held.labels) drawText(pen, held, spot, i, look, colours);
}

function circle(pen: Pen, spot: Spot, r: number): void {
  pen.beginPath();
  pen.arc(spot.x, spot.y, r, 0, 2 * Math.PI);
}

/** The part of a disc below a level from 0 (empty) to 1 (full). */
function segment(
  pen: Pen,
  spot: Spot,
  r: number,
  level: number,
  colour: string,
  alpha: number,
): void {
  if (level <= 0) return;
  const start = Math.asin(1 - 2 * Math.min(1, level));
  pen.beginPath();
  pen.arc(spot.x, spot.y, r, start, Math.PI - start);
  pen.closePath();
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
}

/** A line across the vessel where the truth is, while it is not what the member knows. */
function drawTruth(
  pen: Pen,
  spot: Spot,
  r: number,
  at: number,
  look: Look,
  colours: Colours,
): void {
  const truth = look.members[at + M.truth] ?? 0;
  if (truth === (look.members[at + M.used] ?? 0)) return;
  const level = Math.min(1, truth / Math.max(1, look.limit));
  const y = spot.y + r * (1 - 2 * level);
  const half = Math.sqrt(Math.max(0, r * r - (y - spot.y) ** 2)) + 4;
  pen.strokeStyle = colours.truth;
  pen.lineWidth = 1.5;
  pen.setLineDash([3, 2]);
  pen.beginPath();
  pen.moveTo(spot.x - half, y);
  pen.lineTo(spot.x + half, y);
  pen.stroke();
  pen.setLineDash([]);
}

function drawAbsent(
  pen: Pen,
  held: Layout,
  spot: Spot,
  i: number,
  died: boolean,
  look: Look,
  colours: Colours,
): void {
  const r = held.radius;
  circle(pen, spot, r);
  pen.fillStyle = colours.paper;
  pen.fill();
  pen.strokeStyle = colours.soft;
  pen.lineWidth = 1.25;
  pen.setLineDash([3, 3]);
  pen.stroke();
  pen.setLineDash([]);
  if (died) {
    const c = r * 0.36;
    pen.strokeStyle = colours.cut;
    pen.lineWidth = Math.max(1.5, r * 0.12);
    pen.beginPath();
    pen.moveTo(spot.x - c, spot.y - c);
    pen.lineTo(spot.x + c, spot.y + c);
    pen.moveTo(spot.x + c, spot.y - c);
    pen.lineTo(spot.x - c, spot.y + c);
    pen.stroke();
  }
  drawMarks(pen, held, spot, i, look, colours);
}

/** Rings around the member that is selected, pointed at, or where a stroke began. */
function drawMarks(
  pen: Pen,
  held: Layout,
  spot: Spot,
  i: number,
  look: Look,
  colours: Colours,
): void {
  if (i === look.selected || i === look.held) {
    circle(pen, spot, held.radius + 4);
    pen.strokeStyle = i === look.held ? colours.cut : colours.pick;
    pen.lineWidth = 2.5;
    pen.stroke();
  } else if (i === look.hovered) {
    circle(pen, spot, held.radius + 4);
    pen.strokeStyle = colours.soft;
    pen.lineWidth = 1;
    pen.stroke();
  }
}

function drawText(
  pen: Pen,
  held: Layout,
  spot: Spot,
  i: number,
  look: Look,
  colours: Colours,
): void {
  const used = look.members[i * M.stride + M.used] ?? 0;
  const r = held.radius;
  if (r >= 11) {
    const text = used >= 10_000 ? `${Math.round(used / 1000)}k` : String(used);
    const size = Math.min(r * 0.78, (r * 2.5) / Math.max(2, text.length));
    pen.font = `600 ${size.toFixed(1)}px ${FONT}`;
    pen.fillStyle = colours.ink;
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    pen.fillText(text, spot.x, spot.y + size * 0.06);
  }
  const wrong = look.members[i * M.stride + M.clockError] ?? 0;
  if (Math.abs(wrong) >= 20e6 && r >= 9) clockMark(pen, held, spot, wrong, colours);
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** The member's number, outside of its ring. */
function name(pen: Pen, held: Layout, ring: Ring, spot: Spot, i: number, colours: Colours): void {
  const dx = spot.x - ring.cx;
  const dy = spot.y - ring.cy;
  const far = Math.hypot(dx, dy) || 1;
  const size = Math.max(9, Math.min(18, held.radius * 0.46));
  const out = held.radius + size * 0.95 + 3;
  pen.font = `500 ${size.toFixed(1)}px ${FONT}`;
  pen.fillStyle = colours.soft;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  pen.fillText(String(i + 1), spot.x + (dx / far) * out, spot.y + (dy / far) * out);
}

/** A small clock face for a clock that is wrong; its hand points forward or back. */
function clockMark(pen: Pen, held: Layout, spot: Spot, wrong: number, colours: Colours): void {
  const r = Math.max(4, held.radius * 0.3);
  // On the side of the middle of the stage: the number stands outside.
  const side = spot.x <= held.width / 2 ? 1 : -1;
  const at = { x: spot.x + side * held.radius * 0.82, y: spot.y - held.radius * 0.82 };
  circle(pen, at, r);
  pen.fillStyle = colours.paper;
  pen.fill();
  pen.strokeStyle = colours.other;
  pen.lineWidth = 1.5;
  pen.stroke();
  pen.beginPath();
  pen.moveTo(at.x, at.y - r * 0.65);
  pen.lineTo(at.x, at.y);
  pen.lineTo(at.x + Math.sign(wrong) * r * 0.6, at.y);
  pen.stroke();
}
