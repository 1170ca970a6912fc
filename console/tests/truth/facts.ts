import type { Fleet } from './fleet.ts';
import { BUCKET_MS, type Counts, type Load, type Missing } from './load.ts';

/** The truth while a page is read: rows of the catalog, and counts of the nodes. */
export interface Facts {
  now: number;
  page: PageName;
  /** The app and the policy of the page. */
  app: string;
  policy: string;
  load: Load;
  /** The counts that have not reached the catalog. */
  missing: Missing | undefined;
  software: string;
  revision: number;
  nodes: FleetNode[];
  /** True if the catalog has the nodes that decide without the store. */
  isReported: boolean;
  apps: { name: string; description: string }[];
  policies: PolicyRow[];
  /** The newest first. */
  versions: VersionRow[];
  tokens: { app: string; name: string; expires_at: number; revoked_at: number | null }[];
  members: { app: string; account: string; role: string }[];
  /** The newest first. */
  audit: AuditRow[];
  entries: number;
}

export type PageName = 'overview' | 'app' | 'policy' | 'nodes' | 'audit';

export interface FleetNode {
  name: string;
  /** The value at the node itself, also if the catalog has another. */
  revision: number;
  isWithoutStore: boolean;
  seen_at: number;
  /** The end of its counts in the catalog. */
  through: number;
  report: { mode: string; ready: boolean; store: { kind: string; p50_us: number | null; p99_us: number | null } };
}

export interface PolicyRow {
  name: string;
  app: string;
  state: string;
  version: number;
  updated_at: number;
  updated_by: string;
  document: Document;
}

export interface Document {
  on_store_failure?: string;
  rules: { name: string; fixed_window: { limit: number; window: string } }[];
}

export interface VersionRow {
  policy: string;
  app: string;
  version: number;
  state: string;
  author: string;
  reason: string;
  at: number;
  document: Document;
}

export interface AuditRow {
  seq: number;
  at: number;
  actor: string;
  action: string;
  app: string | null;
  target: string;
  outcome: string;
  reason: string;
  after: string | null;
}

/** The limit of the pages: after this time without a report a node is silent. */
const SILENT_MS = 30_000;
/** Changes and entries that a page shows at most. */
const ROWS = 50;

export interface At {
  page: PageName;
  app?: string;
  policy?: string;
  missing?: Missing;
}

export async function factsOf(fleet: Fleet, load: Load, { page, app = '', policy = '', missing }: At): Promise<Facts> {
  const document = <T>(row: Record<string, any>) => ({ ...row, document: JSON.parse(row.document) }) as T;
  const tables = await fleet.tables({
    head: 'SELECT revision, (SELECT COUNT(*) FROM audit) AS entries FROM head',
    nodes: `SELECT n.name, n.seen_at, r.body, (SELECT MAX(at) + ${BUCKET_MS} FROM traffic t WHERE t.node = n.name AND t.step = ${BUCKET_MS}) AS written FROM nodes n JOIN node_reports r ON r.name = n.name ORDER BY n.name`,
    apps: 'SELECT name, description FROM apps',
    policies:
      "SELECT name, app, state, version, updated_at, updated_by, document FROM policies WHERE state <> 'deleted'",
    versions: `SELECT v.policy, p.app, v.version, v.state, v.author, v.reason, v.at, v.document FROM policy_versions v JOIN policies p ON p.name = v.policy ORDER BY v.at DESC, v.policy, v.version DESC LIMIT ${ROWS}`,
    tokens: 'SELECT app, name, expires_at, revoked_at FROM tokens',
    members: 'SELECT m.app, a.name AS account, m.role FROM members m JOIN accounts a ON a.id = m.account',
    audit: `SELECT seq, at, actor, action, app, target, outcome, reason, after_change AS after FROM audit ORDER BY seq DESC LIMIT ${ROWS}`,
  });
  const samples = await Promise.all(tables.nodes.map(({ name }) => fleet.metrics(fleet.node(name))));
  const nodes = tables.nodes.map(({ name, seen_at, body, written }, place): FleetNode => {
    const report = JSON.parse(body);
    const value = (metric: string) => samples[place]!.find((sample) => sample.name === metric)?.value ?? NaN;
    // If a node does not reach the catalog, pages show its last report.
    const isWithoutStore =
      name === missing?.node ? report.mode === 'fallback' : value('sluicegate_store_breaker_open') === 1;
    return {
      name,
      seen_at,
      report,
      isWithoutStore,
      through: Math.max(written ?? 0, report.through[0]),
      revision: value('sluicegate_catalog_revision'),
    };
  });
  const { revision, entries } = tables.head[0]!;
  return {
    isReported: nodes.every(({ isWithoutStore, report }) => isWithoutStore === (report.mode === 'fallback')),
    now: Date.now(),
    page,
    app,
    policy,
    load,
    missing,
    nodes,
    revision,
    entries,
    software: samples[0]!.find(({ name }) => name === 'sluicegate_build_info')?.labels.version ?? '',
    apps: tables.apps as Facts['apps'],
    policies: tables.policies.map((row) => document<PolicyRow>(row)),
    versions: tables.versions.map((row) => document<VersionRow>(row)),
    tokens: tables.tokens as Facts['tokens'],
    members: tables.members as Facts['members'],
    audit: tables.audit as AuditRow[],
  };
}

export const isSilent = ({ seen_at }: FleetNode, now: number): boolean => now - seen_at > SILENT_MS;
export const floor = (at: number): number => Math.floor(at / BUCKET_MS) * BUCKET_MS;

/** Begins of the windows of the pages: the last five minutes, and the last quarter of an hour. */
export const fiveMinutes = (now: number): number => floor(now) - 300_000;
export const quarter = (now: number): number => floor(now) - 89 * BUCKET_MS;

/** The decisions of an app, or of one policy, that have reached the catalog. */
export function countsOf(facts: Facts, of: { app: string } | { policy: string }, since: number): Counts {
  const names =
    'policy' in of ? [of.policy] : facts.versions.filter(({ app }) => app === of.app).map(({ policy }) => policy);
  return facts.load.since(since, names, facts.missing);
}
