/** Limits in the words of people: `100/s, up to 200 at once`. */

import type { Key } from '../lib/i18n/index.svelte.ts';
import { type Rule, limitOf, ruleOf, rulesOf } from './document.ts';
import { type Json, isObject } from './json.ts';
import { UNITS, type Unit, inUnits, parseDuration, parseRate } from './units.ts';
import { flow } from './yaml.ts';

/** The messages and the locale of a language. */
export interface Translator {
  t(key: Key, params?: Record<string, string | number>): string;
  locale(): string;
}

const RATE: Record<Unit, Key> = {
  us: 'policy.rate.us',
  ms: 'policy.rate.ms',
  s: 'policy.rate.s',
  m: 'policy.rate.m',
  h: 'policy.rate.h',
  d: 'policy.rate.d',
};

const CALENDAR: Record<string, Key> = {
  day: 'policy.words.day',
  week: 'policy.words.week',
  month: 'policy.words.month',
  year: 'policy.words.year',
};

const TIME: Record<Unit, Key> = {
  us: 'policy.time.us',
  ms: 'policy.time.ms',
  s: 'policy.time.s',
  m: 'policy.time.m',
  h: 'policy.time.h',
  d: 'policy.time.d',
};

/** All rules of a policy: `100/s, up to 200 at once · 5,000 in any hour`. */
export function describeLimits(document: Json | undefined, translator: Translator): string {
  return rulesOf(document)
    .map((rule) => describeRule(rule, translator))
    .join(' · ');
}

export function describeRule(rule: Rule, translator: Translator): string {
  const { algorithm, params } = rule;
  const { t } = translator;
  const rate = describeRate(params.rate, translator);
  const limit = describeValue(params.limit, translator);
  const windowUs = parseDuration(params.window);
  const span =
    windowUs === undefined
      ? describeValue(params.window, translator)
      : describeSpan(algorithm === 'fixed_window' ? 'each' : 'any', windowUs, translator);
  switch (algorithm) {
    case 'token_bucket': {
      const burst = limitOf(rule) ?? '?';
      if (params.refill === 'interval') return t('policy.words.interval', { rate, burst });
      return burst === parseRate(params.rate)?.permits ? rate : t('policy.words.bucket', { rate, burst });
    }
    case 'leaky_bucket': {
      const burst = describeValue(params.burst ?? 0, translator);
      if (params.delay === 'none') return t('policy.words.meter', { rate, burst });
      return params.burst ? t('policy.words.leaky_burst', { rate, burst }) : t('policy.words.leaky', { rate });
    }
    case 'smooth_bursty':
      return t('policy.words.bursty', { rate, span: describeDuration(params.max_burst ?? '1s', translator) });
    case 'smooth_warmup':
      return t('policy.words.warmup', { rate, span: describeDuration(params.warmup, translator) });
    case 'fixed_window': {
      const calendar = CALENDAR[String(params.calendar)];
      if (!calendar) return t('policy.words.fixed', { limit, span });
      return t(calendar, { limit, zone: describeValue(params.time_zone ?? 'UTC', translator) });
    }
    case 'sliding_window':
    case 'sliding_log':
      return t('policy.words.sliding', { limit, span });
    case 'sliding_counter':
      return t('policy.words.counter', { limit, span });
    case 'concurrency':
      return t('policy.words.concurrency', { limit });
  }
}

export function describeRate(text: Json | undefined, translator: Translator): string {
  const rate = parseRate(text);
  if (!rate) return describeValue(text, translator);
  const amount = new Intl.NumberFormat(translator.locale(), { maximumFractionDigits: 6 }).format(rate.count);
  const n = rate.bytes ? `${amount} ${rate.bytes}` : amount;
  const [count, unit] = inUnits(rate.countUs);
  if (count === 1) return translator.t(RATE[unit], { n });
  return translator.t('policy.rate.span', { n, span: describeTime(rate.countUs, translator) });
}

export function describeDuration(text: Json | undefined, translator: Translator): string {
  const us = parseDuration(text);
  return us === undefined ? describeValue(text, translator) : describeTime(us, translator);
}

const SPAN: Record<'each' | 'any', Partial<Record<Unit, Key>>> = {
  each: { s: 'policy.each.s', m: 'policy.each.m', h: 'policy.each.h', d: 'policy.each.d' },
  any: { s: 'policy.span.s', m: 'policy.span.m', h: 'policy.span.h', d: 'policy.span.d' },
};

/** A span after the word "each" or "any": `hour`, `10 min`. */
export function describeSpan(word: 'each' | 'any', us: number, translator: Translator): string {
  const [n, unit] = inUnits(us);
  const one = n === 1 && SPAN[word][unit];
  if (one) return translator.t(one);
  const time = describeTime(us, translator);
  return word === 'each' ? translator.t('policy.each.time', { time }) : time;
}

/** Exactly `us`, in the largest unit that divides it. */
export function describeTime(us: number, translator: Translator): string {
  const [n, unit] = inUnits(us);
  return translator.t(TIME[unit], { n });
}

/** About `us`, rounded up, for waits: `12 s`, `8:41` from a minute to an hour, `3 h`. */
export function describeWait(us: number, translator: Translator): string {
  if (us > 60e6 && us < 3600e6) {
    const seconds = Math.ceil(us / 1e6);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
  }
  const [unit, size] = UNITS.find(([, size]) => us >= 1.5 * size) ?? UNITS.at(-1)!;
  return translator.t(TIME[unit], { n: Math.ceil(us / size) });
}

/** A part of a document in one line. */
export function describeValue(value: Json | undefined, translator: Translator): string {
  if (value === undefined) return '–';
  if (typeof value === 'number') return new Intl.NumberFormat(translator.locale()).format(value);
  if (typeof value === 'string') return value;
  const rule = ruleOf(value);
  if (rule) return describeRule(rule, translator);
  if (Array.isArray(value)) return value.map((item) => describeValue(item, translator)).join(', ') || '–';
  return isObject(value) ? flow(value) : String(value);
}
