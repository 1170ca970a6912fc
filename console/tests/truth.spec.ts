import type { Page, Request } from '@playwright/test';
import { Api, enter, expect, signIn, test } from './harness.ts';
import { compare, type Compared } from './truth/compare.ts';
import { factsOf, fiveMinutes, type PageName } from './truth/facts.ts';
import { Fleet, NODES, type NodeName } from './truth/fleet.ts';
import { BUCKET_MS, Load, type Missing } from './truth/load.ts';
import { readPage } from './truth/read.ts';

/** Pages, with the policies that are looked at. */
interface View {
  page: PageName;
  app?: string;
  policy?: string;
}
/** The pages that are read in each state, the first ones more often. */
const VIEWS: View[] = [
  { page: 'overview' },
  { page: 'app', app: 'shop' },
  { page: 'policy', app: 'shop', policy: 'cart.add' },
  { page: 'policy', app: 'shop', policy: 'search' },
  { page: 'nodes' },
  { page: 'audit' },
];

/** Changes a policy as an administrator. */
async function change(policy: string, limit: number, reason: string): Promise<void> {
  const path = `/apps/shop/policies/${policy}`;
  const { version, document } = await fleet.ada.ask('GET', path);
  document.rules[0].fixed_window.limit = limit;
  await fleet.ada.ask('PUT', `${path}?reason=${reason}&force=true`, { document }, { 'if-match': `"${version}"` });
}

const READ_AGAIN_MAX = 5;
/** `STATES='calm,two editors'` runs these states alone: for work on the test. */
const ONLY = process.env.STATES?.split(',');

let fleet: Fleet;
let load: Load;
let secret = '';
let begun = 0;

test.beforeAll(async () => {
  test.setTimeout(90_000);
  begun = Date.now();
  fleet = await Fleet.start();
  load = new Load(fleet);
  const { ada } = fleet;
  for (const name of ['shop', 'stock']) await ada.ask('POST', '/apps', { name, description: `The app ${name}` });
  await ada.addPerson({ name: 'bea', roles: { shop: 'owner', stock: 'owner' } });
  const add = (app: string, name: string, limit: number, more: object = {}, state = 'active') =>
    ada.ask('POST', `/apps/${app}/policies?reason=new`, {
      document: { name, rules: [{ name: 'main', fixed_window: { limit, window: '1h' } }], ...more },
      state,
    });
  await add('shop', 'cart.add', 5);
  await add('shop', 'cart.open', 4, { on_store_failure: 'allow' });
  await add('shop', 'cart.pay', 3, { on_store_failure: 'deny' });
  await add('shop', 'search', 2, {}, 'shadow');
  await add('stock', 'stock.read', 1_000);
  ({ secret } = await ada.ask('POST', '/apps/shop/tokens', { name: 'caller', scopes: ['check'], expires_in_days: 90 }));
  await fleet.followed();
});
test.afterAll(() => fleet?.stop());

/** Opens a page on a node, and waits until everything that it asked for is there. */
async function open(page: Page, node: NodeName, { page: name, app, policy }: View): Promise<void> {
  const waiting = new Set<Request>();
  page.on(
    'request',
    (request) => request.url().includes('/v1/admin/') && !request.url().includes('/stream') && waiting.add(request),
  );
  page.on('requestfinished', (request) => waiting.delete(request));
  page.on('requestfailed', (request) => waiting.delete(request));
  const path = {
    overview: '/',
    app: `/apps/${app}`,
    policy: `/apps/${app}/${policy}`,
    nodes: '/nodes',
    audit: '/audit',
  }[name];
  await page.goto(fleet.node(node).url + path);
  await expect(page.getByRole('main').getByRole('heading').first()).toBeVisible();
  await expect(page.locator('header .fleet')).toBeVisible();
  if (name === 'audit') await page.getByRole('button', { name: 'Verify the chain' }).click();
  let quiet = 0;
  await expect.poll(() => (quiet = waiting.size === 0 ? quiet + 1 : 0), { intervals: [50] }).toBeGreaterThan(3);
  for (const event of ['request', 'requestfinished', 'requestfailed']) page.removeAllListeners(event as 'request');
}

interface Look {
  views?: View[];
  missing?: Missing;
}

/** Compares one page. What changes while it is read is read again: a slow machine can lose the store for a moment. */
async function compareOn(page: Page, node: NodeName, view: View, missing?: Missing): Promise<Compared> {
  for (let time = 1; ; time += 1) {
    await fleet.reported(NODES.filter((name) => name !== missing?.node));
    const before = await fleet.breakers();
    await open(page, node, view);
    const reading = await readPage(page);
    const facts = await factsOf(fleet, load, { ...view, ...(missing && { missing }) });
    const isSame = String(before) === String(await fleet.breakers()) && facts.isReported;
    if (isSame || time === READ_AGAIN_MAX) return compare(reading, facts);
  }
}

/** Reads pages on a node, compares them, and prints how many sentences were compared and how many differ. */
async function look(
  page: Page,
  state: string,
  node: NodeName,
  { views = VIEWS, missing }: Look = {},
): Promise<string[]> {
  const all: string[] = [];
  await enter(page.context(), fleet.node(node), 'ada');
  for (const view of views) {
    // No window begins while something was sent.
    await expect.poll(() => load.isNear(fiveMinutes(Date.now())), { timeout: 40_000 }).toBe(false);
    const { compared, differ } = await compareOn(page, node, view, missing);
    const name = [view.page, view.policy].filter(Boolean).join(' ');
    console.log(
      `${((Date.now() - begun) / 1000).toFixed(0).padStart(4)} s  ${state.padEnd(22)}${name.padEnd(20)}${String(compared).padStart(4)} compared${String(differ.length).padStart(4)} differ`,
    );
    all.push(...differ.map((one) => `${state}, ${name}: ${one}`));
  }
  return all;
}

/** Requests by which nodes notice the state of the store. */
const probe = () => load.probe(secret, 'cart.open');

const nextBucket = () => past(Math.ceil(Date.now() / BUCKET_MS) * BUCKET_MS);
const past = (at: number) => expect.poll(() => Date.now() > at, { timeout: 40_000, intervals: [100] }).toBe(true);

test('every sentence with a number is what happened', async ({ page, browser }) => {
  test.setTimeout(300_000);
  const differ: string[] = [];
  const looked = async (state: string, node: NodeName, more?: Look) =>
    void differ.push(...(await look(page, state, node, more)));

  const step = async (name: string, run: () => Promise<void>) =>
    void (!ONLY || ONLY.includes(name) ? await test.step(name, run) : undefined);

  await step('calm', async () => {
    // The counts of a shadow begin with a bucket.
    await nextBucket();
    await load.send(secret, 'cart.add', ['kim', 'lee'], 4);
    await load.send(secret, 'cart.open', ['kim'], 2);
    await load.send(secret, 'cart.pay', ['lee'], 2);
    await load.send(secret, 'search', ['kim', 'lee'], 2);
    await load.send(secret, 'stock.read', ['kim'], 3);
    await fleet.counted();
    await looked('calm', 'node-a');
  });

  await step('a policy becomes active', async () => {
    await nextBucket();
    await load.send(secret, 'search', ['kim', 'mia'], 2);
    await fleet.ada.ask('POST', '/apps/shop/policies/search/activate?reason=OPS-7&force=true', undefined, {
      'if-match': '"1"',
    });
    await fleet.followed();
    // The card counts from the next bucket on, without the requests that the shadow let pass in this one.
    await nextBucket();
    await load.send(secret, 'search', ['kim', 'mia'], 2);
    await fleet.counted();
    await looked('active', 'node-b', {
      views: [{ page: 'policy', app: 'shop', policy: 'search' }, ...VIEWS.slice(0, 2)],
    });
  });

  await step('overload', async () => {
    fleet.store.delayMs = 8;
    await load.flood(secret, 'cart.add', 200);
    await load.flood(secret, 'cart.open', 200);
    fleet.store.delayMs = 0;
    await fleet.found(probe);
    await fleet.counted();
    await looked('overload', 'node-a', { views: VIEWS.slice(0, 3) });
  });

  await step('the store is away', async () => {
    fleet.store.cut();
    await fleet.lost(probe);
    // No node admits more than a limit has: all of it can be charged when the store is back.
    await load.send(secret, 'cart.add', ['ned', 'oda'], 4);
    await load.send(secret, 'cart.open', ['ned', 'oda'], 1);
    await load.send(secret, 'cart.pay', ['ned', 'oda'], 4);
    await fleet.counted();
    const views: View[] = ['cart.open', 'cart.pay'].map((policy) => ({ page: 'policy', app: 'shop', policy }));
    await looked('store away', 'node-b', { views: [{ page: 'nodes' }, ...VIEWS.slice(0, 3), ...views] });
    fleet.store.mend();
    await fleet.found(probe);
    await fleet.counted();
    await looked('store back', 'node-a', { views: [{ page: 'nodes' }, { page: 'overview' }] });
  });

  await step('two editors', async () => {
    const other = await browser.newContext();
    const editor = await other.newPage();
    await enter(other, fleet.node('node-b'), 'bea');
    await editor.goto(`${fleet.node('node-b').url}/apps/shop/cart.open/edit`);
    await editor.getByRole('textbox', { name: 'Limit' }).first().fill('9');
    await editor.getByLabel('Why').fill('OPS-8');
    await change('cart.open', 6, 'OPS-9');
    await editor.getByRole('button', { name: 'Save as active' }).click();
    await expect(editor.getByRole('heading', { name: 'The policy is at v2 now' })).toBeVisible();
    await expect(editor.getByText('ada saved a version while you edited v1:')).toBeVisible();
    await expect(editor.getByRole('list', { name: 'Theirs' })).toContainText('4 → 6');
    await expect(editor.getByRole('list', { name: 'Yours' })).toContainText('4 → 9');
    await other.close();
    await fleet.followed();
    await looked('two editors', 'node-b', {
      views: [{ page: 'policy', app: 'shop', policy: 'cart.open' }, { page: 'overview' }, { page: 'audit' }],
    });
  });

  await step('a node without the catalog', async () => {
    const counting: NodeName[] = ['node-a', 'node-b'];
    const missing: Missing = { node: 'node-c', since: Date.now() };
    fleet.catalog.cut();
    await change('cart.pay', 2, 'OPS-10');
    await fleet.followed(counting);
    await looked('node behind', 'node-a', { views: [{ page: 'nodes' }, { page: 'audit' }], missing });
    await load.send(secret, 'stock.read', ['kim'], 5);
    await fleet.counted(counting);
    await fleet.silent('node-c');
    await looked('node silent', 'node-b', { views: [{ page: 'nodes' }, ...VIEWS.slice(0, 3)], missing });
    fleet.catalog.mend();
    await fleet.followed();
    await fleet.counted();
    await looked('node back', 'node-b', { views: [{ page: 'nodes' }, ...VIEWS.slice(0, 2)] });
  });

  await step('a token ends', async () => {
    const { secret: short } = await fleet.ada.ask('POST', '/apps/shop/tokens', {
      name: 'short',
      scopes: ['check'],
      expires_in_days: 1,
    });
    await fleet.followed();
    await looked('token ends soon', 'node-a', { views: VIEWS.slice(0, 2) });
    // A day later, for this token alone.
    const [ends, revision] = [Date.now() - 1_000, (await fleet.revision()) + 1];
    await fleet.change(
      `BEGIN; UPDATE tokens SET expires_at = ${ends}, revision = ${revision} WHERE name = 'short'; UPDATE head SET revision = ${revision}; COMMIT`,
    );
    await fleet.followed();
    await expect(async () => expect(await load.send(short, 'cart.add', ['kim'], 1)).toBe(0)).toPass({
      timeout: 10_000,
    });
    await fleet.counted();
    await looked('token ended', 'node-a', { views: VIEWS.slice(0, 2) });
  });

  await step('a flood of wrong passwords', async () => {
    const { url } = fleet.node('node-b');
    const guess = async () =>
      (
        await fetch(`${url}/v1/admin/session`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ account: 'bea', password: 'guess' }),
        })
      ).status;
    const answers = await Promise.all(Array.from({ length: 14 }, guess));
    expect(answers.filter((status) => status === 429).length).toBeGreaterThan(0);
    const other = await browser.newContext();
    const visitor = await other.newPage();
    await visitor.clock.install();
    await visitor.goto(`${url}/sign-in`);
    await expect(visitor.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
    // The page does not count down while it is read.
    await visitor.clock.pauseAt(Date.now() + 60_000);
    const answered = visitor.waitForResponse((response) => response.request().method() === 'POST');
    await signIn(visitor, 'bea', 'guess');
    const wait = Number((await answered).headers()['retry-after']);
    await expect(visitor.getByRole('alert')).toHaveText(`Too many attempts. Try again in ${wait} s.`);
    await other.close();
    await looked('wrong passwords', 'node-b', { views: [{ page: 'audit' }] });
  });

  await step('a flood of denied attempts', async () => {
    await fleet.ada.addPerson({ name: 'vic', roles: { shop: 'viewer' } });
    const vic = await Api.signIn(fleet.node('node-b'), 'vic');
    const tries = (count: number) =>
      Promise.all(
        Array.from({ length: count }, () =>
          vic.send('DELETE', '/apps/shop/policies/cart.add', undefined, { 'if-match': '"1"' }),
        ),
      );
    // One entry a second is left when sixty are written.
    for (let time = 0; time < 7; time += 1)
      expect((await tries(10)).map(({ status }) => status)).toEqual(Array(10).fill(403));
    await expect
      .poll(
        async () => (
          await tries(1),
          (await fleet.rows("SELECT 1 FROM audit WHERE after_change LIKE '%unnoted_before%'")).length
        ),
        { timeout: 10_000, intervals: [500] },
      )
      .toBeGreaterThan(0);
    await looked('denied attempts', 'node-b', { views: [{ page: 'audit' }] });
  });

  await step('a sign-in at a provider', async () => {
    const other = await browser.newContext();
    const visitor = await other.newPage();
    await visitor.goto(`${fleet.node('node-a').url}/sign-in`);
    await visitor.getByRole('link', { name: /^Sign in with/ }).click();
    await expect(visitor.getByRole('button', { name: 'Account dan@example.org' })).toBeVisible();
    await other.close();
    await looked('signed in elsewhere', 'node-a', { views: [{ page: 'audit' }] });
  });

  expect(differ).toEqual([]);
});

test('a number that is not what happened is found, and a sentence that nobody compares', async ({ page }) => {
  test.setTimeout(90_000);
  const plant = (path: string, change: (body: any) => void) =>
    page.route(`**/v1/admin/${path}`, async (route) => {
      const answer = await route.fetch();
      const body = await answer.json();
      change(body);
      await route.fulfill({ response: answer, json: body });
    });
  await load.send(secret, 'cart.add', ['kim'], 1);
  await fleet.counted();
  await plant('traffic', ({ apps }) => (apps.find(({ name }: { name: string }) => name === 'shop').decided += 1));
  await plant('fleet', ({ nodes }) => (nodes[1].revision -= 1));
  await fleet.ada.ask('PATCH', '/apps/stock', { description: 'Ships in 3 days' }, { 'if-match': '"1"' });
  await fleet.followed();
  const differ = await look(page, 'planted', 'node-a', { views: [{ page: 'overview' }, { page: 'nodes' }] });
  const found = (words: RegExp) =>
    expect(
      differ.filter((one) => words.test(one)),
      String(words),
    ).not.toEqual([]);
  found(/overview: policies and requests of an app \(Apps › shop\): shows “4 policies · [\d,]+ requests”, but it is/);
  found(/overview: picture of five minutes \(Apps › shop\): shows/);
  found(/overview: revision in force .*: shows “.* on 2 of 3 nodes”, but it is “.* on 3 of 3 nodes”/);
  found(/nodes: revision of a node \(Nodes › node-b\): shows “\d+, 1 behind”, but it is “\d+”/);
  found(/overview: not compared \(Apps › stock, text\): “Ships in 3 days”/);
});
