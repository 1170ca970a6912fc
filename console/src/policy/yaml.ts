/** Prints JSON as YAML that the server reads as the same document. YAML is read by the server only. */

import { type Json, type JsonObject, isObject } from './json.ts';

const WIDTH = 76;
// Plain where no parser of any version of YAML takes it for something other than a text.
const WORD = /^[A-Za-z_/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)?$/;
const AMOUNT =
  /^(0|[1-9][0-9]*)(\.[0-9]+)?(r|B|kB|KiB|MB|MiB|GB|GiB)?\/([1-9][0-9]*)?(us|ms|s|sec|second|m|min|minute|h|hour|d|day)$/;
const SPAN = /^[1-9][0-9]*(us|ms|s|sec|second|m|min|minute|h|hour|d|day)$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|nan|inf)$/i;
// JSON leaves these as they are; YAML wants them escaped, or people could not see them.
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\uffff]/g;

export function printYaml(document: Json): string {
  const lines = block(document, '');
  return lines.join('\n') + '\n';
}

/** `value` on one line. */
export function flow(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(flow).join(', ')}]`;
  if (!isObject(value)) return scalar(value);
  const fields = Object.entries(value).map(([name, item]) => `${text(name)}: ${flow(item)}`);
  return fields.length > 0 ? `{ ${fields.join(', ')} }` : '{}';
}

function block(value: Json, indent: string): string[] {
  if (isInline(value, indent)) return [indent + flow(value)];
  if (Array.isArray(value)) return value.flatMap((item) => listItem(item, indent));
  return Object.entries(value as JsonObject).flatMap(([name, item]) => field(name, item, indent));
}

function field(name: string, value: Json, indent: string): string[] {
  const head = `${indent}${text(name)}:`;
  if (isInline(value, head)) return [`${head} ${flow(value)}`];
  return [head, ...block(value, `${indent}  `)];
}

function listItem(item: Json, indent: string): string[] {
  const [first = '', ...rest] = block(item, `${indent}  `);
  return [`${indent}- ${first.slice(indent.length + 2)}`, ...rest];
}

/** Returns whether `value` fits behind `head`: a scalar, or a short collection of scalars. */
function isInline(value: Json, head: string): boolean {
  if (typeof value !== 'object' || value === null) return true;
  const items = Object.values(value);
  if (items.length === 0) return true;
  const isFlat = items.every((item) => typeof item !== 'object' || item === null);
  return isFlat && head !== '' && head.length + 1 + flow(value).length <= WIDTH;
}

function scalar(value: null | boolean | number | string): string {
  if (typeof value === 'string') return text(value);
  return typeof value === 'number' ? String(value).replace('e+', 'e') : String(value);
}

function text(value: string): string {
  const isPlain = (WORD.test(value) && !RESERVED.test(value)) || AMOUNT.test(value) || SPAN.test(value);
  if (isPlain) return value;
  return JSON.stringify(value).replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
