/** Drafts of policies on the requests of a log. */

import type { Schema } from '../lib/api.ts';
import { ruleOf } from './document.ts';
import { edited } from './edit.ts';
import { type Json, get, isObject } from './json.ts';
import { PERMITS_MAX, type Rate, durationText, parseDuration, parseRate } from './units.ts';

export type Bucket = Schema['Compared']['timeline']['buckets'][number];

/** The attributes of a request in access logs, of which keys can be made. */
export const LOGGED = ['remote_ip', 'path', 'method', 'user_agent', 'status'] as const;

export interface WhatIfRequest {
  app: string;
  /** The policy that is drafted. */
  name: string;
  draft: Json;
  /** The attribute that is the key; none: the policy decides. */
  attribute?: string;
}

/** Returns the first line of the request. */
export function firstLine({ name, draft, attribute }: Omit<WhatIfRequest, 'app'>): Json {
  return {
    policies: { name, document: draft },
    // With a match, lines choose their policy.
    ...(get(draft, ['match']) === undefined && { policy: name }),
    ...(attribute && { key: [attribute] }),
  };
}

/** The number of a rule that people change first: its rate or its limit. */
export interface Dial {
  rule: string;
  /** The place of the rule in the list, from 0. */
  index: number;
  permits: number;
  max: number;
  /** The time in which the permits pass. */
  periodUs: number;
}

/** Returns the numbers of all rules that limit permits in a time. */
export function dialsOf(document: Json): Dial[] {
  const rules = get(document, ['rules']);
  return (Array.isArray(rules) ? rules : []).flatMap((value, index) => {
    const rule = ruleOf(value);
    if (!rule || rule.algorithm === 'concurrency') return [];
    const rate = parseRate(rule.params.rate);
    if (rate) {
      const permits = isFraction(rate) ? rate.permits : rate.count;
      return [{ rule: rule.name, index, permits, max: PERMITS_MAX, periodUs: rate.periodUs }];
    }
    const calendar = { day: 1, week: 7, month: 30, year: 365 }[String(rule.params.calendar)];
    const periodUs = calendar ? calendar * 86_400_000_000 : parseDuration(rule.params.window);
    const permits = rule.params.limit;
    return typeof permits === 'number' && periodUs
      ? [{ rule: rule.name, index, permits, max: PERMITS_MAX, periodUs }]
      : [];
  });
}

/** The document with another number. */
export function turned(document: Json, { index }: Dial, permits: number): Json {
  const value = get(document, ['rules', index]);
  const rule = ruleOf(value);
  if (!rule || !isObject(value)) return document;
  const { rate } = rule.params;
  const [name, next] = typeof rate === 'string' ? ['rate', withPermits(rate, permits)] : ['limit', permits];
  return edited(document, ['rules', index, rule.algorithm, name], next);
}

/** A step of the keyboard: a twentieth, at least 1. */
export function stepped(permits: number, by: number, max: number): number {
  const step = Math.max(1, Math.round(permits / 20));
  return Math.min(max, Math.max(1, permits + by * step));
}

/** `100/s` with 7 permits is `7/s`, and `2.5/s`, which is `5/2s`, is `7/2s`. */
function withPermits(text: string, permits: number): string {
  const rate = parseRate(text);
  if (rate && isFraction(rate)) return `${permits}/${durationText(rate.periodUs)}`;
  return text.replace(/^[0-9.]+/, String(permits));
}

function isFraction({ periodUs, countUs }: Rate): boolean {
  return periodUs !== countUs;
}
