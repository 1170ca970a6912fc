/** Joins two changes of one policy: rules by their names, overrides by their keys, other fields one by one. */

import { type Json, type JsonObject, isObject, same } from './json.ts';
import type { Place } from './diff.ts';
import { ruleOf } from './document.ts';

export interface Merged {
  document: Json;
  /** Places that both changed. There, `mine` was taken. */
  conflicts: Place[];
}

export function merge(base: Json, theirs: Json, mine: Json): Merged {
  const conflicts: string[][] = [];
  const document = join(base, theirs, mine, [], conflicts) ?? null;
  return { document, conflicts: conflicts.map(placeOf) };
}

type Maybe = Json | undefined;

function join(base: Maybe, theirs: Maybe, mine: Maybe, path: string[], conflicts: string[][]): Maybe {
  if (same(mine, base)) return theirs;
  if (same(theirs, base) || same(theirs, mine)) return mine;
  if (isObject(theirs) && isObject(mine)) {
    return joinObjects(isObject(base) ? base : {}, theirs, mine, path, conflicts);
  }
  const lists = [base ?? [], theirs, mine].map(byIdentity);
  const [old, other, own] = lists;
  if (old && other && own) {
    const joined = joinObjects(old, other, own, path, conflicts);
    return Object.values(joined);
  }
  conflicts.push(path);
  return mine;
}

/** Fields in the order of `theirs`; those that only `mine` has come last. */
function joinObjects(
  base: JsonObject,
  theirs: JsonObject,
  mine: JsonObject,
  path: string[],
  conflicts: string[][],
): JsonObject {
  const names = [...new Set([...Object.keys(theirs), ...Object.keys(mine)])];
  const fields = names.flatMap((name): [string, Json][] => {
    const value = join(base[name], theirs[name], mine[name], [...path, name], conflicts);
    return value === undefined ? [] : [[name, value]];
  });
  return Object.fromEntries(fields);
}

const KEY = 'key ';
const RULE = 'rule ';

/** A path through the joined objects, such as `rules`, `rule main`, `fixed_window`, `limit`, as a place. */
function placeOf(path: string[]): Place {
  const of = (begin: string) => path.find((step) => step.startsWith(begin))?.slice(begin.length);
  const [override, rule, field] = [of(KEY), of(RULE), path.at(-1)];
  const isField = field !== undefined && !field.startsWith(KEY) && !field.startsWith(RULE);
  return {
    ...(override !== undefined && { override }),
    ...(rule !== undefined && { rule }),
    ...(isField && { field }),
  };
}

/** A list of rules or overrides by what identifies its items. */
function byIdentity(list: Maybe): JsonObject | undefined {
  if (!Array.isArray(list)) return undefined;
  const entries = list.map((item): [string | undefined, Json] => {
    if (isObject(item) && typeof item.key === 'string') return [KEY + item.key, item];
    const rule = ruleOf(item);
    return [rule && RULE + rule.name, item];
  });
  const names = new Set(entries.map(([name]) => name));
  if (names.has(undefined) || names.size < list.length) return undefined;
  return Object.fromEntries(entries) as JsonObject;
}
