// I own: the key of the stage: what each shape means.

import { h } from '../dom';

const SVG = 'http://www.w3.org/2000/svg';

function shape(tag: string, attributes: Record<string, string>): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function picture(...shapes: SVGElement[]): SVGElement {
  const box = shape('svg', { viewBox: '0 0 18 18', 'aria-hidden': 'true' });
  box.append(...shapes);
  return box;
}

/** Draws the key. Colours come from the style sheet, by class. */
export function drawLegend(root: HTMLElement): void {
  const vessel = () => [
    shape('circle', { cx: '9', cy: '9', r: '7.5', class: 'vessel' }),
    shape('path', { d: 'M1.6 10h14.8A7.5 7.5 0 0 1 1.6 10z', class: 'theirs' }),
    shape('path', { d: 'M3.2 13.2h11.6a7.5 7.5 0 0 1-11.6 0z', class: 'own' }),
  ];
  const items: [SVGElement, string][] = [
    [picture(...vessel()), 'a member fills: own hits, hits of others'],
    [
      picture(shape('circle', { cx: '9', cy: '9', r: '3.5', class: 'news' })),
      'news, as large as its bytes',
    ],
    [
      picture(shape('rect', { x: '7.5', y: '7.5', width: '3', height: '3', class: 'quiet' })),
      'acknowledgements, heartbeats',
    ],
    [picture(shape('path', { d: 'M4.5 4.5l9 9m0-9l-9 9', class: 'lost' })), 'lost on the way'],
    [picture(shape('circle', { cx: '9', cy: '9', r: '6.5', class: 'admit' })), 'admitted'],
    [picture(shape('path', { d: 'M9 1.5L16.5 9 9 16.5 1.5 9z', class: 'deny' })), 'denied'],
  ];
  for (const [image, text] of items) root.append(h('li', {}, image, text));
}
