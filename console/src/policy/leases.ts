/** `leases` of a policy in the form, and the reasons why permits are never leased: the rules of docs/leases.md. */

import { describePlace } from './diff.ts';
import { type Rule, limitOf, overridesOf, rulesOf } from './document.ts';
import { type Json, get, isObject } from './json.ts';
import { parseDuration } from './units.ts';
import { type Translator, describeTime } from './describe.ts';

export const LEASES = ['auto', 'off', 'within'] as const;
export type Leases = (typeof LEASES)[number];

/** The bounds of `auto`. */
export const SHARE = '5%';
export const TERM = '2s';

export const LEASES_STARTS: Record<Leases, Json | undefined> = {
  auto: undefined,
  off: 'off',
  within: { max_share: SHARE, term: TERM },
};

/** Requests after which a key is leased; a node must be allowed to hold permits for them. */
const HOT_ASKS = 8;

export function leasesOf(document: Json): Leases {
  const leases = get(document, ['leases']);
  if (isObject(leases)) return 'within';
  return leases === 'off' ? 'off' : 'auto';
}

/** Returns the first reason why the server refuses bounds of leases; undefined: it accepts them. */
export function neverLeased(document: Json, translator: Translator): string | undefined {
  const own = overridesOf(document).map(({ key, rules }) => ({ override: key, rules: rulesOf({ rules }) }));
  for (const { override, rules } of [{ override: undefined, rules: rulesOf(document) }, ...own]) {
    for (const rule of rules) {
      const where = describePlace({ override, rule: rule.name }, translator);
      const why = neverOf(rule, where, translator);
      if (why) return why;
    }
  }
  return get(document, ['overflow', 'queue']) === undefined ? undefined : translator.t('policy.leases.queue');
}

/** Returns the reason why keys without own limits are not leased although the rules permit it; undefined: they are. */
export function tooSmall(document: Json, translator: Translator): string | undefined {
  const [, percent] = /^([1-9][0-9]?)%$/.exec(String(get(document, ['leases', 'max_share']) ?? SHARE)) ?? [];
  const limit = Math.min(...rulesOf(document).flatMap((rule) => limitOf(rule) ?? []));
  const min = Math.ceil((HOT_ASKS * 100) / Number(percent));
  return limit < min ? translator.t('policy.leases.limit', { limit, min }) : undefined;
}

function neverOf({ algorithm, params }: Rule, where: string, { t, locale }: Translator): string | undefined {
  switch (algorithm) {
    case 'token_bucket':
      return undefined;
    case 'leaky_bucket':
      return params.delay === 'none' ? undefined : t('policy.leases.delay', { where });
    case 'smooth_bursty':
    case 'smooth_warmup':
      return t('policy.leases.books', { where });
    case 'concurrency':
      return t('policy.leases.ids', { where });
    default: {
      const min = algorithm === 'fixed_window' ? 1e6 : 10e6;
      const isShort = (parseDuration(params.window) ?? min) < min;
      return isShort ? t('policy.leases.window', { where, min: describeTime(min, { t, locale }) }) : undefined;
    }
  }
}
