import { countsOf, type Facts } from './facts.ts';
import type { Counts } from './load.ts';
import { policyOf, row, versionsOf, withBefore, type Rule } from './rules.ts';
import * as words from './words.ts';
import { number, share, some, time } from './words.ts';

/** Returns the time since which the policy of the page has its state. */
function stateSince(facts: Facts): number {
  const [newest, ...older] = versionsOf(facts, facts.policy);
  const last = older.findIndex(({ state }) => state !== newest!.state);
  return (last < 0 ? (older.at(-1) ?? newest!) : last === 0 ? newest! : older[last - 1]!).at;
}
const ceil = (at: number): number => Math.ceil(at / 10_000) * 10_000;
const sinceState = (facts: Facts): Counts => countsOf(facts, { policy: facts.policy }, ceil(stateSince(facts)));
const wasInShadow = (facts: Facts): boolean =>
  policyOf(facts).state === 'active' && versionsOf(facts, facts.policy).some(({ state }) => state === 'shadow');

/** Returns the sentences about requests that met no limit, in the cards of a policy. */
function unlimited({ shed, withoutStore }: Counts): string {
  const them = shed === 1 ? 'it' : 'them';
  return [
    shed > 0 && `${some(shed, 'request', 'requests')} met an overloaded store: no limit was asked about ${them}.`,
    withoutStore > 0 && `${number(withoutStore)} ${withoutStore === 1 ? 'was' : 'were'} decided without the store.`,
  ]
    .filter(Boolean)
    .map((sentence) => ` ${sentence}`)
    .join('');
}

/** The sentences of the page of a policy, beside those that other pages have, too. */
export const POLICY: Rule[] = [
  {
    name: 'version of the policy',
    region: '',
    is: /^· v\d+ · .*$/,
    right: (facts) => {
      const { version, updated_at, updated_by } = policyOf(facts);
      return `· v${version} · ${words.person(updated_by)} · ${time(updated_at)}`;
    },
    times: () => 1,
  },
  {
    name: 'state of the policy',
    region: '',
    is: /^(active|in shadow)$/,
    right: (facts) => (policyOf(facts).state === 'active' ? 'active' : 'in shadow'),
    times: () => 1,
  },
  {
    name: 'in shadow since',
    is: /^In shadow, last changed ⟨\d+⟩$/,
    right: (facts) =>
      policyOf(facts).state === 'shadow' ? `In shadow, last changed ${time(policyOf(facts).updated_at)}` : undefined,
    times: (facts) => Number(policyOf(facts).state === 'shadow'),
  },
  {
    name: 'what the shadow would have refused',
    region: /^In shadow/,
    is: /^(It would have refused|No requests yet).*$/,
    right: (facts, at) => {
      const counts = sinceState(facts);
      const { decided, shadowed, shed } = counts;
      const all = facts.load.refusals(facts.policy).size;
      const shown = Number(/At least (\d+) key/.exec(at.text)?.[1] ?? 0);
      // Pages know the longest list of one node. Where a slow store met no limit, no node may have all keys in its own.
      const keys = shed > 0 && shown > 0 ? Math.min(shown, all) : all;
      const began = ` Counting began ${time(ceil(stateSince(facts)))}`;
      if (decided === 0) return `No requests yet.${began}`;
      return `It would have refused ${share(shadowed, decided)} (${number(shadowed)} of ${number(decided)}).${keys > 0 ? ` At least ${some(keys, 'key', 'keys')}.` : ''}${unlimited(counts)}${began}`;
    },
    times: (facts) => Number(policyOf(facts).state === 'shadow'),
  },
  {
    name: 'active since',
    is: /^Active since ⟨\d+⟩$/,
    right: (facts) => (wasInShadow(facts) ? `Active since ${time(stateSince(facts))}` : undefined),
    times: (facts) => Number(wasInShadow(facts)),
  },
  {
    name: 'what was refused since the policy is active',
    region: /^Active since/,
    is: /^(Refused|Nothing).*$/,
    right: (facts) => {
      const counts = sinceState(facts);
      const { decided, refused } = counts;
      const since = words.seconds(ceil(stateSince(facts)));
      if (decided === 0) return `Nothing is counted yet. Counting starts at ${since}.`;
      return `Refused ${number(refused)} of ${number(decided)} requests since ${since} (${share(refused, decided)}).${unlimited(counts)}`;
    },
    times: (facts) => Number(wasInShadow(facts)),
  },
  {
    name: 'limit below the chart',
    region: 'Traffic',
    is: /^Limit for each key: .*$/,
    right: (facts) => `Limit for each key: ${words.limitWords(policyOf(facts).document)}`,
    times: () => 1,
  },
  {
    name: 'limit of a rule',
    region: 'Rules',
    is: /^\d[\d,]* in each .*$/,
    right: (facts) => words.limitWords(policyOf(facts).document),
    times: () => 1,
  },
  {
    name: 'rule',
    region: 'Rules',
    is: /^\S+ · Fixed window · .*$/,
    right: (facts, at) => words.ruleWords(policyOf(facts).document.rules[at.place]!),
    times: () => 1,
  },
  {
    name: 'while the store is away',
    region: 'Rules',
    is: /^(each node decides its share|allow everything|refuse everything)$/,
    right: (facts) =>
      ({ allow: 'allow everything', deny: 'refuse everything' })[policyOf(facts).document.on_store_failure ?? ''] ??
      'each node decides its share',
    times: () => 1,
  },
  {
    name: 'number of a version',
    region: 'Versions',
    is: /^v\d+$/,
    right: (facts, at) => `v${versionsOf(facts, facts.policy)[at.place]!.version}`,
    times: (facts) => Math.min(6, versionsOf(facts, facts.policy).length),
  },
  {
    name: 'what a version changed',
    region: 'Versions',
    is: /^(created|activated|moved to shadow|rule .*|no change of rules)( · .*)?$/,
    right: (facts, at) =>
      words.changeWords(
        ...(withBefore(facts, at.place, versionsOf(facts, facts.policy)) as [Facts['versions'][number], undefined]),
      ),
    times: (facts) => Math.min(6, versionsOf(facts, facts.policy).length),
  },
  {
    name: 'author of a version',
    region: 'Versions',
    is: /^.* · ⟨\d+⟩.*$/,
    right: (facts, at) => {
      const { author, at: ms, reason } = versionsOf(facts, facts.policy)[at.place]!;
      return `${words.person(author)} · ${time(ms)}${reason ? `· “${reason}”` : ''}`;
    },
  },
  {
    name: 'versions to compare',
    region: 'Versions',
    is: /^v\d+ → v\d+$/,
    right: (facts, at) =>
      `v${versionsOf(facts, facts.policy)[at.place + 1]?.version} → v${versionsOf(facts, facts.policy)[at.place]!.version}`,
  },
  {
    name: 'refusals of a key',
    region: 'Refused most, lately',
    is: /^(\d[\d,]*)(?:–(\d[\d,]*))? times?$/,
    right: (facts, at, [text, least = '', most = least]) => {
      const count = facts.load.refusals(facts.policy).get(row(at)) ?? 0;
      const value = (digits: string) => Number(digits.replaceAll(',', ''));
      return value(least) <= count && count <= value(most) ? text : `${number(count)} times`;
    },
    times: (facts) => facts.load.refusals(facts.policy).size,
  },
];
