import { countsOf, fiveMinutes, quarter, type Facts, type PageName, type PolicyRow } from './facts.ts';
import type { Counts } from './load.ts';
import type { Sentence } from './read.ts';

/** A sentence that pages show, and its right text. */
export interface Rule {
  name: string;
  pages?: PageName[];
  /** The region of the sentence; none: any. */
  region?: string | RegExp;
  is: RegExp;
  /** The right sentence; undefined: it should not be there. */
  right: (facts: Facts, at: Sentence, match: RegExpExecArray) => string | undefined;
  /** The number of times that the sentence must be there; without it, any number. */
  times?: (facts: Facts) => number;
}

export const row = ({ row: name }: Sentence): string => name.split(' ')[0]!;
export const policyNamed = (facts: Facts, name: string): PolicyRow | undefined =>
  facts.policies.find((policy) => policy.name === name);
export const policyOf = (facts: Facts): PolicyRow => policyNamed(facts, facts.policy)!;
export const inApp = (facts: Facts): PolicyRow[] => facts.policies.filter(({ app }) => app === facts.app);
export const inShadow = (policies: PolicyRow[]): number => policies.filter(({ state }) => state === 'shadow').length;
export const ofApp = (facts: Facts, app: string): Counts => countsOf(facts, { app }, fiveMinutes(facts.now));
export const ofPolicy = (facts: Facts, policy: string): Counts => countsOf(facts, { policy }, fiveMinutes(facts.now));
export const appsWith = (facts: Facts, is: (counts: Counts) => boolean): number =>
  facts.apps.filter(({ name }) => is(ofApp(facts, name))).length;
export const policiesWith = (facts: Facts, is: (counts: Counts) => boolean): number =>
  inApp(facts).filter(({ name }) => is(ofPolicy(facts, name))).length;
export const ending = (facts: Facts) =>
  facts.tokens.filter((token) => isLive(facts, token) && token.expires_at <= facts.now + 14 * 86_400_000);
export const isLive = ({ now }: Facts, token: Facts['tokens'][number]) =>
  token.revoked_at === null && token.expires_at > now;
export const charted = (facts: Facts): Counts =>
  countsOf(facts, facts.page === 'app' ? { app: facts.app } : { policy: facts.policy }, quarter(facts.now));
export const versionsOf = (facts: Facts, policy: string) =>
  facts.versions.filter((version) => version.policy === policy);
export const withBefore = (facts: Facts, place: number, of = facts.versions) => {
  const version = of[place];
  const before =
    version && facts.versions.find((other) => other.policy === version.policy && other.version === version.version - 1);
  return [version, before] as const;
};
