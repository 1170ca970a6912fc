import { api, beginSession, unwrap, whenSignedOut, type Schema } from './api.ts';
import { fleet } from './fleet.svelte.ts';
import { navigate, route } from './router.svelte.ts';

/** Drafts of policies and the like; they end with the session. */
export const DRAFT = 'sluicegate.draft.';

class Session {
  meta: Schema['Meta'] | null = $state.raw(null);
  me: Schema['Me'] | null = $state.raw(null);
  /** True after a session has ended while the console was open. */
  hasEnded = $state(false);

  /** Reads the server's description and the signed-in account. */
  async load(): Promise<void> {
    try {
      this.meta = await unwrap(api.GET('/v1/admin/meta'));
    } catch {
      this.meta = null;
    }
    if (this.meta?.catalog !== 'ready' || this.meta.setup_due) return;
    // Pages that know a revision from before their first request miss no change, and do not read twice.
    await Promise.all([this.loadMe(), fleet.load()]);
  }

  async loadMe(): Promise<void> {
    try {
      this.me = await unwrap(api.GET('/v1/admin/session'), { signIn: false });
      returnThere();
    } catch {
      this.me = null;
    }
  }

  /** Begins after a sign-in on this page. */
  begin(me: Schema['Me']): void {
    beginSession();
    this.me = me;
  }

  get isAdmin(): boolean {
    return this.me?.is_admin ?? false;
  }

  /** Returns whether the account can change this app. */
  canOwn(app: string): boolean {
    return this.isAdmin || this.me?.roles[app] === 'owner';
  }

  async signOut(everywhere = false): Promise<void> {
    if (everywhere) await unwrap(api.DELETE('/v1/admin/sessions'));
    else await unwrap(api.DELETE('/v1/admin/session'));
    for (const key of Object.keys(sessionStorage)) {
      if (key.startsWith(DRAFT)) sessionStorage.removeItem(key);
    }
    this.me = null;
    navigate('/sign-in');
  }
}

export const session = new Session();

const RETURN = 'sluicegate.return';

/** Stores in this tab the path to return to after a sign-in elsewhere: the provider sends people to the first page. */
export function saveReturn(path: string): void {
  sessionStorage.setItem(RETURN, path);
}

/** The path to return to after a sign-in elsewhere; empty: none was begun. */
export const savedReturn = (): string => sessionStorage.getItem(RETURN) ?? '';

/** Shows the page that the person wanted before a sign-in elsewhere. */
function returnThere(): void {
  const path = savedReturn();
  sessionStorage.removeItem(RETURN);
  if (path && location.pathname === '/') navigate(path, { replace: true });
}

/** The path of the sign-in page that returns to the current view. */
export function signInPath(): string {
  const here = location.pathname + location.search;
  return here === '/' ? '/sign-in' : `/sign-in?to=${encodeURIComponent(here)}`;
}

whenSignedOut(() => {
  if (!session.me) return;
  session.me = null;
  session.hasEnded = true;
  if (route.page !== 'sign-in') navigate(signInPath(), { replace: true });
});
