// I own: what mouse, pen and finger do on the stage. A click is a click; a stroke over links cuts
// them; a stroke from one member to another cuts, or mends, the link between the two.

import { crossed, memberAt, type Place, type Spot } from './layout';
import type { Stage } from './stage';

export interface Deeds {
  click(place: Place): void;
  pair(one: number, other: number): void;
  cut(pairs: [number, number][]): void;
  point(place: Place | null): void;
}

/** A movement shorter than this is a click, pixels. */
const CLICK = 7;

/** Listens on a canvas for as long as the page lives. */
export function listen(canvas: HTMLCanvasElement, stage: Stage, deeds: Deeds): void {
  const spotOf = (event: PointerEvent): Spot => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    const at = spotOf(event);
    canvas.setPointerCapture(event.pointerId);
    stage.stroke = { from: at, to: at, member: memberAt(stage.held, at.x, at.y)?.member ?? -1 };
  });
  canvas.addEventListener('pointermove', (event) => {
    const at = spotOf(event);
    if (stage.stroke) stage.stroke.to = at;
    const place = memberAt(stage.held, at.x, at.y);
    stage.hovered = place;
    deeds.point(place);
    canvas.style.cursor = place ? 'pointer' : 'crosshair';
  });
  canvas.addEventListener('pointercancel', () => (stage.stroke = null));
  canvas.addEventListener('pointerleave', () => {
    stage.hovered = null;
    deeds.point(null);
  });
  canvas.addEventListener('pointerup', (event) => {
    const stroke = stage.stroke;
    stage.stroke = null;
    if (stroke) finish(stage, deeds, stroke.from, spotOf(event));
  });
}

function finish(stage: Stage, deeds: Deeds, from: Spot, to: Spot): void {
  const began = memberAt(stage.held, from.x, from.y);
  const ended = memberAt(stage.held, to.x, to.y);
  if (Math.hypot(to.x - from.x, to.y - from.y) < CLICK) {
    if (began) deeds.click(began);
  } else if (began && ended) {
    if (began.member !== ended.member) deeds.pair(began.member, ended.member);
  } else if (!began) {
    const pairs = crossed(stage.held, from, to);
    if (pairs.length > 0) deeds.cut(pairs);
  }
}
