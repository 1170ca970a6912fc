import type { Schema } from '../api.ts';
import { has, t, type Key } from '../i18n/index.svelte.ts';
import { visible } from '../text.ts';

type Entry = Schema['Entry'];

/**
 * Returns the entry as a sentence without its subject, with the target apart: `changed the policy `, `login`, ``; of a
 * denied attempt `was denied: change the policy `, `login`, ``, and of one that failed `failed to …`.
 */
export function actionParts(entry: Entry): [string, string, string] {
  const [before = '', after] = describeAction(entry, TARGET).split(TARGET);
  return after === undefined ? [before, '', ''] : [before, visible(nameOf(entry)), after];
}

/** The sentence about an action on anything. */
export function actionLabel(action: string): string {
  const key = `audit.action.${action}`;
  return has(key) ? t(key, { target: '…', app: '…' }) : action;
}

const TARGET = '\ue000';

function describeAction(entry: Entry, target: string): string {
  if (entry.outcome === 'denied') return describeAttempt('audit.was_denied', entry, target);
  if (entry.outcome === 'failed') return describeAttempt('audit.has_failed', entry, target);
  const key = `audit.action.${entry.action}${detailOf(entry)}`;
  const found = has(key) ? key : `audit.action.${entry.action}`;
  if (!has(found)) return `${entry.action} ${target}`;
  return t(found as Key, { target, app: entry.app ?? '', key: visible(keyOf(entry) ?? '') });
}

/** The action that was not done. An action without a target is about something that does not exist yet. */
function describeAttempt(outcome: 'audit.was_denied' | 'audit.has_failed', entry: Entry, target: string): string {
  const detail = entry.actor === `account:${entry.target}` ? '.self' : entry.target === '' ? '.any' : '';
  const keys = [`audit.deny.${entry.action}${detail}`, `audit.deny.${entry.action}`];
  const found = keys.find(has);
  const what = found ? t(found as Key, { target, app: entry.app ?? '' }) : `${entry.action} ${target}`;
  return t(outcome, { what });
}

/** The key that an action changed, if the entry names it; null: the budget that all share. */
export function keyOf({ action, after }: Entry): string | null | undefined {
  const value = action.startsWith('key.') ? parse(after ?? '') : undefined;
  if (typeof value !== 'object' || value === null || !('key' in value)) return undefined;
  return typeof value.key === 'string' ? value.key : null;
}

/** Values before and after, as readable JSON. */
export function valueText(value: string | null | undefined): string {
  if (value === null || value === undefined) return '';
  const json = parse(value);
  return json === undefined ? visible(value) : JSON.stringify(json, null, 2);
}

/** The version that a change of a policy made; 0 if the entry has none. */
export function versionOf({ after }: Entry): number {
  const value = parse(after ?? '');
  return typeof value === 'object' && value !== null && 'version' in value ? Number(value.version) || 0 : 0;
}

/** Denied attempts of the same caller since its last entry: there were too many for an entry each. */
export function suppressedOf({ after }: Entry): number {
  const value = parse(after ?? '');
  return typeof value === 'object' && value !== null && 'unnoted_before' in value
    ? Number(value.unnoted_before) || 0
    : 0;
}

/** Returns the target in the words of people: a token by its name, not its identifier, and a member without the app. */
function nameOf(entry: Entry): string {
  if (entry.action === 'member.update' && entry.app) return entry.target.replace(`${entry.app}/`, '');
  const value = parse(entry.after ?? entry.before ?? '');
  const hasName = entry.action.startsWith('token.') && typeof value === 'object' && value !== null && 'name' in value;
  return hasName ? String(value.name) : entry.target;
}

/** A member's change without a value after it is a removal; people sign in and out as themselves. */
function detailOf(entry: Entry): string {
  if (entry.actor === `account:${entry.target}`) return '.self';
  if (typeof keyOf(entry) === 'string') return '.of';
  return entry.action === 'member.update' && entry.outcome === 'done' && !hasValueAfter(entry) ? '.removed' : '';
}

/** Returns whether the entry has a value after the change. A change in spite of warnings has their codes beside it. */
function hasValueAfter({ after }: Entry): boolean {
  const value = after ? parse(after) : undefined;
  return typeof value === 'object' && value !== null && 'forced' in value ? 'value' in value : !!after;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
