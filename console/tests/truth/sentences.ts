import { isSilent, quarter, type Facts, type FleetNode, type PageName } from './facts.ts';
import { POLICY } from './policy.ts';
import type { Sentence } from './read.ts';
import {
  appsWith,
  charted,
  ending,
  inApp,
  inShadow,
  isLive,
  ofApp,
  ofPolicy,
  policiesWith,
  policyNamed,
  row,
  withBefore,
  type Rule,
} from './rules.ts';
import * as words from './words.ts';
import { number, share, some, time } from './words.ts';

/** Text with digits that reports no event. */
export const FREE: { is: RegExp; region?: string; why: string }[] = [
  { is: /^(15 min|1 h|24 h|7 d)$/, why: 'names of spans of time, on buttons' },
  { is: /^[\d.,]+(\/(s|min|h))?$/, region: 'Traffic', why: 'the scale of the picture' },
  { is: /^(Traffic|Refused), 5 min$/, region: 'Policies', why: 'heads of columns: their cells are compared' },
  {
    is: /^Traffic of the last 5 minutes\. /,
    region: '',
    why: 'says over which time is counted: all counts are compared with that',
  },
  {
    is: /^The servers that share this catalog\. Each reports every 10 s\.$/,
    region: '',
    why: 'a constant of the program',
  },
];

const reporting = (facts: Facts): FleetNode[] => facts.nodes.filter((node) => !isSilent(node, facts.now));
function inForce(facts: Facts): string {
  const current = reporting(facts).filter(({ revision }) => revision === facts.revision).length;
  return `Revision ${number(facts.revision)} is in force on ${current} of ${some(facts.nodes.length, 'node', 'nodes')}`;
}
const nodeAt = (facts: Facts, at: Sentence): FleetNode => facts.nodes[at.place]!;

const FRAME: Rule[] = [
  {
    name: 'version of the program',
    is: /^Version \S+$/,
    right: ({ software }) => `Version ${software}`,
    times: () => 1,
  },
  {
    name: 'revision in force',
    is: /^(rev \d+ – )?Revision .* is in force .*$/,
    right: (facts, { text }) => (text.startsWith('rev') ? `rev ${facts.revision} – ` : '') + inForce(facts),
  },
  { name: 'revision in short', is: /^rev \d+$/, right: ({ revision }) => `rev ${revision}`, times: () => 1 },
  {
    name: 'nodes without the store',
    is: /^\d+ of \d+ nodes cannot reach the store\. They follow the setting .*$/,
    right: (facts) => {
      const without = reporting(facts).filter(({ isWithoutStore }) => isWithoutStore).length;
      return without > 0
        ? `${without} of ${facts.nodes.length} nodes cannot reach the store. They follow the setting “While the store is away” of each policy.`
        : undefined;
    },
    times: (facts) => Number(reporting(facts).some(({ isWithoutStore }) => isWithoutStore)),
  },
];

/** The sentence about counts that a node has not reported, on each page that counts requests. */
const MISSING: Rule = {
  name: 'counts that are missing',
  is: /^.* reported no counts since .*$/,
  right: (facts) => {
    const silent = facts.nodes.filter((node) => isSilent(node, facts.now));
    const [have, they] = silent.length === 1 ? ['has', 'it'] : ['have', 'they'];
    const since = words.seconds(Math.min(...silent.map(({ through }) => through)));
    return `${words.listed(silent.map(({ name }) => name))} ${have} reported no counts since ${since}: what ${they} decided since then is missing here.`;
  },
  times: (facts) => Number(facts.nodes.some((node) => isSilent(node, facts.now))),
};

const TRAFFIC: Rule[] = [
  MISSING,
  {
    name: 'requests of the chart',
    region: 'Traffic',
    is: /^\d[\d,]* requests? in the last .*$/,
    right: (facts) => {
      const counts = charted(facts);
      return `${some(counts.decided, 'request', 'requests')} in the last 15 min: ${words.parts(counts)}.`;
    },
    // Below the picture, as its name, and as what its slider says.
    times: () => 3,
  },
  {
    name: 'requests of this second',
    region: 'Traffic',
    is: /^Now on .*$/,
    // Nothing is sent while pages are read.
    right: (facts, _at, [text]) =>
      `Now on ${facts.nodes.find(({ name }) => text.includes(name))?.name}: 0 requests/s, 0/s refused`,
  },
  {
    name: 'overload in words',
    region: 'Traffic',
    is: /^Overload is no limit: .*$/,
    right: (facts, _at, [text]) => (charted(facts).shed > 0 ? text : undefined),
    times: (facts) => Number(charted(facts).shed > 0),
  },
  {
    name: 'latest change in the chart',
    region: 'Traffic',
    is: /^Latest change: .*$/,
    right: (facts) => {
      const { policy, version, author, at, reason } = facts.versions.filter((one) =>
        facts.policy ? one.policy === facts.policy : one.app === facts.app,
      )[0]!;
      return `Latest change: ${policy} v${version} · ${words.person(author)} · ${words.clock(at)}${reason ? ` · “${reason}”` : ''}`;
    },
    times: () => 1,
  },
  {
    name: 'marks of changes',
    region: 'Traffic',
    is: /^\S+ v\d+ · .*$/,
    right: (facts, _at, [text]) => {
      const shown = text.split('; ');
      const all = facts.versions.map(
        ({ policy, version, author, at }) => `${policy} v${version} · ${words.person(author)} · ${words.clock(at)}`,
      );
      return shown.map((one) => (all.includes(one) ? one : `no such change: ${one}`)).join('; ');
    },
  },
  {
    name: 'times below the chart',
    region: 'Traffic',
    is: /^\d\d:\d\d$/,
    right: ({ now }, _at, [text]) => {
      // The page may have been read some seconds ago.
      const near = [-20_000, -10_000, 0, 10_000].flatMap((off) =>
        [0, 1, 2, 3].map((part) => words.clock(quarter(now + off) + part * 225_000)),
      );
      return near.includes(text) ? text : `one of ${[...new Set(near)].join(', ')}`;
    },
  },
];

const OVERVIEW: Rule[] = [
  MISSING,
  {
    name: 'tokens that expire',
    region: 'Tokens that expire soon',
    is: /^\d+ tokens? expires? soon$/,
    right: (facts) => some(ending(facts).length, 'token expires soon', 'tokens expire soon'),
    times: (facts) => Number(ending(facts).length > 0),
  },
  {
    name: 'token that expires',
    region: 'Tokens that expire soon',
    is: /^\S+ · \S+ ?⟨\d+⟩$/,
    right: (facts, _at, [text]) => {
      const all = ending(facts).map((token) => `${token.app} · ${token.name}${time(token.expires_at)}`);
      return all.includes(text.replace(' ⟨', '⟨')) ? text : all.join(' or ');
    },
    times: (facts) => ending(facts).length,
  },
  {
    name: 'refused of an app',
    region: 'Apps',
    is: /^(\d[\d,]* refused( · .*)?)$/,
    right: (facts, at) => {
      const { refused, decided } = ofApp(facts, row(at));
      return refused > 0 ? `${number(refused)} refused · ${share(refused, decided)}` : '0 refused';
    },
    times: (facts) => appsWith(facts, ({ decided }) => decided > 0),
  },
  {
    name: 'policies and requests of an app',
    region: 'Apps',
    is: /^\d+ polic(y|ies)( · .*)?$/,
    right: (facts, at) => {
      const [policies, { decided }] = [facts.policies.filter(({ app }) => app === row(at)), ofApp(facts, row(at))];
      return (
        some(policies.length, 'policy', 'policies') + (decided > 0 ? ` · ${some(decided, 'request', 'requests')}` : '')
      );
    },
    times: (facts) => facts.apps.length,
  },
  {
    name: 'overload of an app',
    region: 'Apps',
    is: /^\d[\d,]* met an overloaded store$/,
    right: (facts, at) => `${number(ofApp(facts, row(at)).shed)} met an overloaded store`,
    times: (facts) => appsWith(facts, ({ shed }) => shed > 0),
  },
  {
    name: 'decided without the store, of an app',
    region: 'Apps',
    is: /^\d[\d,]* decided without the store$/,
    right: (facts, at) => `${number(ofApp(facts, row(at)).withoutStore)} decided without the store`,
    times: (facts) => appsWith(facts, ({ withoutStore }) => withoutStore > 0),
  },
  {
    name: 'errors of an app',
    region: 'Apps',
    is: /^\d[\d,]* errors?$/,
    right: (facts, at) => some(ofApp(facts, row(at)).error, 'error', 'errors'),
    times: (facts) => appsWith(facts, ({ error }) => error > 0),
  },
  {
    name: 'policies of an app in shadow',
    region: 'Apps',
    is: /^\d+ in shadow$/,
    right: (facts, at) => `${inShadow(facts.policies.filter(({ app }) => app === row(at)))} in shadow`,
    times: (facts) =>
      facts.apps.filter(({ name }) => inShadow(facts.policies.filter(({ app }) => app === name)) > 0).length,
  },
  {
    name: 'change of a policy',
    region: 'Latest changes of policies',
    is: /^.* the policy .*$/,
    right: (facts, at) => {
      const [version, before] = withBefore(facts, at.place);
      return version && words.changeSentence(version, before);
    },
    times: (facts) => Math.min(10, facts.versions.length),
  },
  {
    name: 'time of a change',
    region: 'Latest changes of policies',
    is: /^⟨\d+⟩$/,
    right: (facts, at) => facts.versions[at.place] && time(facts.versions[at.place]!.at),
  },
];

const SPARK: Rule = {
  name: 'picture of five minutes',
  is: /^\d[\d,]* in the last 5 minutes, .*$/,
  right: (facts, at) => {
    const { decided, refused, shed } = facts.page === 'overview' ? ofApp(facts, row(at)) : ofPolicy(facts, row(at));
    return `${number(decided)} in the last 5 minutes, ${number(refused)} of them refused${shed > 0 ? `, ${number(shed)} met an overloaded store` : ''}`;
  },
  times: (facts) => (facts.page === 'overview' ? appsWith : policiesWith)(facts, ({ decided }) => decided > 0),
};

const APP: Rule[] = [
  {
    name: 'number of policies',
    region: 'Parts of the app',
    is: /^Policies\d+$/,
    right: (facts) => `Policies${inApp(facts).length}`,
    times: () => 1,
  },
  {
    name: 'number of members',
    region: 'Parts of the app',
    is: /^Members\d+$/,
    right: ({ members, app }) => `Members${members.filter((member) => member.app === app).length}`,
    times: () => 1,
  },
  {
    name: 'number of tokens',
    region: 'Parts of the app',
    is: /^Tokens\d+$/,
    right: (facts) => `Tokens${facts.tokens.filter((token) => token.app === facts.app && isLive(facts, token)).length}`,
    times: () => 1,
  },
  {
    name: 'owners',
    region: '',
    is: /^Owners: .*$/,
    right: ({ members, app }) =>
      `Owners: ${words.listed(
        members
          .filter((member) => member.app === app && member.role === 'owner')
          .map(({ account }) => account)
          .sort(),
      )}`,
    times: () => 1,
  },
  {
    name: 'refused of a policy',
    region: 'Policies',
    is: /^((would refuse )?[<>]?\d[\d.,]*%|–)$/,
    right: (facts, at) => {
      const { decided, refused, shadowed } = ofPolicy(facts, row(at));
      if (decided === 0) return '–';
      return refused === 0 && shadowed > 0 ? `would refuse ${share(shadowed, decided)}` : share(refused, decided);
    },
    times: (facts) => inApp(facts).length,
  },
  {
    name: 'overload of a policy',
    region: 'Policies',
    is: /^[<>]?\d[\d.,]*% overload$/,
    right: (facts, at) => {
      const { decided, shed } = ofPolicy(facts, row(at));
      return `${share(shed, decided)} overload`;
    },
    times: (facts) => policiesWith(facts, ({ shed }) => shed > 0),
  },
  {
    name: 'limit of a policy',
    region: 'Policies',
    is: /^\d[\d,]* in each .*$/,
    right: (facts, at) => words.limitWords(policyNamed(facts, row(at))!.document),
    times: (facts) => 2 * inApp(facts).length,
  },
  {
    name: 'state of a policy',
    region: 'Policies',
    is: /^(active|in shadow)$/,
    right: (facts, at) => (policyNamed(facts, row(at))?.state === 'active' ? 'active' : 'in shadow'),
    times: (facts) => inApp(facts).length,
  },
  {
    name: 'change of a policy',
    region: 'Policies',
    is: /^⟨\d+⟩ · .*$/,
    right: (facts, at) => {
      const { updated_at, updated_by } = policyNamed(facts, row(at))!;
      return `${time(updated_at)} · ${words.person(updated_by)}`;
    },
    times: (facts) => inApp(facts).length,
  },
  {
    name: 'policies shown',
    region: '',
    is: /^\d+ of \d+( · \d+ in shadow)?$/,
    right: (facts) =>
      `${inApp(facts).length} of ${inApp(facts).length}${inShadow(inApp(facts)) > 0 ? ` · ${inShadow(inApp(facts))} in shadow` : ''}`,
    times: () => 1,
  },
];

const NODES: Rule[] = [
  {
    name: 'revision of a node',
    region: 'Nodes',
    is: /^\d[\d,]*(, \d[\d,]* behind)?$/,
    right: (facts, at) => {
      const node = nodeAt(facts, at);
      const behind = facts.revision - node.revision;
      return behind > 0 && !isSilent(node, facts.now)
        ? `${number(node.revision)}, ${number(behind)} behind`
        : String(node.revision);
    },
    times: (facts) => facts.nodes.length,
  },
  {
    name: 'state of a node',
    region: 'Nodes',
    is: /^(no report|deciding without the store|not ready|ready)$/,
    right: (facts, at) => {
      const node = nodeAt(facts, at);
      return isSilent(node, facts.now) ? 'no report' : node.isWithoutStore ? 'deciding without the store' : 'ready';
    },
    times: (facts) => facts.nodes.length,
  },
  {
    name: 'store of a node',
    region: 'Nodes',
    is: /^redis.*$/,
    right: (facts, at) => {
      const {
        isWithoutStore,
        report: {
          store: { p50_us, p99_us },
        },
      } = nodeAt(facts, at);
      // The last report of a silent node may be out of date.
      if (isSilent(nodeAt(facts, at), facts.now)) return undefined;
      const ms = (us: number) => (us / 1000).toLocaleString('en-GB', { maximumSignificantDigits: 2 });
      return `redis${isWithoutStore || p50_us === null || p99_us === null ? '' : `median ${ms(p50_us)} ms, p99 ${ms(p99_us)} ms`}`;
    },
    times: (facts) => reporting(facts).length,
  },
  {
    name: 'a store that is paused',
    region: 'Nodes',
    is: /^pausing after errors$/,
    right: (facts, at, [text]) =>
      nodeAt(facts, at).isWithoutStore && !isSilent(nodeAt(facts, at), facts.now) ? text : undefined,
    times: (facts) => reporting(facts).filter(({ isWithoutStore }) => isWithoutStore).length,
  },
  {
    name: 'last report of a node',
    region: 'Nodes',
    is: /^⟨(\d+)⟩$/,
    // The page asks every five seconds, and nodes report every ten.
    right: (facts, at, [text, ms]) =>
      Math.abs(Number(ms) - nodeAt(facts, at).seen_at) <= 12_000 ? text : time(nodeAt(facts, at).seen_at),
    times: (facts) => facts.nodes.length,
  },
];

const AUDIT: Rule[] = [
  {
    name: 'entry',
    region: 'Audit',
    is: /^(\S+|The command line|The sign-in provider|An unknown visitor) (?!ago).+$/,
    right: (facts, at) => facts.audit[at.place] && words.auditSentence(facts.audit[at.place]!),
    times: ({ audit }) => audit.length,
  },
  {
    name: 'time of an entry',
    region: 'Audit',
    is: /^⟨\d+⟩$/,
    right: (facts, at) => facts.audit[at.place] && time(facts.audit[at.place]!.at),
    times: ({ audit }) => audit.length,
  },
  {
    name: 'verified chain',
    is: /^Chain intact: \d+ entr(y|ies)$/,
    right: ({ entries }) => `Chain intact: ${some(entries, 'entry', 'entries')}`,
    times: () => 1,
  },
];

export const RULES: Record<PageName, Rule[]> = {
  overview: [...FRAME, ...OVERVIEW, SPARK],
  app: [...FRAME, ...TRAFFIC, ...APP, SPARK],
  policy: [...FRAME, ...TRAFFIC, ...POLICY],
  nodes: [...FRAME, ...NODES],
  audit: [...FRAME, ...AUDIT],
};
