// I own: where members stand on the stage, and which links a stroke crosses. Pure geometry.

export interface Spot {
  x: number;
  y: number;
}

/** One ring of all members; several stand side by side when rules are compared. */
export interface Ring {
  cx: number;
  cy: number;
  rx: number;
  ry: number;
  spots: Spot[];
}

export interface Layout {
  rings: Ring[];
  count: number;
  radius: number;
  /** There is room for names and numbers. */
  labels: boolean;
  width: number;
  height: number;
}

export interface Place {
  ring: number;
  member: number;
}

/** Members are no larger than this, but on a very large stage. */
const MAX_RADIUS = 30;
const MIN_RADIUS = 3;

/** Rings for `count` members on a stage of so many CSS pixels. */
export function layout(count: number, rings: number, width: number, height: number): Layout {
  const columns = width >= height ? rings : 1;
  const cellW = width / columns;
  const cellH = height / Math.ceil(rings / columns);
  const room = Math.min(cellW, cellH);
  const rows = count > 160 ? 3 : count > 72 ? 2 : 1;
  const size = (rx: number, ry: number) => {
    const around = 2 * Math.PI * Math.sqrt((rx * rx + ry * ry) / 2);
    const fit = (around / Math.max(3, count)) * rows * 0.36;
    return Math.max(MIN_RADIUS, Math.min(Math.max(MAX_RADIUS, room * 0.048), room * 0.075, fit));
  };
  // A member and its number stand outside of the ring.
  const edge = size(cellW / 2, cellH / 2) + 32;
  const mostX = Math.max(10, cellW / 2 - edge);
  const ry = Math.max(10, Math.min(cellH / 2 - edge, mostX * 1.2));
  const rx = Math.min(mostX, ry * 1.7);
  const radius = size(rx, ry);
  const held: Layout = { rings: [], count, radius, labels: radius >= 7, width, height };
  for (let i = 0; i < rings; i += 1) {
    const cx = (i % columns) * cellW + cellW / 2;
    const cy = Math.floor(i / columns) * cellH + cellH / 2;
    const spots = Array.from({ length: count }, (_, member) => {
      const angle = (member / count) * 2 * Math.PI - Math.PI / 2;
      const inset = (member % rows) * radius * 2.9;
      return { x: cx + Math.cos(angle) * (rx - inset), y: cy + Math.sin(angle) * (ry - inset) };
    });
    held.rings.push({ cx, cy, rx, ry, spots });
  }
  return held;
}

/** The member at a point, or null. */
export function memberAt(held: Layout, x: number, y: number): Place | null {
  let best: Place | null = null;
  let near = Math.max(held.radius + 6, 12);
  held.rings.forEach((ring, ringIndex) => {
    ring.spots.forEach((spot, member) => {
      const gap = Math.hypot(spot.x - x, spot.y - y);
      if (gap < near) {
        near = gap;
        best = { ring: ringIndex, member };
      }
    });
  });
  return best;
}

function side(a: Spot, b: Spot, p: Spot): number {
  return Math.sign((b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x));
}

/** Whether two segments cross. */
export function crosses(a: Spot, b: Spot, c: Spot, d: Spot): boolean {
  return side(a, b, c) !== side(a, b, d) && side(c, d, a) !== side(c, d, b);
}

/** Pairs of members whose straight link a stroke crosses, in any ring. */
export function crossed(held: Layout, a: Spot, b: Spot): [number, number][] {
  const pairs: [number, number][] = [];
  for (let one = 0; one < held.count; one += 1) {
    for (let other = one + 1; other < held.count; other += 1) {
      const hit = held.rings.some(({ spots }) => {
        const p = spots[one];
        const q = spots[other];
        return p && q && crosses(a, b, p, q);
      });
      if (hit) pairs.push([one, other]);
    }
  }
  return pairs;
}

/**
 * The members of one side, if the pairs are exactly the links between two sides of the cluster:
 * a clean partition. Null otherwise.
 */
export function asPartition(pairs: [number, number][], count: number): number[] | null {
  const first = pairs[0];
  if (!first) return null;
  const key = (i: number, j: number) => Math.min(i, j) * count + Math.max(i, j);
  const gone = new Set(pairs.map(([i, j]) => key(i, j)));
  const one: number[] = [];
  for (let i = 0; i < count; i += 1) if (i === first[0] || !gone.has(key(first[0], i))) one.push(i);
  const inOne = new Set(one);
  if (one.length * (count - one.length) !== gone.size) return null;
  return pairs.every(([i, j]) => inOne.has(i) !== inOne.has(j)) ? one : null;
}
