import { once } from 'node:events';
import { Database, freePort } from './database.ts';
import { Api, enter, expect, settled, startServer, test, type Server } from './harness.ts';
import { startRedis } from './redis.ts';
import { startWorld } from './world.ts';

/** Longest wait for a page that reads every ten seconds, and for a server whose database was unavailable. */
const SEEN_MS = 40_000;

test.describe('a catalog that is killed', () => {
  let database: Database;
  let server: Server;
  let secret = '';

  test.beforeAll(async () => {
    database = await Database.make();
    server = await startServer({ catalog: database.url });
    await expect.poll(() => server.printed(/sgsetup_\w+/)).toBeTruthy();
    const ada = await Api.setUp({ ...server, setupToken: server.printed(/sgsetup_\w+/) });
    await ada.ask('POST', '/apps', { name: 'shop' });
    const rules = [{ name: 'minute', fixed_window: { limit: 5, window: '1m' } }];
    await ada.ask('POST', '/apps/shop/policies', { document: { name: 'login', rules }, state: 'shadow' });
    ({ secret } = await ada.ask('POST', '/apps/shop/tokens', {
      name: 'gateway',
      scopes: ['check'],
      expires_in_days: 1,
    }));
    await ada.addPerson({ name: 'bea', roles: { shop: 'owner' } });
    await ada.addPerson({ name: 'vic', roles: { shop: 'viewer' } });
  });
  test.afterAll(async () => {
    await server.stop();
    await database.remove();
  });
  test.beforeEach(async ({ context }) => enter(context, server, 'bea'));

  test('decisions go on, a draft stays, and it is saved when the catalog is back', async ({ page }) => {
    test.setTimeout(120_000);
    await page.goto(`${server.url}/apps/shop/login/edit`);
    await expect(page.getByText('Checked by the server')).toBeVisible();
    const limit = page.getByRole('textbox', { name: 'Limit' }).first();
    const gone = page.getByRole('alert').filter({ hasText: 'you cannot change anything. Your drafts are kept.' });

    await database.kill();
    await limit.fill('50');
    await expect(gone).toBeVisible({ timeout: SEEN_MS });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const decided = await fetch(`${server.http}/v1/check`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ policy: 'login', key: 'alice' }),
    });
    expect(decided.status).toBe(200);
    await page.getByRole('button', { name: 'Save in shadow' }).click();
    // The banner, and beside the button the reason why nothing was saved.
    await expect(page.getByRole('main').getByRole('alert')).toHaveCount(2, { timeout: SEEN_MS });
    await expect(limit).toHaveValue('50');

    await database.start();
    await expect(gone).toHaveCount(0, { timeout: SEEN_MS });
    await page.reload();
    await expect(limit).toHaveValue('50');
    await expect(page.getByText('Checked by the server')).toBeVisible();
    await page.getByRole('button', { name: 'Save in shadow' }).click();
    await expect(page.getByText('login saved as v2')).toBeVisible();
  });

  test('what was read stays, what is opened waits, and both go on when the catalog is back', async ({
    page,
    context,
  }) => {
    test.setTimeout(120_000);
    await page.goto(`${server.url}/apps/shop/members`);
    await settled(page);
    await database.kill();
    await expect(page.getByRole('alert').filter({ hasText: 'you cannot change anything' })).toBeVisible({
      timeout: SEEN_MS,
    });
    await page.getByLabel('Role of vic').selectOption('owner');
    await expect(page.getByLabel('Role of vic'), 'what was read stays').toBeVisible();
    const opened = await context.newPage();
    await opened.goto(`${server.url}/apps`);
    await expect(opened.getByText('The catalog does not answer')).toBeVisible({ timeout: SEEN_MS });
    await page.getByRole('link', { name: 'Apps' }).first().click();
    await expect(page.getByRole('button', { name: 'Try again' })).toBeVisible({ timeout: SEEN_MS });

    await database.start();
    await expect(opened.getByRole('heading', { name: 'Apps' })).toBeVisible({ timeout: SEEN_MS });
    await expect(page.getByText('you cannot change anything')).toHaveCount(0, { timeout: SEEN_MS });
    // The page that could not be read is read, without a press.
    await expect(page.getByRole('table', { name: 'Apps' })).toBeVisible({ timeout: SEEN_MS });
    await expect(page.getByRole('button', { name: 'Try again' })).toHaveCount(0);
    await page.goto(`${server.url}/apps/shop/members`);
    await expect(page.getByLabel('Role of vic')).toBeVisible();
  });
});

test('every page shows nodes that decide without the store', async ({ page, context }) => {
  test.setTimeout(90_000);
  const port = await freePort();
  let redis = await startRedis(port);
  const server = await startServer({
    seed: '../examples/policies.yaml',
    env: { SLUICEGATE__STORE__URL: `redis://127.0.0.1:${port}` },
  });
  try {
    const ada = await Api.setUp(server);
    const { secret } = await ada.ask('POST', '/apps/demo/tokens', {
      name: 'caller',
      scopes: ['check'],
      expires_in_days: 1,
    });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const check = () =>
      fetch(`${server.http}/v1/check`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ policy: 'login', key: 'alice' }),
      });
    await enter(context, server, 'ada');
    await page.goto(`${server.url}/apps`);
    await settled(page);
    const gone = page.getByRole('alert').filter({ hasText: '1 of 1 nodes cannot reach the store' });
    await expect(gone).toHaveCount(0);

    redis.kill('SIGKILL');
    await once(redis, 'exit');
    await expect(async () => {
      await check();
      await expect(gone).toBeVisible({ timeout: 500 });
    }).toPass({ timeout: SEEN_MS });
    await page.getByRole('link', { name: 'Nodes' }).first().click();
    await expect(page.getByRole('cell', { name: /without the store/ })).toBeVisible();
    await expect(page.getByRole('cell', { name: 'redis' }), 'it has not answered lately').not.toContainText('median');

    redis = await startRedis(port);
    await expect(async () => {
      await check();
      await expect(gone).toHaveCount(0, { timeout: 500 });
    }).toPass({ timeout: SEEN_MS });
  } finally {
    await server.stop();
    redis.kill('SIGKILL');
  }
});

test.describe('a stream', () => {
  let world: Server & { ada: Api };
  test.beforeAll(async () => {
    world = await startWorld();
  });
  test.afterAll(() => world.stop());

  test('all tabs have one; without it the chart goes on, and it comes back', async ({ page, context }) => {
    test.setTimeout(90_000);
    const streams: string[] = [];
    context.on('request', (request) => request.url().includes('/stream') && streams.push(request.url()));
    await enter(context, world, 'bea');
    const { secret } = await world.ada.ask('POST', '/apps/demo/tokens', {
      name: 'live',
      scopes: ['check'],
      expires_in_days: 1,
    });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const check = () =>
      fetch(`${world.http}/v1/check`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ policy: 'login', key: 'live' }),
      });
    const live = (tab = page) => tab.getByText(/Now on .+: \d+ requests?\/s/);

    await context.route('**/stream?**', (route) => route.abort());
    await page.goto(`${world.url}/apps/demo/login`);
    await check();
    const chart = page.getByRole('img', { name: /requests? in the last 15 min/ });
    await expect(chart).toHaveAccessibleName(/^1 request/, { timeout: SEEN_MS });
    await expect(live()).toHaveCount(0);

    await context.unroute('**/stream?**');
    await expect(live()).toBeVisible({ timeout: SEEN_MS });
    streams.length = 0;
    const second = await context.newPage();
    await second.goto(`${world.url}/apps/demo/login`);
    await expect(live(second)).toBeVisible();
    expect(streams, 'the second tab hears the first').toEqual([]);

    // The tab that held the stream goes; the other one takes it over.
    await page.close();
    await expect.poll(() => streams.length).toBe(1);
    await expect(async () => {
      await check();
      await expect(live(second)).toContainText(/[1-9]\d* requests?\/s, /, { timeout: 1_500 });
    }).toPass({ timeout: SEEN_MS });

    // A change elsewhere is seen at once.
    const { version } = await world.ada.ask('GET', '/apps/demo/policies/login');
    await world.ada.ask('POST', '/apps/demo/policies/login/shadow?reason=elsewhere&force=true', undefined, {
      'if-match': `"${version}"`,
    });
    await expect(second.getByText(/Latest change: .*elsewhere/)).toBeVisible({ timeout: 4_000 });
  });
});
