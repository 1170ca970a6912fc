/** Joins two changes of one policy: rules by their names, overrides by their keys, other fields one by one. */

import { type Json, type JsonObject, isObject, same } from './json.ts';
import { ruleOf } from './document.ts';

export interface Merged {
  document: Json;
  /** Where both changed the same thing, as JSON pointers. There, `mine` was taken. */
  conflicts: string[];
}

export function merge(base: Json, theirs: Json, mine: Json): Merged {
  const conflicts: string[] = [];
  const document = join(base, theirs, mine, '', conflicts) ?? null;
  return { document, conflicts };
}

type Maybe = Json | undefined;

function join(base: Maybe, theirs: Maybe, mine: Maybe, pointer: string, conflicts: string[]): Maybe {
  if (same(mine, base)) return theirs;
  if (same(theirs, base) || same(theirs, mine)) return mine;
  if (isObject(theirs) && isObject(mine)) {
    return joinObjects(isObject(base) ? base : {}, theirs, mine, pointer, conflicts);
  }
  const lists = [base ?? [], theirs, mine].map(byIdentity);
  const [old, other, own] = lists;
  if (old && other && own) {
    const joined = joinObjects(old, other, own, pointer, conflicts);
    return Object.values(joined);
  }
  conflicts.push(pointer);
  return mine;
}

/** Fields in the order of `theirs`; those that only `mine` has come last. */
function joinObjects(base: JsonObject, theirs: JsonObject, mine: JsonObject, pointer: string, conflicts: string[]): JsonObject {
  const names = [...new Set([...Object.keys(theirs), ...Object.keys(mine)])];
  const fields = names.flatMap((name): [string, Json][] => {
    const value = join(base[name], theirs[name], mine[name], `${pointer}/${name}`, conflicts);
    return value === undefined ? [] : [[name, value]];
  });
  return Object.fromEntries(fields);
}

/** A list of rules or overrides by what identifies its items. */
function byIdentity(list: Maybe): JsonObject | undefined {
  if (!Array.isArray(list)) return undefined;
  const entries = list.map((item): [string | undefined, Json] => {
    if (isObject(item) && typeof item.key === 'string') return [`key ${item.key}`, item];
    const rule = ruleOf(item);
    return [rule && `rule ${rule.name}`, item];
  });
  const names = new Set(entries.map(([name]) => name));
  if (names.has(undefined) || names.size < list.length) return undefined;
  return Object.fromEntries(entries) as JsonObject;
}
