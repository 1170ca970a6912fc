/** JSON as values, and edits of it that leave everything else, and its order, as it was. */

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}
export type Path = readonly (string | number)[];

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, place) => same(item, b[place]));
  }
  if (isObject(a) && isObject(b)) {
    const names = Object.keys(a);
    return (
      names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]))
    );
  }
  return false;
}

export function get(value: Json | undefined, path: Path): Json | undefined {
  for (const step of path) {
    if (Array.isArray(value) && typeof step === 'number') value = value[step];
    else if (isObject(value) && Object.hasOwn(value, step)) value = value[step];
    else return undefined;
  }
  return value;
}

/**
 * `value` with `next` at `path`; `undefined` removes what is there. Missing objects on the way are
 * created. A new field goes behind the last field that `order` names before it.
 */
export function set(
  value: Json | undefined,
  path: Path,
  next: Json | undefined,
  order: readonly string[] = [],
): Json | undefined {
  const [step, ...rest] = path;
  if (step === undefined) return next;
  if (typeof step === 'number') {
    const list = Array.isArray(value) ? [...value] : [];
    const item = set(list[step], rest, next, order);
    if (item === undefined) list.splice(step, 1);
    else list[step] = item;
    return list;
  }
  const object = isObject(value) ? value : {};
  const field = set(object[step], rest, next, order);
  if (Object.hasOwn(object, step)) {
    const kept = Object.entries(object).filter(([name]) => name !== step || field !== undefined);
    return Object.fromEntries(kept.map(([name, old]) => [name, name === step ? field! : old]));
  }
  if (field === undefined) return object;
  const entries = Object.entries(object);
  entries.splice(placeOf(step, Object.keys(object), order), 0, [step, field]);
  return Object.fromEntries(entries);
}

function placeOf(name: string, names: string[], order: readonly string[]): number {
  const rank = order.indexOf(name);
  if (rank < 0) return names.length;
  const earlier = names.map((other) => order.indexOf(other) >= 0 && order.indexOf(other) < rank);
  const last = earlier.lastIndexOf(true);
  if (last >= 0) return last + 1;
  const later = names.findIndex((other) => order.indexOf(other) > rank);
  return later < 0 ? names.length : later;
}

/** The steps of a JSON pointer (RFC 6901), as they are written: places in lists are digits. */
export function pointerSteps(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}
