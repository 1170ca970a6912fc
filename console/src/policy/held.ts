import type { Schema } from '../lib/api.ts';

/** Digits of an id that are shown: enough to tell a hundred permits apart. */
const SHOWN = 8;

/** Returns the beginning of the id of a permit. */
export function shortId(permit: string): string {
  return `${permit.slice(0, SHOWN)}…`;
}

/** Returns whether the key's policy holds permits that can be listed: without the store there are no rules. */
export function holdsPermits(explained: Pick<Schema['ExplainedKey'], 'rules'>): boolean {
  return (explained.rules ?? []).some(({ algorithm }) => algorithm === 'concurrency');
}

/** Returns how many held permits the server has not listed. */
export function unlisted({ items, total }: Pick<Schema['HeldPermits'], 'items' | 'total'>): number {
  return Math.max(0, total - items.length);
}
