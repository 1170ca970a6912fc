import { Agent, request } from 'node:http';
import { expect } from '@playwright/test';
import type { Fleet, Node } from './fleet.ts';

/** The answers to requests, by the limit or the mode that decided them. */
export interface Counts {
  decided: number;
  refused: number;
  shadowed: number;
  shed: number;
  withoutStore: number;
  error: number;
  /** Allowed at once or later, or answered otherwise; neither refused nor over a limit. */
  allowed: number;
}
export type Kind = keyof Counts;

export const none = (): Counts => ({
  decided: 0,
  refused: 0,
  shadowed: 0,
  shed: 0,
  withoutStore: 0,
  error: 0,
  allowed: 0,
});

/** The counts of a policy on a node between two moments. */
interface Counted {
  begin: number;
  end: number;
  node: string;
  policy: string;
  counts: Counts;
}

/** The decisions of a node since then have not reached the catalog. */
export interface Missing {
  node: string;
  since: number;
}

const WITHOUT_STORE = ['local', 'allow', 'deny'];
/** Calls in a row: a breaker opens after five of them. */
const PROBES = 7;
/** Buckets of the history, in milliseconds. */
export const BUCKET_MS = 10_000;

/**
 * Requests for permits that were really sent, and their results: as `/metrics` of the nodes count them, which must
 * equal the answers to the callers.
 */
export class Load {
  private readonly all: Counted[] = [];
  /** Refusals by policy and key. An overload is not counted for a key. */
  private readonly keys = new Map<string, Map<string, number>>();
  private before = new Map<string, Counts>();
  private probes = 0;

  constructor(private readonly fleet: Fleet) {}

  /** Sends requests to all nodes at once: for each key `times` to each node. Returns the number of decisions. */
  async send(
    secret: string,
    policy: string,
    keys: string[],
    times: number,
    nodes: Node[] = this.fleet.nodes,
  ): Promise<number> {
    return this.during(() =>
      Promise.all(
        nodes.flatMap((node) =>
          keys.map(async (key) => {
            const answers = [];
            for (let time = 0; time < times; time += 1) answers.push(await check(node, secret, policy, key));
            return answers;
          }),
        ),
      ).then((answers) => answers.flat(2)),
    );
  }

  /** Sends requests by which nodes notice the state of the store: a breaker counts some calls in a second. */
  async probe(secret: string, policy: string): Promise<void> {
    await this.during(() =>
      Promise.all(
        this.fleet.nodes.map(async (node) => {
          const answers = [];
          // A node does not ask the store for a key whose budget it keeps itself.
          for (let time = 0; time < PROBES; time += 1)
            answers.push(await check(node, secret, policy, `probe-${(this.probes += 1)}`));
          return answers;
        }),
      ).then((answers) => answers.flat()),
    );
  }

  /** Sends several requests at once to each node, each with a key of its own. */
  async flood(secret: string, policy: string, count: number): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 400 });
    const sent = () =>
      Promise.all(
        this.fleet.nodes.flatMap((node) =>
          Array.from({ length: count }, (_, place) => check(node, secret, policy, `${node.name}-${place}`, agent)),
        ),
      );
    await this.during(sent);
    agent.destroy();
  }

  /** Sends requests, and records the counts of the nodes meanwhile. */
  private async during(send: () => Promise<Answer[]>): Promise<number> {
    await this.note(Date.now(), [], 'nobody else sends requests');
    const begin = Date.now();
    const answers = await send();
    await this.note(begin, answers, 'nodes count what callers were answered');
    return answers.filter(({ kind }) => kind !== 'unknown').length;
  }

  private async note(begin: number, answers: Answer[], why: string): Promise<void> {
    const end = Date.now();
    const news: Counted[] = [];
    for (const node of this.fleet.nodes) {
      for (const [policy, counts] of await this.read(node)) {
        const place = `${node.name}/${policy}`;
        const fresh = less(counts, this.before.get(place) ?? none());
        this.before.set(place, counts);
        if (fresh.decided > 0) news.push({ begin, end, node: node.name, policy, counts: fresh });
      }
    }
    this.all.push(...news);
    const told = answers.filter(({ kind }) => kind !== 'unknown');
    expect(tally(news), why).toEqual(tallyOf(told));
    for (const { policy, key, kind, isShed } of told) {
      if (isShed || (kind !== 'refused' && kind !== 'shadowed')) continue;
      const of = this.keys.get(policy) ?? new Map<string, number>();
      this.keys.set(policy, of.set(key, (of.get(key) ?? 0) + 1));
    }
  }

  private async read(node: Node): Promise<Map<string, Counts>> {
    const found = new Map<string, Counts>();
    for (const { name, labels, value } of await this.fleet.metrics(node)) {
      if (name !== 'sluicegate_decisions_total') continue;
      const counts = found.get(labels.policy!) ?? none();
      found.set(labels.policy!, counts);
      counts.decided += value;
      if (labels.mode === 'shed') counts.shed += value;
      else if (labels.result === 'refused' || labels.result === 'shadowed' || labels.result === 'error')
        counts[labels.result] += value;
      else counts.allowed += value;
      if (WITHOUT_STORE.includes(labels.mode!)) counts.withoutStore += value;
    }
    return found;
  }

  /** Returns the decisions about these policies since then, without those that are missing in the catalog. */
  since(at: number, policies: string[], missing?: Missing): Counts {
    const sum = none();
    for (const { begin, end, node, policy, counts } of this.all) {
      if (!policies.includes(policy) || (node === missing?.node && begin >= missing.since) || end < at) continue;
      expect(begin, 'requests are before or after the begin of a window').toBeGreaterThanOrEqual(at);
      for (const kind of Object.keys(sum) as Kind[]) sum[kind] += counts[kind];
    }
    return sum;
  }

  /** Returns the number of refusals of each key, including those in shadow. */
  refusals(policy: string): Map<string, number> {
    return this.keys.get(policy) ?? new Map();
  }

  /** Returns whether requests were sent near the begin `at` of a bucket, so that a window from there is not clear. */
  isNear(at: number): boolean {
    return this.all.some(({ begin, end }) => begin < at + 2 * BUCKET_MS && end >= at - BUCKET_MS);
  }
}

interface Answer {
  policy: string;
  key: string;
  kind: 'allowed' | 'refused' | 'shadowed' | 'error' | 'unknown';
  isShed: boolean;
  isWithoutStore: boolean;
}

/** Sends one request for a permit, and returns the answer to its caller. */
function check(node: Node, secret: string, policy: string, key: string, agent?: Agent): Promise<Answer> {
  const body = JSON.stringify({ policy, key });
  const headers = {
    authorization: `Bearer ${secret}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  };
  return new Promise((done, failed) => {
    const asked = request(`${node.http}/v1/check`, { method: 'POST', headers, ...(agent && { agent }) }, (answer) => {
      let text = '';
      answer.on('data', (more) => (text += more));
      answer.on('end', () => {
        // A request without a valid token is refused before anything is decided.
        if (answer.statusCode === 401 || answer.statusCode === 404)
          return done({ policy, key, kind: 'unknown', isShed: false, isWithoutStore: false });
        const { allowed, mode = '', overflow = '' } = JSON.parse(text);
        const kind =
          allowed === undefined ? 'error' : overflow === 'shadow' ? 'shadowed' : allowed ? 'allowed' : 'refused';
        done({ policy, key, kind, isShed: mode === 'shed', isWithoutStore: WITHOUT_STORE.includes(mode) });
      });
    });
    asked.on('error', failed);
    asked.end(body);
  });
}

function tally(all: Counted[]): Record<string, Counts> {
  const found: Record<string, Counts> = {};
  for (const { policy, counts } of all) {
    const of = (found[policy] ??= none());
    for (const kind of Object.keys(of) as Kind[]) of[kind] += counts[kind];
  }
  return found;
}

function tallyOf(answers: Answer[]): Record<string, Counts> {
  const found: Record<string, Counts> = {};
  for (const { policy, kind, isShed, isWithoutStore } of answers) {
    const of = (found[policy] ??= none());
    of.decided += 1;
    of[isShed ? 'shed' : (kind as 'allowed' | 'refused' | 'shadowed' | 'error')] += 1;
    if (isWithoutStore) of.withoutStore += 1;
  }
  return found;
}

function less(one: Counts, other: Counts): Counts {
  const counts = none();
  for (const kind of Object.keys(counts) as Kind[]) counts[kind] = one[kind] - other[kind];
  return counts;
}
