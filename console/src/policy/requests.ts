/** Requests about policies. Changes name the version that they are made to. */

import {
  ApiFailure,
  PASSIVE,
  type Schema,
  type Warning,
  type DocumentError,
  api,
  unwrap,
  collect,
  inLanguage,
} from '../lib/api.ts';
import type { Json } from './json.ts';

export type Policy = Schema['Policy'];
export type Version = Schema['Version'];
export type State = Schema['State'];
export type Live = 'active' | 'shadow';

/** The parts of a change that people add. */
export interface ChangeOptions {
  reason?: string;
  /** Make the change in spite of warnings. */
  force?: boolean;
}

export interface Validated {
  /** The document that the server read, unless there are errors. */
  document?: Json;
  errors: DocumentError[];
  warnings: Warning[];
}

const path = (app: string, policy: string) => ({ app, policy });
const query = ({ reason, force }: ChangeOptions) => ({ ...(reason && { reason }), ...(force && { force }) });
const ifMatch = (version: number) => ({ 'If-Match': `"${version}"` });
const documentOf = (document: Json) => document as unknown as Schema['Document'];

/** The document of a policy or version, as JSON. */
export const jsonOf = (holder: { document: unknown }): Json => holder.document as Json;

/** The apps that the account sees. */
export async function appNames(): Promise<string[]> {
  const apps = await collect((after) =>
    unwrap(api.GET('/v1/admin/apps', { params: { query: { limit: 1000, after } } })),
  );
  return apps.map(({ name }) => name);
}

/** The policies of an app, in short. */
export function summariesOf(app: string): Promise<Schema['PolicySummary'][]> {
  const path = { app };
  return collect((after) =>
    unwrap(api.GET('/v1/admin/apps/{app}/policy-summaries', { params: { path, query: { limit: 1000, after } } })),
  );
}

export function policies(app: string, state?: State): Promise<Policy[]> {
  return collect((after) =>
    unwrap(api.GET('/v1/admin/apps/{app}/policies', { params: { path: { app }, query: { after, state } } })),
  );
}

export function policyOf(app: string, policy: string): Promise<Policy> {
  const params = { path: path(app, policy) };
  return unwrap(api.GET('/v1/admin/apps/{app}/policies/{policy}', { params })) as Promise<Policy>;
}

/** The newest versions first; pages of a hundred. */
export function versions(app: string, policy: string, after?: string): Promise<Schema['Versions']> {
  const params = { path: path(app, policy), query: { after } };
  return unwrap(api.GET('/v1/admin/apps/{app}/policies/{policy}/versions', { params }));
}

export function versionOf(app: string, policy: string, version: number): Promise<Version> {
  const params = { path: { ...path(app, policy), version: String(version) } };
  return unwrap(api.GET('/v1/admin/apps/{app}/policies/{policy}/versions/{version}', { params }));
}

/** Sends one request for a key, which is charged as any other. */
export function tryOne(app: string, policy: string, key: string): Promise<Schema['ExplainedKey']> {
  const params = { path: path(app, policy) };
  return unwrap(api.POST('/v1/admin/apps/{app}/policies/{policy}/keys/try', { params, body: { key } }));
}

export function create(app: string, document: Json, state: Live, options: ChangeOptions): Promise<Policy> {
  const body = { document: documentOf(document), state };
  return unwrap(api.POST('/v1/admin/apps/{app}/policies', { params: { path: { app }, query: query(options) }, body }));
}

export function change(
  app: string,
  policy: string,
  version: number,
  document: Json,
  options: ChangeOptions,
): Promise<Policy> {
  const params = { path: path(app, policy), query: query(options), header: ifMatch(version) };
  return unwrap(
    api.PUT('/v1/admin/apps/{app}/policies/{policy}', { params, body: { document: documentOf(document) } }),
  );
}

export function setState(
  app: string,
  policy: string,
  version: number,
  state: Live,
  options: ChangeOptions,
): Promise<Policy> {
  const params = { path: path(app, policy), query: query(options), header: ifMatch(version) };
  return state === 'active'
    ? unwrap(api.POST('/v1/admin/apps/{app}/policies/{policy}/activate', { params }))
    : unwrap(api.POST('/v1/admin/apps/{app}/policies/{policy}/shadow', { params }));
}

export function rollBack(
  app: string,
  policy: string,
  version: number,
  to: number,
  options: ChangeOptions,
): Promise<Policy> {
  const params = { path: path(app, policy), query: query(options), header: ifMatch(version) };
  return unwrap(api.POST('/v1/admin/apps/{app}/policies/{policy}/rollback', { params, body: { to } }));
}

export function restore(app: string, policy: string, to: number, state: Live, options: ChangeOptions): Promise<Policy> {
  const params = { path: path(app, policy), query: query(options) };
  return unwrap(api.POST('/v1/admin/apps/{app}/policies/{policy}/restore', { params, body: { to, state } }));
}

export async function remove(app: string, policy: string, version: number, options: ChangeOptions): Promise<void> {
  const params = { path: path(app, policy), query: query(options), header: ifMatch(version) };
  await unwrap(api.DELETE('/v1/admin/apps/{app}/policies/{policy}', { params }));
}

/** Returns the document that the server reads in `yaml`, or its errors, and its warnings. */
export async function validate(app: string, yaml: string, state: Live, signal: AbortSignal): Promise<Validated> {
  const url = `/v1/admin/apps/${encodeURIComponent(app)}/validate?state=${state}`;
  const headers = { 'content-type': 'application/yaml', ...PASSIVE };
  const answer = fetch(url, { method: 'POST', headers, body: yaml, signal }).then(async (response) => {
    const body: unknown = await response.json().catch(() => null);
    return response.ok ? { data: body as Schema['Validated'], response } : { error: body, response };
  });
  try {
    const { document, warnings } = await unwrap(answer);
    return { document: document as unknown as Json, errors: [], warnings: warnings.map(inLanguage) };
  } catch (error) {
    if (!(error instanceof ApiFailure) || error.status !== 422) throw error;
    return { errors: error.errors.length > 0 ? error.errors : [{ pointer: '', detail: error.detail }], warnings: [] };
  }
}

/** Accounts that may change the policies of an app. */
export async function ownersOf(app: string): Promise<string[]> {
  const members = await collect((after) =>
    unwrap(api.GET('/v1/admin/apps/{app}/members', { params: { path: { app }, query: { after } } })),
  );
  return members.filter(({ role }) => role === 'owner').map(({ account }) => account);
}
