// I own: a rule in words, taken apart into fields and put together again. Pure; what a rule means
// is the real parser's business.

/** Fields of the editor, by their names in the text. */
export const KEYS = ['rate', 'window', 'bucket', 'burst', 'error_budget', 'pace'] as const;
export type Key = (typeof KEYS)[number];

export interface Words {
  name: string;
  fields: Partial<Record<Key, string>>;
  /** `key=value` that no field shows. */
  rest: string[];
}

/** Takes one line apart. */
export function takeApart(line: string): Words {
  const [name = '', ...parts] = line.trim().split(/\s+/);
  const words: Words = { name, fields: {}, rest: [] };
  for (const part of parts) {
    const at = part.indexOf('=');
    const key = part.slice(0, Math.max(0, at));
    if ((KEYS as readonly string[]).includes(key)) words.fields[key as Key] = part.slice(at + 1);
    else words.rest.push(part);
  }
  return words;
}

/** Puts a line together. Fields that are empty are left out: the parser has its defaults. */
export function putTogether(words: Words): string {
  const fields = KEYS.flatMap((key) => {
    const value = words.fields[key]?.trim();
    return value ? [`${key}=${value.replace(/\s+/g, '')}`] : [];
  });
  return [words.name || 'rule', ...fields, ...words.rest].join(' ');
}
