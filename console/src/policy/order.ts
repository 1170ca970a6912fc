/** The order of fields in a text: the server answers a document with its fields sorted by name. */

import { type Json, isObject } from './json.ts';

/** An object of a text: its fields in their order, and the objects inside each. */
type Fields = Map<string, Fields[]>;

const TOKENS = /(?:^|(?<=\s))#.*|[{[]|[}\]]|("(?:\\.|[^"\\\n])*"|'(?:[^'\n]|'')*'|[\w.-]+)(\s*:(?=[\s,}\]]|$))?/gm;
/** A level inside braces lies behind the column of its line. */
const DEPTH = 0.001;

/** `value` with the fields of each object in the order in which the YAML of `text` has them. */
export function orderedAs(text: string, value: Json): Json {
  return ordered(value, objectsIn(text));
}

function ordered(value: Json, objects: Fields[]): Json {
  if (Array.isArray(value)) {
    const rest = [...objects];
    return value.map((item) => ordered(item, isObject(item) ? rest.splice(0, 1) : []));
  }
  if (!isObject(value)) return value;
  const fields: Fields = objects[0] ?? new Map();
  const names = [...fields.keys()];
  const rank = (name: string) => (fields.has(name) ? names.indexOf(name) : names.length);
  const entries = Object.entries(value).sort(([a], [b]) => rank(a) - rank(b));
  return Object.fromEntries(entries.map(([name, item]) => [name, ordered(item, fields.get(name) ?? [])]));
}

function objectsIn(text: string): Fields[] {
  const root: Fields[] = [];
  const above: { level: number; inside: Fields[] }[] = [];
  let depth = 0;
  let outer = 0;
  for (const { 0: token, 1: name, 2: colon, index } of text.matchAll(TOKENS)) {
    if (token === '{' || token === '[') {
      // `field: {` is inside the field; `- {` is an item at its own column.
      if (depth === 0) outer = lastCharacter(text, index) === ':' ? (above.at(-1)?.level ?? 0) : columnOf(text, index);
      depth += 1;
    } else if (token === '}' || token === ']') {
      depth = Math.max(0, depth - 1);
    } else if (name !== undefined && colon !== undefined) {
      const level = depth === 0 ? columnOf(text, index) : outer + depth * DEPTH;
      while (above.length > 0 && above.at(-1)!.level >= level) above.pop();
      const objects = above.at(-1)?.inside ?? root;
      const field = name.replace(/^["']|["']$/g, '');
      const isFirst = '-{'.includes(lastCharacter(text, index));
      if (isFirst || objects.length === 0 || objects.at(-1)!.has(field)) objects.push(new Map());
      const inside: Fields[] = [];
      objects.at(-1)!.set(field, inside);
      above.push({ level, inside });
    }
  }
  return root;
}

const columnOf = (text: string, index: number) => index - (text.lastIndexOf('\n', index - 1) + 1);

/** The last character before `index` that is no space; at the start of the text a line break. */
function lastCharacter(text: string, index: number): string {
  let before = index - 1;
  while (before >= 0 && /\s/.test(text[before]!)) before -= 1;
  return text[before] ?? '\n';
}
