import createClient from 'openapi-fetch';
import type { components, paths } from './api-types';
import { finding, t } from './i18n/index.svelte.ts';

export type Schema = components['schemas'];
type Finding = Schema['Finding'];
export type DocumentError = Pick<Finding, 'pointer' | 'detail'> & Partial<Finding>;
export type Warning = Pick<Finding, 'detail'> & Partial<Finding>;

/** Typed requests: `await unwrap(api.GET('/v1/admin/apps'))`. */
export const api = createClient<paths>({ baseUrl: location.origin, fetch: (request) => fetch(request) });

/** Header of background requests: they do not keep the session alive. */
export const PASSIVE = { 'sluicegate-passive': '1' };

/** An answer other than 2xx, as problem+json describes it. Status 0: the server did not answer. */
export class ApiFailure extends Error {
  readonly status: number;
  readonly title: string;
  readonly code: string;
  readonly detail: string;
  readonly errors: DocumentError[];
  readonly warnings: Warning[];
  readonly version: number | undefined;
  readonly retryAfterS: number;

  constructor(status: number, problem: Partial<Schema['Problem']>, retryAfterS = 0) {
    super(problem.detail || problem.title || String(status));
    this.status = status;
    this.title = problem.title ?? '';
    this.code = problem.code ?? '';
    this.detail = finding(
      problem.code,
      problem.params,
      problem.detail || problem.title || t('error.status', { status }),
    );
    this.errors = (problem.errors ?? []).map(inLanguage);
    this.warnings = (problem.warnings ?? []).map(inLanguage);
    this.version = problem.version ?? undefined;
    this.retryAfterS = retryAfterS;
  }
}

/** Returns an error or warning of the server in the language of the console. */
export function inLanguage<T extends Warning>(found: T): T {
  const detail = finding(found.code, found.params, found.detail);
  return {
    ...found,
    detail: /^unknown_field/.test(found.code ?? '') ? ofField(found as Partial<DocumentError>, detail) : detail,
  };
}

/** `unknown field` with the name of the field, which is the end of its place. */
function ofField({ pointer }: Partial<DocumentError>, detail: string): string {
  const field = pointer?.split('/').at(-1)?.replaceAll('~1', '/').replaceAll('~0', '~');
  return field ? `\`${field.replaceAll('`', "'")}\`: ${detail}` : detail;
}

let onSignedOut = (): void => {};
/** The number of sign-ins: a request from before the last one says nothing about its session. */
let signIns = 0;

/** Registers what happens when a request finds that the session has ended. */
export function whenSignedOut(action: () => void): void {
  onSignedOut = action;
}

/** Begins a session: requests that are under way belong to the one before. */
export function beginSession(): void {
  signIns += 1;
}

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** Waits for an answer; throws `ApiFailure` unless it is 2xx. */
export async function unwrap<T>(answer: Promise<Answer<T>>, options: { signIn?: boolean } = {}): Promise<T> {
  const askedIn = signIns;
  let done: Answer<T>;
  try {
    done = await answer;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiFailure(0, { detail: t('error.network') });
  }
  const { response } = done;
  if (response.ok) return done.data as T;
  const problem = typeof done.error === 'object' && done.error !== null ? done.error : {};
  const retryAfterS = Number(response.headers.get('retry-after')) || 0;
  if (response.status === 401 && options.signIn !== false && askedIn === signIns) onSignedOut();
  throw new ApiFailure(response.status, problem, retryAfterS);
}

/** The text for people of anything that was thrown. */
export function failureText(error: unknown): string {
  if (!(error instanceof ApiFailure)) return String(error);
  if (error.status === 429) return t('error.rate', { seconds: error.retryAfterS || 1 });
  if (error.code === 'forbidden') return t('error.denied');
  // `invalid request` alone does not help.
  if (error.errors.length > 0)
    return error.errors.map(({ pointer, detail }) => (pointer ? `${pointer.slice(1)}: ${detail}` : detail)).join('; ');
  return error.detail;
}

/** Reads all pages of a list, at most `max` items. */
export async function collect<T>(
  page: (after: string | undefined) => Promise<{ items: T[]; next?: string }>,
  max = 10_000,
): Promise<T[]> {
  const items: T[] = [];
  let after: string | undefined;
  do {
    const { items: more, next } = await page(after);
    items.push(...more);
    after = next;
  } while (after !== undefined && items.length < max);
  return items;
}
