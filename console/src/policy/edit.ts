/** Edits of the form, made inside the document: fields that the form does not know stay, and so does their order. */

import { type AlgorithmName, paramsOf } from './algorithms.ts';
import { FIELD_ORDER, RULES_MAX, listOf, ruleOf } from './document.ts';
import { type Json, type JsonObject, type Path, get, isObject, set } from './json.ts';
import { type Rate, durationText, parseRate } from './units.ts';

/** `document` with `value` at `path`; without a value, the field goes. */
export function edited(document: Json, path: Path, value: Json | undefined): Json {
  return set(document, path, value, FIELD_ORDER) ?? null;
}

/** Adds an item at the end of a list. */
export function appended(document: Json, path: Path, item: Json): Json {
  return edited(document, path, [...listOf(get(document, path)), item]);
}

/** Removes an item. A list that becomes empty goes, too: absence means "none" in documents. */
export function without(document: Json, path: Path): Json {
  const next = edited(document, path, undefined);
  const list = path.slice(0, -1);
  return listOf(get(next, list)).length === 0 ? edited(next, list, undefined) : next;
}

/** Moves a rule one place up (-1) or down (1). */
export function moved(document: Json, rules: Path, index: number, by: -1 | 1): Json {
  const list = [...listOf(get(document, rules))];
  const [item] = list.splice(index, 1);
  if (item === undefined) return document;
  list.splice(Math.max(0, index + by), 0, item);
  return edited(document, rules, list);
}

/** A rule to start from, with a name that none of `rules` has. */
export function newRule(rules: Json[]): JsonObject {
  const names = new Set(rules.map((rule) => (isObject(rule) ? rule.name : undefined)));
  let name = 'limit';
  for (let number = 2; names.has(name); number += 1) name = `limit-${number}`;
  return { name, token_bucket: { rate: '100/s', burst: 200 } };
}

/** Adds a rule. The rule that was alone gets the name that it had silently, as several rules need names. */
export function withRule(document: Json, path: Path): Json {
  const rules = listOf(get(document, path));
  if (rules.length >= RULES_MAX) return document;
  const named = rules.map((rule) => {
    const read = ruleOf(rule);
    return read && isObject(rule) && rule.name === undefined ? { name: read.name, ...rule } : rule;
  });
  return edited(document, path, [...named, newRule(named)]);
}

/** The rule with another algorithm, in the same place; parameters that both have stay. */
export function withAlgorithm(rule: JsonObject, algorithm: AlgorithmName): JsonObject {
  const was = ruleOf(rule);
  if (!was || was.algorithm === algorithm) return rule;
  const start = starting(was.params);
  const params: JsonObject = {};
  for (const { name, required } of paramsOf(algorithm)) {
    const kept = was.params[name] ?? (required || name === 'window' ? start[name] : undefined);
    if (kept !== undefined) params[name] = kept;
  }
  const entries = Object.entries(rule);
  return Object.fromEntries(
    entries.map(([name, value]) => (name === was.algorithm ? [algorithm, params] : [name, value])),
  );
}

/** Values for required parameters, near to those of the rule before. */
function starting(params: JsonObject): JsonObject {
  const rate = parseRate(params.rate);
  const limit = params.limit ?? params.burst ?? rate?.permits ?? 100;
  const window = typeof params.rate === 'string' && rate ? windowOf(params.rate, rate) : '1m';
  const per = typeof params.window === 'string' ? params.window.replace(/^1(?=[a-z])/, '') : 's';
  return { rate: `${String(limit)}/${per}`, limit, window, warmup: '10s', ttl: '30s' };
}

/** `100/s` → `1s`, `5/200ms` → `200ms`, `2.5/s` → `2s`. */
function windowOf(text: string, { periodUs, countUs }: Rate): string {
  if (periodUs !== countUs) return durationText(periodUs);
  const period = text.slice(text.indexOf('/') + 1);
  return /^[0-9]/.test(period) ? period : `1${period}`;
}
