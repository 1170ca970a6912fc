import { execFile } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { expect } from '@playwright/test';
import { Database, freePort } from '../database.ts';
import { Api, startServer, type Server } from '../harness.ts';
import { startProvider, type Provider } from '../provider.ts';
import { startRedis } from '../redis.ts';
import { Relay } from '../relay.ts';

export const NODES = ['node-a', 'node-b', 'node-c'] as const;
export type NodeName = (typeof NODES)[number];
/** Longest wait for nodes to follow, to lose their store, or to find it again. */
const FOLLOWED_MS = 20_000;

export interface Node extends Server {
  name: NodeName;
  /** The address of its metrics. */
  metrics: string;
}

/** A sample of `/metrics`. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Three servers on one catalog and one store, each of which can be cut off. */
export class Fleet {
  private constructor(
    readonly nodes: Node[],
    readonly ada: Api,
    /** The connection of all nodes to the store. */
    readonly store: Relay,
    /** The connection of the last node to the catalog. */
    readonly catalog: Relay,
    private readonly redis: ChildProcess,
    private readonly database: Database,
    private readonly provider: Provider,
  ) {}

  static async start(): Promise<Fleet> {
    const [database, port, provider] = await Promise.all([Database.make(), freePort(), startProvider()]);
    const redis = await startRedis(port);
    const [store, catalog] = [await Relay.start(port), await Relay.start(Number(new URL(database.url).port))];
    const adminPort = await freePort();
    const start = async (name: NodeName): Promise<Node> => {
      const url = new URL(database.url);
      if (name === 'node-c') url.port = String(catalog.port);
      const metrics = `127.0.0.1:${await freePort()}`;
      const env = {
        SLUICEGATE__METRICS__LISTEN: metrics,
        SLUICEGATE__CATALOG__NODE: name,
        SLUICEGATE__STORE__URL: `redis://127.0.0.1:${store.port}`,
        SLUICEGATE__ADMIN__KEYS: 'clear',
        ...(name === 'node-a' && provider.env(adminPort)),
      };
      return { ...(await startServer({ catalog: url.href, env })), name, metrics: `http://${metrics}/metrics` };
    };
    // The first one makes the tables.
    const nodes = [await start('node-a')];
    nodes.push(...(await Promise.all([start('node-b'), start('node-c')])));
    await expect.poll(() => nodes[0]!.printed(/sgsetup_\w+/)).toBeTruthy();
    const ada = await Api.setUp({ ...nodes[0]!, setupToken: nodes[0]!.printed(/sgsetup_\w+/) });
    return new Fleet(nodes, ada, store, catalog, redis, database, provider);
  }

  node(name: NodeName): Node {
    return this.nodes.find((node) => node.name === name)!;
  }

  async metrics(node: Node): Promise<Sample[]> {
    const text = await (await fetch(node.metrics)).text();
    return text.split('\n').flatMap((line) => {
      const [, name, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      if (!name) return [];
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, of]) => [label, of]);
      return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }];
    });
  }

  /** A number that a node counts, such as `sluicegate_catalog_revision`. */
  async metric(node: Node, name: string): Promise<number> {
    const samples = (await this.metrics(node)).filter((sample) => sample.name === name);
    return samples.reduce((sum, { value }) => sum + value, 0);
  }

  /** Rows of the catalog, as its database has them. */
  async rows<T = Record<string, any>>(sql: string): Promise<T[]> {
    return (await this.tables({ sql })).sql as T[];
  }

  /** The answers of several queries, at one moment. */
  async tables<K extends string>(queries: Record<K, string>): Promise<Record<K, Record<string, any>[]>> {
    const parts = Object.entries(queries).map(
      ([name, sql]) => `'${name}', (SELECT COALESCE(json_agg(it), '[]') FROM (${sql}) it)`,
    );
    const { stdout } = await promisify(execFile)(
      'psql',
      [this.database.url, '-qAtc', `SELECT json_build_object(${parts.join(', ')})`],
      { maxBuffer: 16 << 20 },
    );
    return JSON.parse(stdout);
  }

  /** Changes rows, beside what the program writes. */
  async change(sql: string): Promise<void> {
    await promisify(execFile)('psql', [this.database.url, '-qAtc', sql]);
  }

  async revision(): Promise<number> {
    const [{ revision }] = (await this.rows('SELECT revision FROM head')) as [{ revision: number }];
    return revision;
  }

  /** Waits until these nodes use the newest revision, and the catalog knows it. */
  async followed(nodes: readonly NodeName[] = NODES): Promise<void> {
    await expect
      .poll(
        async () => {
          const [revision, rows] = [await this.revision(), await this.rows('SELECT name, revision FROM nodes')];
          return nodes.filter((name) => rows.find((row) => row.name === name)?.revision !== revision);
        },
        { timeout: FOLLOWED_MS },
      )
      .toEqual([]);
  }

  /** Waits until the catalog has the present counts of these nodes. */
  async counted(nodes: readonly NodeName[] = NODES): Promise<void> {
    const until = Date.now();
    await expect
      .poll(
        async () => {
          const rows = await this.rows('SELECT name, body FROM node_reports');
          return nodes.filter(
            (name) => (JSON.parse(rows.find((row) => row.name === name)?.body ?? '{}').through?.[0] ?? 0) <= until,
          );
        },
        { timeout: 45_000, intervals: [250] },
      )
      .toEqual([]);
  }

  /** Waits until all nodes have lost the store. */
  async lost(ask: () => Promise<unknown>): Promise<void> {
    await expect
      .poll(
        async () => {
          await ask();
          return this.breakers();
        },
        { timeout: FOLLOWED_MS, intervals: [200] },
      )
      .toEqual([1, 1, 1]);
  }

  /** Waits until all nodes have found the store, keep it for some requests, and have charged it their debts. */
  async found(ask: () => Promise<unknown>): Promise<void> {
    let [times, before] = [0, ''];
    await expect
      .poll(
        async () => {
          await ask();
          // Permits beyond a limit stay a debt until its window ends.
          const [open, debts] = [await this.breakers(), String(await this.all('sluicegate_store_debts'))];
          times = open.every((count) => count === 0) && debts === before ? times + 1 : 0;
          before = debts;
          return times;
        },
        { timeout: 2 * FOLLOWED_MS, intervals: [200] },
      )
      .toBeGreaterThan(2);
  }

  /** The gauge of the breaker at each node: 1 while it decides without the store. */
  breakers(): Promise<number[]> {
    return this.all('sluicegate_store_breaker_open');
  }

  private all(metric: string): Promise<number[]> {
    return Promise.all(this.nodes.map((node) => this.metric(node, metric)));
  }

  /** Waits until the catalog knows which of these nodes are without the store. */
  async reported(nodes: readonly string[]): Promise<void> {
    await expect
      .poll(
        async () => {
          const rows = await this.rows('SELECT name, body FROM node_reports');
          const modes = await Promise.all(
            nodes.map(async (name) =>
              (await this.metric(this.node(name as NodeName), 'sluicegate_store_breaker_open')) === 1
                ? 'fallback'
                : 'store',
            ),
          );
          return nodes.filter(
            (name, place) => JSON.parse(rows.find((row) => row.name === name)?.body ?? '{}').mode !== modes[place],
          );
        },
        { timeout: FOLLOWED_MS },
      )
      .toEqual([]);
  }

  /** Waits until this node has not reported for so long that it is silent. */
  async silent(name: NodeName): Promise<void> {
    await expect
      .poll(
        async () => {
          const [{ seen_at }] = (await this.rows(`SELECT seen_at FROM nodes WHERE name = '${name}'`)) as [
            { seen_at: number },
          ];
          return Date.now() - seen_at;
        },
        { timeout: 45_000 },
      )
      .toBeGreaterThan(31_000);
  }

  async stop(): Promise<void> {
    this.store.mend();
    this.catalog.mend();
    await Promise.all(this.nodes.map((node) => node.stop()));
    this.store.stop();
    this.catalog.stop();
    this.provider.stop();
    const gone = once(this.redis, 'exit');
    if (this.redis.kill('SIGKILL')) await gone;
    await this.database.remove();
  }
}
