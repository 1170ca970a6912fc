/** The notation of numbers and people on pages, written here once more: the test does not use the console's code. */

import type { AuditRow, Document, VersionRow } from './facts.ts';
import type { Counts } from './load.ts';

export const number = (value: number): string => value.toLocaleString('en-GB');
/** `1 token expires soon`, `2 tokens expire soon`. */
export const some = (count: number, one: string, other: string): string =>
  `${number(count)} ${count === 1 ? one : other}`;

/** With one decimal; nothing and all are exact, and a number close to one of them does not look like it. */
export function share(part: number, whole: number): string {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  if (percent === 0 || percent === 100) return `${percent}%`;
  if (percent < 0.1) return '<0.1%';
  return percent > 99.9 ? '>99.9%' : `${percent.toFixed(1)}%`;
}

export function listed(words: string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

export const person = (actor: string): string =>
  ({ operator: 'The command line', nobody: 'An unknown visitor', provider: 'The sign-in provider' })[actor] ??
  actor.replace(/^account:/, '');

export const time = (at: number): string => `⟨${at}⟩`;
/** Hours and minutes, as pages without a zone of their own show them. */
export const clock = (at: number): string => new Date(at).toISOString().slice(11, 16);
/** To the second. */
export const seconds = (at: number): string => new Date(at).toISOString().slice(11, 19);
const quoted = (reason: string): string => (reason ? `“${reason}”` : '');

/** `62.5% refused and 25.0% would have been refused`. */
export function parts({ decided, refused, shadowed, shed, withoutStore }: Counts): string {
  const of = (count: number, words: string) => (count > 0 ? [`${share(count, decided)} ${words}`] : []);
  return listed([
    `${share(refused, decided)} refused`,
    ...of(shadowed, 'would have been refused'),
    ...of(shed, 'met an overloaded store'),
    ...of(withoutStore, 'decided without the store'),
  ]);
}

export function limitWords({ rules }: Document): string {
  return rules
    .map(({ fixed_window: { limit, window } }) => `${number(limit)} in each ${window === '1h' ? 'hour' : 'minute'}`)
    .join(' · ');
}

export function ruleWords({ name, fixed_window: { limit, window } }: Document['rules'][number]): string {
  return `${name} · Fixed window · ≈ ${number(limit * (window === '1h' ? 24 : 1_440))} a day for each key`;
}

/** Returns the changes of a version: tests here change the state or the limit. */
export function changeWords(version: VersionRow, before: VersionRow | undefined): string {
  if (!before) return 'created';
  const words = before.state === version.state ? [] : [version.state === 'active' ? 'activated' : 'moved to shadow'];
  const [was, is] = [before.document.rules[0]!, version.document.rules[0]!].map(
    ({ fixed_window }) => fixed_window.limit,
  ) as [number, number];
  if (was !== is) words.push(`rule main · Limit: ${number(was)} → ${number(is)}`);
  return words.join(' · ') || 'no change of rules';
}

export function changeSentence(version: VersionRow, before: VersionRow | undefined): string {
  const verb = !before
    ? 'created'
    : before.state === version.state
      ? 'changed'
      : version.state === 'active'
        ? 'activated'
        : '';
  const words = verb ? `${verb} the policy ${version.policy}` : `moved the policy ${version.policy} to shadow`;
  return `${person(version.author)} ${words}${quoted(version.reason)}${before ? `Compare v${before.version} → v${version.version}` : ''}`;
}

/** Sentences about actions; `_` is the place of the target. */
const DONE: Record<string, string> = {
  setup: 'used the setup token to create the first account, _',
  'app.create': 'created the app _',
  'account.create': 'created the account _',
  'member.update': 'set the role of _ in APP',
  'policy.create': 'created the policy _',
  'policy.update': 'changed the policy _',
  'policy.activate': 'activated the policy _',
  'policy.shadow': 'moved the policy _ to shadow',
  'token.create': 'created the token _',
  'token.revoke': 'revoked the token _',
  'session.create': 'signed in',
  'session.oidc': 'signed in _',
};
const DENIED: Record<string, string> = {
  'session.create': 'was denied: sign in as _',
  'policy.delete': 'was denied: delete the policy _',
};

export function auditSentence({ actor, action, app, target, outcome, reason, after }: AuditRow): string {
  const words = (outcome === 'denied' ? DENIED : DONE)[action];
  if (words === undefined) return `${action} ${target} (${outcome}): the test has no words for it`;
  const name =
    action === 'member.update'
      ? target.replace(/^.*\//, '')
      : action.startsWith('token.')
        ? (JSON.parse(after ?? '{}').name ?? target)
        : target;
  // Actions that are denied too often in a minute have entries of the first ones only.
  const unnoted = Number(/"unnoted_before":(\d+)/.exec(after ?? '')?.[1] ?? 0);
  const more =
    unnoted > 0
      ? `· ${some(unnoted, 'more denied attempt before it was', 'more denied attempts before it were')} counted, not written`
      : '';
  return `${person(actor)} ${words.replace('_', name).replace('APP', app ?? '')} ${quoted(reason)}${more}`.trim();
}
