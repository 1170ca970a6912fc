/** The permits that callers have left after a change of a limit, for each way to carry usage over. */

import { limitOf, rulesOf } from './document.ts';
import type { Json } from './json.ts';

export const CARRIES = ['usage', 'proportional', 'reset'] as const;
export type Carry = (typeof CARRIES)[number];

export interface Carried {
  rule: string;
  /** The part of the old limit that was in use, as an example. */
  used: number;
  before: number;
  after: number;
  /** The rest of the new limit. */
  left: Record<Carry, number>;
}

/** Each rule whose limit changes, with the numbers of a caller that used nine tenths of it. */
export function carried(before: Json | undefined, after: Json | undefined): Carried[] {
  const old = rulesOf(before);
  return rulesOf(after).flatMap((rule) => {
    const was = old.find((other) => other.name === rule.name);
    const [from, to] = [was && limitOf(was), limitOf(rule)];
    if (from === undefined || to === undefined || from === to) return [];
    const used = Math.ceil(from * 0.9);
    // Held permits stay held, whatever the policy is.
    const isHeld = rule.algorithm === 'concurrency';
    const usage = Math.max(0, to - used);
    const proportional = isHeld ? usage : to - scaled(used, to, from);
    return [{ rule: rule.name, used, before: from, after: to, left: { usage, proportional, reset: to } }];
  });
}

/** `used · to / from`, rounded up as the server does; exact beyond 2^53. */
function scaled(used: number, to: number, from: number): number {
  const product = BigInt(used) * BigInt(to);
  return Number((product + BigInt(from) - 1n) / BigInt(from));
}
