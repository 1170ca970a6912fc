import { Database } from './database.ts';
import { Api, enter, expect, startServer, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

test('the catalog is killed: decisions go on, the draft stays, and it is saved when the catalog is back', async ({ page, context }) => {
  test.setTimeout(120_000);
  const database = await Database.make();
  const server: Server = await startServer({ catalog: database.url });
  try {
    // With a database of its own the server prints the setup token as well.
    await expect.poll(() => server.printed(/sgsetup_\w+/)).toBeTruthy();
    const ada = await Api.setUp({ ...server, setupToken: server.printed(/sgsetup_\w+/) });
    await ada.ask('POST', '/apps', { name: 'shop' });
    const rules = [{ name: 'minute', fixed_window: { limit: 5, window: '1m' } }];
    await ada.ask('POST', '/apps/shop/policies', { document: { name: 'login', rules }, state: 'shadow' });
    const { secret } = await ada.ask('POST', '/apps/shop/tokens', { name: 'gateway', scopes: ['check'], expires_in_days: 1 });
    await ada.addPerson({ name: 'bea', roles: { shop: 'owner' } });
    await enter(context, server, 'bea');
    await page.goto(`${server.url}/apps/shop/login/edit`);
    await expect(page.getByText('Checked by the server')).toBeVisible();
    const limit = page.getByRole('textbox', { name: 'Limit' }).first();

    await database.kill();
    await limit.fill('50');
    await expect(page.getByRole('alert').filter({ hasText: 'nothing can be changed. Your drafts are kept.' })).toBeVisible({ timeout: 20_000 });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const decided = await fetch(`${server.http}/v1/check`, { method: 'POST', headers, body: JSON.stringify({ policy: 'login', key: 'alice' }) });
    expect(decided.status).toBe(200);
    await page.getByRole('button', { name: 'Save in the shadow' }).click();
    // The banner, and beside the button why nothing was saved.
    await expect(page.getByRole('main').getByRole('alert')).toHaveCount(2, { timeout: 20_000 });
    await expect(limit).toHaveValue('50');

    await database.start();
    await expect(page.getByRole('alert').filter({ hasText: 'nothing can be changed' })).toHaveCount(0, { timeout: 30_000 });
    await page.reload();
    await expect(limit).toHaveValue('50');
    await expect(page.getByText('Checked by the server')).toBeVisible();
    await page.getByRole('button', { name: 'Save in the shadow' }).click();
    await expect(page.getByText('login saved as v2')).toBeVisible();
  } finally {
    await server.stop();
    await database.remove();
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
    const { secret } = await world.ada.ask('POST', '/apps/demo/tokens', { name: 'live', scopes: ['check'], expires_in_days: 1 });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const check = () => fetch(`${world.http}/v1/check`, { method: 'POST', headers, body: JSON.stringify({ policy: 'login', key: 'live' }) });
    const live = (tab = page) => tab.getByText(/Live on .+: \d+\/s/);

    await context.route('**/stream?**', (route) => route.abort());
    await page.goto(`${world.url}/apps/demo/login`);
    await check();
    const chart = page.getByRole('img', { name: /decided in the last 15 min/ });
    await expect(chart).toHaveAccessibleName(/^1 decided/, { timeout: 30_000 });
    await expect(live()).toHaveCount(0);

    await context.unroute('**/stream?**');
    await expect(live()).toBeVisible({ timeout: 20_000 });
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
      await expect(live(second)).toContainText(/[1-9]\d*\/s, /, { timeout: 1_500 });
    }).toPass({ timeout: 15_000 });

    // A change elsewhere is seen at once.
    const { version } = await world.ada.ask('GET', '/apps/demo/policies/login');
    await world.ada.ask('POST', '/apps/demo/policies/login/shadow?reason=elsewhere&force=true', undefined, { 'if-match': `"${version}"` });
    await expect(second.getByText('elsewhere').first()).toBeVisible({ timeout: 4_000 });
  });
});
