import { visible } from './text.ts';

/** Pages of the console. Every view is a URL, so that people can share links. */
export type PageName =
  | 'overview'
  | 'setup'
  | 'sign-in'
  | 'apps'
  | 'app'
  | 'policy'
  | 'policy-edit'
  | 'policy-new'
  | 'policy-versions'
  | 'policy-deleted'
  | 'keys'
  | 'whatif'
  | 'accounts'
  | 'nodes'
  | 'audit'
  | 'import'
  | 'settings'
  | 'missing';

export interface Route {
  page: PageName;
  path: string;
  params: { app?: string; tab?: string; policy?: string };
  query: Record<string, string>;
}

const TOP = ['setup', 'sign-in', 'apps', 'keys', 'whatif', 'accounts', 'nodes', 'audit', 'import', 'settings'] as const;
const APP_TABS = ['members', 'tokens', 'audit', 'code'];
// Policies may have these names, too; their segment then starts with `~`, which no name contains.
const RESERVED = new Set([...APP_TABS, 'new', 'deleted', '.', '..']);

export const route: Route = $state(read());

/** Shows another page. With `replace`, the back button skips the current one. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  Object.assign(route, read());
}

/** Changes the query of the current page; empty values are left out. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  navigate(location.pathname + (text && `?${text}`), { replace: true });
}

export const appPath = (app: string, tab = ''): string => `/apps/${segment(app)}${tab && `/${tab}`}`;

export const policyPath = (app: string, policy: string, view: '' | 'edit' | 'versions' = ''): string =>
  `${appPath(app)}/${segment(policy)}${view && `/${view}`}`;

export function startRouter(): void {
  addEventListener('popstate', () => Object.assign(route, read()));
  document.addEventListener('click', follow);
}

/** Follows links inside the console without loading the page again. */
function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element).closest('a[href]');
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute('download')) return;
  if (link.origin !== location.origin || link.pathname.startsWith('/v1/')) return;
  if (link.getAttribute('href')!.startsWith('#')) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}

function read(): Route {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  return { ...match(location.pathname), path: location.pathname, query };
}

export function match(path: string): Pick<Route, 'page' | 'params'> {
  const parts = path.split('/').filter(Boolean);
  const [first, second, third, fourth] = parts;
  if (first === undefined) return { page: 'overview', params: {} };
  const top = TOP.find((name) => name === first);
  if (!top || parts.length > 4) return { page: 'missing', params: {} };
  if (second === undefined) return { page: top, params: {} };
  if (top !== 'apps') return { page: 'missing', params: {} };
  // No name has characters that cannot be seen; pages show names as they are.
  if ([second, third ?? ''].map(unsegment).some((name) => visible(name) !== name))
    return { page: 'missing', params: {} };
  const app = unsegment(second);
  if (third === undefined) return { page: 'app', params: { app, tab: 'policies' } };
  if (fourth === undefined) {
    if (APP_TABS.includes(third)) return { page: 'app', params: { app, tab: third } };
    if (third === 'new') return { page: 'policy-new', params: { app } };
    if (third === 'deleted') return { page: 'policy-deleted', params: { app } };
    return { page: 'policy', params: { app, policy: unsegment(third) } };
  }
  const params = { app, policy: unsegment(third) };
  if (fourth === 'edit') return { page: 'policy-edit', params };
  if (fourth === 'versions') return { page: 'policy-versions', params };
  return { page: 'missing', params: {} };
}

function segment(name: string): string {
  return RESERVED.has(name) ? `~${name}` : encodeURIComponent(name);
}

function unsegment(part: string): string {
  try {
    return decodeURIComponent(part).replace(/^~/, '');
  } catch {
    return part;
  }
}
