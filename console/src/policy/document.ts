/** Views of a policy document. Everything tolerates documents that the server would refuse. */

import { ALGORITHM_NAMES, type AlgorithmName, paramsOf } from './algorithms.ts';
import { type Json, type JsonObject, get, isObject } from './json.ts';
import { parseDuration, parseRate } from './units.ts';

export const RULES_MAX = 8;

/** The order in which people read a policy. The server sorts fields by their names. */
export const POLICY_FIELDS = [
  'name',
  'apps',
  'match',
  'key',
  'rules',
  'overrides',
  'overflow',
  'carry',
  'on_store_failure',
  'on_overload',
  'on_key_quota',
  'leases',
] as const;

const PARAM_FIELDS = [...new Set(ALGORITHM_NAMES.flatMap((name) => paramsOf(name).map((p) => p.name)))];
const RULE_FIELDS = ['name', ...ALGORITHM_NAMES];
const OTHER_FIELDS = ['path', 'method', 'status', 'headers', 'body', 'max_share', 'term'];

/** A new field takes its place by this order, whatever object it is in. */
export const FIELD_ORDER = [...POLICY_FIELDS, ...RULE_FIELDS.slice(1), ...PARAM_FIELDS, ...OTHER_FIELDS];

/** The values of fields that a document leaves out. */
export const DEFAULTS: Readonly<Record<string, Json>> = {
  overrides: [],
  overflow: 'reject',
  carry: 'usage',
  on_store_failure: 'local',
  on_overload: 'refuse',
  on_key_quota: 'share',
  leases: 'auto',
};

export interface Rule {
  /** The name that carries usage over; a rule without one has that of the algorithm. */
  name: string;
  algorithm: AlgorithmName;
  params: JsonObject;
}

export interface Override {
  key: string;
  rules: Json[];
  /** The end of the override, in UTC; undefined: never. */
  until: string | undefined;
}

/** The rule that `value` describes, if it names one known algorithm. */
export function ruleOf(value: Json | undefined): Rule | undefined {
  if (!isObject(value)) return undefined;
  const [algorithm, more] = ALGORITHM_NAMES.filter((name) => Object.hasOwn(value, name));
  if (algorithm === undefined || more !== undefined) return undefined;
  const params = value[algorithm];
  if (!isObject(params)) return undefined;
  return { name: typeof value.name === 'string' ? value.name : algorithm, algorithm, params };
}

export function listOf(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

export function rulesOf(document: Json | undefined): Rule[] {
  const rules = isObject(document) ? listOf(document.rules) : [];
  return rules.map(ruleOf).filter((rule) => rule !== undefined);
}

export function overridesOf(document: Json | undefined): Override[] {
  const overrides = isObject(document) ? listOf(document.overrides) : [];
  return overrides.flatMap((item) =>
    isObject(item) && typeof item.key === 'string'
      ? [{ key: item.key, rules: listOf(item.rules), until: typeof item.until === 'string' ? item.until : undefined }]
      : [],
  );
}

export function textsOf(value: Json | undefined): string[] {
  return listOf(value).filter((item) => typeof item === 'string');
}

/** The requests of `match`, one text for each case: hosts, methods, path, and its exceptions after `−`. */
export function matchWords(match: Json | undefined): string[] {
  const words = (of: Json) =>
    [
      textsOf(get(of, ['host'])).join(' '),
      textsOf(get(of, ['method'])).join(' '),
      String(get(of, ['path', 'exact']) ?? ''),
      ...['prefix', 'starts_with']
        .map((kind) => get(of, ['path', kind]))
        .filter((path) => path !== undefined)
        .map((path) => `${String(path)} …`),
    ]
      .filter(Boolean)
      .join(' ');
  const cases = Array.isArray(match) ? match : match === undefined ? [] : [match];
  return cases.map((of) => {
    const except = listOf(get(of, ['except']))
      .map(words)
      .join(', ');
    return except ? `${words(of)} − ${except}`.trim() : words(of);
  });
}

/**
 * Returns whether each key has a budget of its own. Gateways make the key of the attributes in `key`; without it, all
 * requests that `match` share one budget. Programs that name the policy send keys.
 */
export function isByKey(document: Json | undefined): boolean {
  return isObject(document) && (listOf(document.key).length > 0 || document.match === undefined);
}

/** The permits that a full budget has, as decisions report them. Guava's two have no such number. */
export function limitOf({ algorithm, params }: Rule): number | undefined {
  switch (algorithm) {
    case 'token_bucket':
      return numberOf(params.burst) ?? parseRate(params.rate)?.permits;
    case 'leaky_bucket':
      return parseRate(params.rate) && (numberOf(params.burst) ?? 0) + 1;
    case 'smooth_bursty':
    case 'smooth_warmup':
      return undefined;
    default:
      return numberOf(params.limit);
  }
}

/** Returns the permits of a day in which every permit is used, without the burst at its start. */
export function perDay({ algorithm, params }: Rule): number | undefined {
  const day = 86_400_000_000;
  const rate = parseRate(params.rate);
  if (rate) return (rate.permits * day) / rate.periodUs;
  const limit = numberOf(params.limit);
  if (limit === undefined || algorithm === 'concurrency') return undefined;
  const calendar = { day: 1, week: 7, month: 30, year: 365 }[String(params.calendar)];
  if (calendar) return limit / calendar;
  const window = parseDuration(params.window);
  return window && (limit * day) / window;
}

/** `document` in the order in which people read it; unknown fields come last, in their order. */
export function arranged(value: Json): Json {
  if (Array.isArray(value)) return value.map(arranged);
  if (!isObject(value)) return value;
  const rank = (name: string) => {
    const place = FIELD_ORDER.indexOf(name);
    return place < 0 ? FIELD_ORDER.length : place;
  };
  const entries = Object.entries(value).sort(([a], [b]) => rank(a) - rank(b));
  return Object.fromEntries(entries.map(([name, item]) => [name, arranged(item)]));
}

function numberOf(value: Json | undefined): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
