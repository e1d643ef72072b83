// I own: making and changing elements. I never set markup from text.

type Child = Node | string | null | undefined;
type Props = Record<string, string | number | boolean | EventListener | undefined>;

/** An element with attributes (`on...` are listeners) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child != null) element.append(child);
  return element;
}

/** The element with this id; the page is wrong without it. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return element as T;
}

/** Changes the text of an element only where it differs, so that nothing is laid out for naught. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A button with a plain explanation beside its name. */
export function button(label: string, hint: string, act: () => void, kind = ''): HTMLButtonElement {
  return h('button', { type: 'button', class: kind, title: hint, onclick: act }, label);
}

let fields = 0;

/** A labelled control with its explanation under it, tied together for screen readers. */
export function field(label: string, hint: string, control: HTMLElement): HTMLElement {
  fields += 1;
  const id = control.id || `field-${fields}`;
  control.id = id;
  control.setAttribute('aria-describedby', `${id}-hint`);
  return h(
    'div',
    { class: 'field' },
    h('label', { for: id }, label),
    control,
    h('p', { class: 'hint', id: `${id}-hint` }, hint),
  );
}

/** A drop-down list. */
export function select(
  options: readonly (readonly [string, string])[],
  value: string,
  change: (value: string) => void,
): HTMLSelectElement {
  const list = h('select', { onchange: () => change(list.value) });
  for (const [key, text] of options) list.append(h('option', { value: key }, text));
  list.value = value;
  return list;
}
