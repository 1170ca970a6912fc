import { enter, expect, startServer, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
const others: Server[] = [];
test.beforeAll(async () => {
  world = await startWorld({ SLUICEGATE__CATALOG__NODE: 'node-1' });
  for (const name of ['node-2', 'node-3']) {
    others.push(await startServer({ catalog: world.catalog, env: { SLUICEGATE__CATALOG__NODE: name } }));
  }
});
test.afterAll(async () => {
  await Promise.all([world, ...others].map((server) => server?.stop()));
});

test('an owner changes a limit, sees it in force on three nodes, and takes it back in two clicks', async ({
  context,
  page,
}) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps/demo/orders.create/edit`);
  await page.getByRole('textbox', { name: 'At once' }).first().fill('400');
  await expect(page.getByText('Checked by the server')).toBeVisible();
  await expect(page.getByText('200 → 400').first()).toBeVisible();
  await page.getByLabel('Why').fill('campaign');
  await page.getByRole('button', { name: 'Save as active' }).click();
  const message = page.getByText(/in force on 3 of 3 nodes after [\d.]+ s/);
  await expect(message).toBeVisible();
  const seconds = Number(/after ([\d.]+) s/.exec(await message.innerText())![1]);
  test.info().annotations.push({ type: 'in force after', description: `${seconds} s` });
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect
    .poll(
      async () =>
        (await world.ada.ask('GET', '/apps/demo/policies/orders.create')).document.rules[0].token_bucket.burst,
    )
    .toBe(200);
});

test('at three in the morning on a phone: from the overview to what refuses, since which change, in three taps', async ({
  context,
  page,
}) => {
  test.setTimeout(60_000);
  await page.setViewportSize({ width: 360, height: 780 });
  const limits = (limit: number) => ({
    name: 'night',
    rules: [{ name: 'tries', sliding_log: { limit, window: '10m' } }],
  });
  await world.ada.ask('POST', '/apps/shop/policies', { document: limits(100), state: 'active' });
  const { secret } = await world.ada.ask('POST', '/apps/shop/tokens', {
    name: 'night',
    scopes: ['check'],
    expires_in_days: 1,
  });
  await world.ada.ask(
    'PUT',
    '/apps/shop/policies/night?force=true&reason=tighter',
    { document: limits(2) },
    { 'if-match': '"1"' },
  );
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const check = () =>
    fetch(`${world.http}/v1/check`, { method: 'POST', headers, body: JSON.stringify({ policy: 'night', key: 'a' }) });
  await expect.poll(async () => (await check()).status).toBe(200);
  for (let call = 0; call < 9; call += 1) await check();

  await enter(context, world, 'vic');
  await page.goto(world.url);
  // A node sums up every ten seconds, and the page asks every ten.
  await expect(page.locator('a.app').first()).toContainText(/[1-9] refused/, { timeout: 40_000 });
  let taps = 0;
  const tap = async (action: Promise<unknown>) => {
    taps += 1;
    await action;
  };
  await tap(page.locator('a.app').first().click());
  await tap(page.getByRole('link', { name: 'night' }).first().click());
  await expect(page.getByRole('heading', { name: 'night' })).toBeVisible();
  await expect(page.getByRole('img', { name: /requests in the last 15 min: \d+(\.\d)?% refused/ })).toBeVisible();
  await expect(page.getByText(/Latest change: .*v2 · ada/)).toContainText('“tighter”');
  expect(taps).toBeLessThanOrEqual(3);
});
