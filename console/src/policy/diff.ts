/** The differences of two policies by meaning: rules by their names, lists without an order as sets. */

import type { Key } from '../lib/i18n/index.svelte.ts';
import { DEFAULTS, overridesOf, type Rule, ruleOf, rulesOf, textsOf } from './document.ts';
import { type Json, type JsonObject, isObject, same } from './json.ts';
import { PARAM_LABELS } from './labels.ts';
import { parseDuration, parseRate } from './units.ts';
import { type Translator, describeDuration, describeRate, describeRule, describeValue } from './describe.ts';

export interface Place {
  /** The key of the override that has the rules. */
  override?: string;
  rule?: string;
  /** A field of the document, or a parameter of the rule. */
  field?: string;
}

export interface Difference {
  kind: 'added' | 'removed' | 'changed' | 'moved';
  place: Place;
  before?: Json;
  after?: Json;
  /** The number of differences of this kind that the line stands for. */
  count?: number;
}

/** Differences in overrides beyond this many of a kind become one line. */
const OVERRIDES_SHOWN = 5;
/** The order in these lists has no meaning. */
const SETS = new Set(['apps', 'method']);
const COMPARED_APART = new Set(['rules', 'overrides']);

export function differences(before: Json | undefined, after: Json | undefined): Difference[] {
  const old = isObject(before) ? before : {};
  const now = isObject(after) ? after : {};
  const names = [...new Set([...Object.keys(now), ...Object.keys(old)])];
  const fields = names.filter((name) => !COMPARED_APART.has(name));
  return [
    ...ruleDifferences(old.rules, now.rules, {}),
    ...fields.flatMap((field) => fieldDifference(old, now, { field })),
    ...overrideDifferences(old, now),
  ];
}

function fieldDifference(old: JsonObject, now: JsonObject, place: Place): Difference[] {
  const field = place.field!;
  const otherwise = place.rule === undefined ? DEFAULTS[field] : undefined;
  const before = old[field] ?? otherwise;
  const after = now[field] ?? otherwise;
  if (sameMeaning(before, after, SETS.has(field))) return [];
  if (before === undefined) return [{ kind: 'added', place, after }];
  if (after === undefined) return [{ kind: 'removed', place, before }];
  return [{ kind: 'changed', place, before, after }];
}

/** `60/m` is `60/60s`, and `60s` is `1m`. */
function sameMeaning(a: Json | undefined, b: Json | undefined, isSet: boolean): boolean {
  if (same(a, b)) return true;
  if (isSet && Array.isArray(a) && Array.isArray(b)) {
    return same([...textsOf(a)].sort(), [...textsOf(b)].sort());
  }
  if (isObject(a) && isObject(b)) {
    const names = new Set([...Object.keys(a), ...Object.keys(b)]);
    return [...names].every((name) => sameMeaning(a[name], b[name], SETS.has(name)));
  }
  const [rateA, rateB] = [parseRate(a), parseRate(b)];
  if (rateA && rateB) return rateA.permits === rateB.permits && rateA.periodUs === rateB.periodUs;
  const spanA = parseDuration(a);
  return spanA !== undefined && spanA === parseDuration(b);
}

function ruleDifferences(before: Json | undefined, after: Json | undefined, place: Place): Difference[] {
  const old = rulesOf({ rules: before ?? [] });
  const now = rulesOf({ rules: after ?? [] });
  const found: Difference[] = [];
  for (const rule of now) {
    const was = old.find((other) => other.name === rule.name);
    const where = { ...place, rule: rule.name };
    if (!was) found.push({ kind: 'added', place: where, after: whole(rule) });
    else found.push(...paramDifferences(was, rule, where));
  }
  for (const was of old.filter((rule) => !now.some((other) => other.name === rule.name))) {
    found.push({ kind: 'removed', place: { ...place, rule: was.name }, before: whole(was) });
  }
  // The order decides the rule in a refusal if two refuse for the same time.
  const kept = now.filter((rule) => old.some((other) => other.name === rule.name));
  const earlier = old.filter((rule) => now.some((other) => other.name === rule.name));
  if (kept.some((rule, index) => rule.name !== earlier[index]?.name)) {
    const names = (rules: Rule[]) => rules.map((rule) => rule.name);
    found.push({ kind: 'moved', place: { ...place, field: 'rules' }, before: names(earlier), after: names(kept) });
  }
  return found;
}

function paramDifferences(was: Rule, rule: Rule, place: Place): Difference[] {
  if (was.algorithm !== rule.algorithm) {
    return [{ kind: 'changed', place, before: whole(was), after: whole(rule) }];
  }
  const names = [...new Set([...Object.keys(rule.params), ...Object.keys(was.params)])];
  return names.flatMap((field) => fieldDifference(was.params, rule.params, { ...place, field }));
}

function overrideDifferences(old: JsonObject, now: JsonObject): Difference[] {
  const before = new Map(overridesOf(old).map((own) => [own.key, own]));
  const after = new Map(overridesOf(now).map((own) => [own.key, own]));
  const added: Difference[] = [];
  const changed: Difference[][] = [];
  const removed: Difference[] = [];
  for (const [override, { rules, until }] of after) {
    const was = before.get(override);
    if (!was) {
      added.push({ kind: 'added', place: { override }, after: rules });
      continue;
    }
    const inside = [
      ...fieldDifference(was.until ? { until: was.until } : {}, until ? { until } : {}, { override, field: 'until' }),
      ...ruleDifferences(was.rules, rules, { override }),
    ];
    if (inside.length > 0) changed.push(inside);
  }
  for (const [override, { rules }] of before) {
    if (!after.has(override)) removed.push({ kind: 'removed', place: { override }, before: rules });
  }
  const changes: Difference[] =
    changed.length > OVERRIDES_SHOWN ? [summary('changed', changed.length)] : changed.flat();
  return [...fewer('added', added), ...changes, ...fewer('removed', removed)];
}

function fewer(kind: 'added' | 'removed', found: Difference[]): Difference[] {
  return found.length > OVERRIDES_SHOWN ? [summary(kind, found.length)] : found;
}

function summary(kind: Difference['kind'], count: number): Difference {
  return { kind, place: { field: 'overrides' }, count };
}

function whole(rule: Rule): Json {
  return { name: rule.name, [rule.algorithm]: rule.params };
}

const SUMMARY: Record<Difference['kind'], Key> = {
  added: 'policy.diff.keys_added',
  changed: 'policy.diff.keys_changed',
  removed: 'policy.diff.keys_removed',
  moved: 'policy.diff.keys_changed',
};

const FIELDS: Record<string, Key> = {
  key: 'policy.field.key',
  match: 'policy.field.match',
  rules: 'policy.field.rules',
  overflow: 'policy.field.overflow',
  carry: 'policy.field.carry',
  on_store_failure: 'policy.field.on_store_failure',
  leases: 'policy.field.leases',
  apps: 'policy.field.apps',
  until: 'policy.field.until',
};

function describeField(field: string, isOfRule: boolean, translator: Translator): string {
  const key = (isOfRule ? PARAM_LABELS : FIELDS)[field];
  return key ? translator.t(key) : field;
}

/** The place of a difference: `rule burst · Rate`. */
export function describePlace({ override, rule, field }: Place, translator: Translator): string {
  const parts = [];
  if (override !== undefined) parts.push(translator.t('policy.diff.override', { key: override }));
  if (rule !== undefined) parts.push(translator.t('policy.diff.rule', { rule }));
  if (field !== undefined) parts.push(describeField(field, rule !== undefined, translator));
  return parts.join(' · ');
}

/** A side of a difference: `100/s`. */
export function describeSide(value: Json | undefined, translator: Translator): string {
  const rule = ruleOf(value);
  if (rule) return describeRule(rule, translator);
  if (parseRate(value)) return describeRate(value, translator);
  return parseDuration(value) === undefined ? describeValue(value, translator) : describeDuration(value, translator);
}

/** A difference in a line: `rule burst · Rate: 100/s → 150/s`. */
export function describeDifference(difference: Difference, translator: Translator): string {
  const { kind, place, before, after, count } = difference;
  if (count !== undefined) return translator.t(SUMMARY[kind], { count });
  const where = describePlace(place, translator);
  switch (kind) {
    case 'added':
      return translator.t('policy.diff.added', { where, after: describeSide(after, translator) });
    case 'removed':
      return translator.t('policy.diff.removed', { where, before: describeSide(before, translator) });
    default:
      return translator.t('policy.diff.changed', {
        where,
        before: describeSide(before, translator),
        after: describeSide(after, translator),
      });
  }
}
