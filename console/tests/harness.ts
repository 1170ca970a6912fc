import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test as base, type BrowserContext, type Page, type Request } from '@playwright/test';
import { startFront } from './front.ts';

/** The server to test; `make console-test` names the one that it built. */
export const BIN = resolve(process.env.SLUICEGATE_BIN ?? '../target/fast/sluicegate');
/** Serves this folder instead of the console inside the program: for work on the console alone. */
const DIST = process.env.CONSOLE_DIST;
const START_MS = 20_000;

/** Longest wait for a page to show what others changed, ms: it asks for the revision every five seconds. */
export const FOLLOWED_MS = 12_000;

export const PASSWORD = 'correct horse battery';

/** A server with a catalog of its own in a temporary SQLite file. */
export interface Server {
  /** The address of the console. */
  url: string;
  /** The address for decisions. */
  http: string;
  setupToken: string;
  catalog: string;
  stop: () => Promise<void>;
  /** The first match in the output of the server; empty: none. */
  printed: (what: RegExp) => string;
}

export interface Person {
  name: string;
  admin?: boolean;
  /** Roles by app. */
  roles?: Record<string, 'owner' | 'viewer'>;
}

interface Options {
  seed?: string;
  catalog?: string;
  /** A file of policies, instead of a catalog. */
  policies?: string;
  env?: Record<string, string>;
}

export async function startServer(options: Options = {}): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), 'sluicegate-console-'));
  const catalog = options.catalog ?? `sqlite:${join(folder, 'catalog.db')}`;
  const source = options.policies ? ['--policies', resolve(options.policies)] : ['--catalog', catalog];
  const args = ['serve', ...source, '--listen', '127.0.0.1:0', '--resp', 'off', '--rls', 'off'];
  if (options.seed) args.push('--seed', resolve(options.seed));
  const env = {
    ...process.env,
    SLUICEGATE__ADMIN__LISTEN: '127.0.0.1:0',
    SLUICEGATE__CATALOG__KEPT: join(folder, 'kept.json'),
    ...options.env,
  };
  const child = spawn(BIN, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const lines: string[] = [];
  const found = { admin: '', http: '', token: '' };
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      lines.push(line);
      found.admin ||= /admin:\/\/(\S+)/.exec(line)?.[1] ?? '';
      found.http ||= /listening on (http:\/\/\S+)/.exec(line)?.[1] ?? '';
      found.token ||= /sgsetup_\w+/.exec(line)?.[0] ?? '';
    });
  }
  const end = Date.now() + START_MS;
  const isUp = () => found.admin && (found.token || options.catalog || options.policies) && found.http;
  while (!isUp()) {
    if (child.exitCode !== null || Date.now() > end) throw new Error(`${BIN} did not start:\n${lines.join('\n')}`);
    await new Promise((done) => setTimeout(done, 20));
  }
  const front = DIST ? await startFront(resolve(DIST), `http://${found.admin}`) : undefined;
  return {
    url: front?.url ?? `http://${found.admin}`,
    http: found.http,
    setupToken: found.token,
    catalog,
    printed: (what) => what.exec(lines.join('\n'))?.[0] ?? '',
    stop: async () => {
      front?.stop();
      const gone = once(child, 'exit');
      if (child.exitCode === null && child.kill('SIGTERM')) await gone;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Requests beside the browser, as an account that is signed in. */
export class Api {
  private constructor(
    private readonly url: string,
    /** The session, as `name=value`. */
    readonly cookie: string,
  ) {}

  static async setUp(server: Server, account = 'ada'): Promise<Api> {
    const body = { token: server.setupToken, account, password: PASSWORD };
    const answer = await send(server.url, 'POST', '/setup', body);
    if (answer.status !== 201) throw new Error(`setup: ${answer.status} ${await answer.text()}`);
    return Api.signIn(server, account);
  }

  static async signIn(server: Server, account: string): Promise<Api> {
    const answer = await send(server.url, 'POST', '/session', { account, password: PASSWORD });
    const cookie = answer.headers.get('set-cookie')?.split(';')[0];
    if (!answer.ok || !cookie) throw new Error(`sign-in: ${answer.status} ${await answer.text()}`);
    return new Api(server.url, cookie);
  }

  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    return send(this.url, method, path, body, { cookie: this.cookie, ...headers });
  }

  /** The JSON of an answer that has to be 2xx. */
  async ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<any> {
    const answer = await this.send(method, path, body, headers);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }

  async addPerson({ name, admin = false, roles = {} }: Person): Promise<void> {
    await this.ask('POST', '/accounts', { name, is_admin: admin, password: PASSWORD });
    for (const [app, role] of Object.entries(roles)) await this.ask('PUT', `/apps/${app}/members/${name}`, { role });
  }
}

async function send(url: string, method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const isJson = body !== undefined;
  return fetch(`${url}/v1/admin${path}`, {
    method,
    headers: { ...(isJson && { 'content-type': 'application/json' }), ...headers },
    ...(isJson && { body: JSON.stringify(body) }),
  });
}

/** Signs in on the page that asks for it. */
export async function signIn(page: Page, name: string, password = PASSWORD): Promise<void> {
  await page.getByLabel(/^(Account|账号)$/).fill(name);
  await page.getByLabel(/^(Password|密码)$/).fill(password);
  await page.getByRole('button', { name: /^(Sign in|登录)$/ }).click();
}

/** Opens `path` as `name`, who is then signed in. */
export async function openAs(page: Page, server: Server, name: string, path = '/'): Promise<void> {
  const to = path === '/' ? '' : `?to=${encodeURIComponent(path)}`;
  await page.goto(`${server.url}/sign-in${to}`);
  await signIn(page, name);
  await page.waitForURL((url) => !url.pathname.startsWith('/sign-in'));
}

/**
 * Lets the next request of a page to `url` wait until `end` has ended the session. A session that ends before the action
 * of a test may be found out by a background request, which then takes the page away from the action.
 */
export async function endSessionBefore(page: Page, url: RegExp, end: () => Promise<void>): Promise<void> {
  let ended: Promise<void> | undefined;
  await page.route(url, async (route) => {
    await (ended ??= end());
    await route.fallback();
  });
}

/** Requests that wait until the test releases them. */
export interface Held {
  /** The first of them has been sent. */
  asked: Promise<void>;
  release: () => void;
  /** The first of them has ended: it was answered, or the page has given it up. */
  over: Promise<unknown>;
}

/** Holds the next requests of a page to `url`, `count` of them. */
export async function hold(page: Page, url: RegExp, count = Infinity): Promise<Held> {
  let held = 0;
  let [ask, release] = [() => {}, () => {}];
  const asked = new Promise<void>((done) => (ask = done));
  const released = new Promise<void>((done) => (release = done));
  const isHeld = { predicate: (request: Request) => url.test(request.url()), timeout: 0 };
  const ends = [page.waitForEvent('requestfinished', isHeld), page.waitForEvent('requestfailed', isHeld)];
  await page.route(url, async (route) => {
    ask();
    if (++held <= count) await released;
    // The page may have given it up.
    await route.continue().catch(() => {});
  });
  return { asked, release, over: Promise.race(ends) };
}

/** Sessions by server and account: a password takes long to check. */
const sessions = new WeakMap<Server, Map<string, string>>();

/** Gives a browser a session of `name`, without its sign-in page. */
export async function enter(context: BrowserContext, server: Server, name: string): Promise<void> {
  const known = sessions.get(server) ?? new Map<string, string>();
  sessions.set(server, known);
  const cookie = known.get(name) ?? (await Api.signIn(server, name)).cookie;
  known.set(name, cookie);
  const [key = '', value = ''] = cookie.split(/=(.*)/);
  await context.addCookies([
    { name: key, value, url: server.url.replace('http:', 'https:'), httpOnly: true, secure: true, sameSite: 'Strict' },
  ]);
}

/** The browser. Without it, tests are skipped; with `CI=true` they fail instead. */
export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** The seed of a slow run: pages compute slowly, and requests leave late, so that races show. Without it, nothing is slow. */
export const SLOW = process.env.SLUICEGATE_SLOW ? Number(process.env.SLUICEGATE_SLOW) : undefined;
const DELAY_MAX_MS = 400;

/** Makes a browser slow: each page computes at a fourth to an eighth of its speed, each request waits up to 400 ms. */
async function slowDown(context: BrowserContext, seed: number): Promise<void> {
  const random = randomOf(seed);
  context.on('page', async (page) => {
    // The page may be closed before it is slow.
    const session = await context.newCDPSession(page).catch(() => undefined);
    await session?.send('Emulation.setCPUThrottlingRate', { rate: 4 + (seed % 5) }).catch(() => {});
  });
  await context.route('**', async (route) => {
    await new Promise((done) => setTimeout(done, random() * DELAY_MAX_MS));
    await route.fallback().catch(() => {});
  });
}

/** Numbers from 0 to 1, by mulberry32: the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The requests of each browser that have no answer yet. */
const underWay = new WeakMap<BrowserContext, Set<Request>>();

/** Waits until the page has read what it shows, and asks for nothing more. */
export async function settled(page: Page): Promise<void> {
  const isRead = () =>
    document.querySelector('h1, .title') !== null && document.querySelector('main [aria-busy="true"]') === null;
  let quiet = 0;
  const isQuiet = async () => {
    await page.waitForFunction(isRead);
    return (quiet = underWay.get(page.context())?.size ? 0 : quiet + 1);
  };
  // An answer may be the reason for the next request.
  await expect.poll(isQuiet, { intervals: [40], timeout: 0 }).toBeGreaterThan(2);
}

/** Every page is watched: nothing may violate the content security policy, leave the origin or fail unseen. */
export const test = base.extend<{ browserIsThere: void; watched: string[] }, { slowed: void }>({
  slowed: [
    async ({ browser }, use) => {
      if (SLOW !== undefined) {
        const create = browser.newContext.bind(browser);
        browser.newContext = async (options) => {
          const context = await create(options);
          await slowDown(context, SLOW);
          return context;
        };
      }
      await use();
    },
    { auto: true, scope: 'worker' },
  ],
  browserIsThere: [
    async ({}, use, info) => {
      const isThere = existsSync(CHROMIUM);
      if (!isThere && process.env.CI === 'true') throw new Error(`${CHROMIUM} is missing`);
      info.skip(!isThere, `${CHROMIUM} is missing`);
      await use();
    },
    { auto: true },
  ],
  watched: [
    async ({ context }, use) => {
      const wrong: string[] = [];
      const requests = new Set<Request>();
      underWay.set(context, requests);
      // A stream does not end.
      context.on('request', (request) => request.url().includes('/stream?') || requests.add(request));
      for (const end of ['requestfinished', 'requestfailed'] as const)
        context.on(end as 'requestfinished', (request) => requests.delete(request));
      await context.exposeBinding('reportViolation', (_source, text: string) => {
        wrong.push(`policy violation: ${text}`);
      });
      await context.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (event) => {
          const report = (window as unknown as { reportViolation: (text: string) => void }).reportViolation;
          report(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
        });
      });
      context.on('request', (request) => {
        const url = new URL(request.url());
        const origin = new URL(request.frame().url() === 'about:blank' ? request.url() : request.frame().url()).origin;
        // People may go elsewhere, for example to sign in; pages may not send requests elsewhere.
        if (request.isNavigationRequest()) return;
        if (url.protocol !== 'data:' && url.origin !== origin)
          wrong.push(`request leaves the origin: ${request.url()}`);
      });
      context.on('weberror', (error) => wrong.push(`error in the page: ${error.error()}`));
      await use(wrong);
      expect(wrong).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
