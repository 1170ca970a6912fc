import { enter, expect, startServer, test, type Api, type Server } from './harness.ts';
import { settled } from './pages.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test('two nodes are two dots, and one that stops is seen', async ({ context, page }) => {
  const second = await startServer({ catalog: world.catalog });
  await enter(context, world, 'vic');
  await page.clock.install();
  await page.goto(`${world.url}/nodes`);
  await settled(page);
  await expect
    .poll(async () => {
      await page.clock.runFor(6_000);
      return page.getByRole('main').innerText();
    }, { timeout: 20_000 })
    .toMatch(/in force on 2 of 2 nodes/);
  await expect(page.getByRole('cell', { name: 'ready', exact: true })).toHaveCount(2);
  await expect(page.getByRole('link', { name: /in force on 2 of 2 nodes/ }).locator('i.current')).toHaveCount(2);
  await second.stop();
  await page.clock.fastForward(60_000);
  await expect(page.getByText('no report').first()).toBeVisible();
});

test('what is refused is seen in the lists, worst first', async ({ context, page }) => {
  test.setTimeout(60_000);
  const { secret } = await world.ada.ask('POST', '/apps/demo/tokens', { name: 'caller', scopes: ['check'], expires_in_days: 1 });
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ policy: 'login', key: 'alice' });
  const check = async () => (await fetch(`${world.http}/v1/check`, { method: 'POST', headers, body })).status;
  // The node learns of the token a moment after it was made.
  await expect.poll(check).toBe(200);
  for (let call = 1; call < 10; call++) expect(await check()).toBe(200);
  await enter(context, world, 'vic');
  // A node sums up every ten seconds.
  await expect(async () => {
    await page.goto(`${world.url}/apps/demo?sort=refused`);
    await expect(page.locator('tbody tr').first()).toContainText('50%', { timeout: 1_500 });
  }).toPass({ timeout: 45_000 });
  await expect(page.locator('tbody tr').first()).toContainText('login');
  await page.goto(world.url);
  const first = page.locator('a.app').first();
  await expect(first).toContainText('demo');
  await expect(first).toContainText('10 decisions');
  await expect(first).toContainText('50% refused');
});
