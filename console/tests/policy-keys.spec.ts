import type { Page } from '@playwright/test';
import { enter, expect, hold, settled, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
let token = '';

test.beforeAll(async () => {
  world = await startWorld({ SLUICEGATE__ADMIN__KEYS: 'clear' });
  token = (await world.ada.ask('POST', '/apps/demo/tokens', { name: 'keys', scopes: ['check'], expires_in_days: 1 }))
    .secret;
});
test.afterAll(() => world.stop());

test.beforeEach(async ({ context }) => enter(context, world, 'bea'));

async function check(key: string, times = 1): Promise<void> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  for (let done = 0; done < times; done += 1) {
    await fetch(`${world.http}/v1/check`, { method: 'POST', headers, body: JSON.stringify({ policy: 'login', key }) });
  }
}

async function look(page: Page, policy: string, key: string): Promise<void> {
  await page.goto(`${world.url}/keys?app=demo&policy=${policy}&key=${encodeURIComponent(key)}`);
  await expect(keyTitle(page)).toBeVisible();
}

const keyTitle = (page: Page) => page.locator('#key-title');
const sentence = (page: Page) => page.locator('main').getByRole('status').first();
const dialog = (page: Page) => page.getByRole('dialog');
const lastEntry = async (action: string) =>
  (await world.ada.ask('GET', `/apps/demo/audit?action=${action}&limit=1`)).items[0];

test('a key that is refused: which rule, since when, until when', async ({ page }) => {
  await check('alice', 6);
  await page.goto(`${world.url}/keys`);
  await page.getByLabel('App').selectOption('demo');
  await page.getByLabel('Policy').selectOption('login');
  await page.getByRole('textbox', { name: 'Key' }).fill('alice');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'alice' })).toBeVisible();
  await expect(page).toHaveURL(/key=alice/);
  await expect(sentence(page)).toContainText('Refused now');
  await expect(sentence(page)).toContainText('Rule tries has 0 of 5 left.');
  await expect(sentence(page)).toContainText(/The next permit comes in (9:\d\d|10 min)\./);
  await expect(page.getByRole('row', { name: /tries/ })).toContainText('Sliding log');
  await expect(page.getByText('Decided by the store.')).toBeVisible();
});

test('keys that were refused lately can be chosen', async ({ page }) => {
  await check('<b>eve</b>', 9);
  await page.goto(`${world.url}/keys?app=demo&policy=login`);
  const lately = page.getByRole('region', { name: 'Refused most, lately' });
  const eve = lately.getByRole('listitem').filter({ hasText: '<b>eve</b>' });
  await expect(eve).toContainText('4 times', { timeout: 15_000 });
  await eve.getByRole('button').click();
  await expect(page.getByRole('heading', { name: '<b>eve</b>' })).toBeVisible();
  await expect(sentence(page)).toContainText('Refused now');
});

test('the key that was looked up last is shown, whichever answer comes last', async ({ page }) => {
  await page.goto(`${world.url}/keys?app=demo&policy=login`);
  const key = page.getByRole('textbox', { name: 'Key' });
  const first = await hold(page, /\/keys\/explain$/, 1);
  await key.fill('first');
  await key.press('Enter');
  await first.asked;
  await key.fill('second');
  await key.press('Enter');
  await expect(keyTitle(page)).toHaveText('second');
  first.release();
  await settled(page);
  await expect(keyTitle(page)).toHaveText('second');
});

test('a key that was never seen passes; one with limits of its own shows them', async ({ page }) => {
  await look(page, 'login', 'nobody');
  await expect(sentence(page)).toContainText('Passes');
  await expect(sentence(page)).toContainText('Rule tries has 5 of 5 left.');
  await look(page, 'orders.create', '203.0.113.7');
  await expect(page.getByText('own limits')).toBeVisible();
  await expect(page.getByRole('row', { name: /burst/ })).toContainText('2,000');
  await expect(page.getByRole('row', { name: /hourly/ })).toHaveCount(0);
});

test('a key of a policy in the shadow would be refused', async ({ page }) => {
  await world.ada.ask('POST', '/apps/demo/policies', {
    document: { name: 'keys.shadow', rules: [{ sliding_log: { limit: 1, window: '1h' } }] },
  });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ policy: 'keys.shadow', key: 'bob' });
  await expect
    .poll(async () => (await fetch(`${world.http}/v1/check`, { method: 'POST', headers, body })).status)
    .toBe(200);
  await look(page, 'keys.shadow', 'bob');
  await expect(sentence(page)).toContainText('Would be refused');
});

test('the key of a request is found, and the policy that guards it', async ({ page }) => {
  const document = {
    name: 'keys.site',
    key: ['remote_ip'],
    match: { path: { prefix: '/pay' } },
    rules: [{ token_bucket: { rate: '1/s', burst: 3 } }],
  };
  const { revision } = await world.ada.ask('POST', '/apps/demo/policies', { document, state: 'active' });
  await expect
    .poll(
      async () =>
        (await world.ada.ask('GET', '/fleet')).nodes.some((node: { revision: number }) => node.revision >= revision),
      { timeout: 15_000 },
    )
    .toBe(true);
  await page.goto(`${world.url}/keys?app=demo`);
  await page.getByRole('button', { name: 'By request' }).click();
  await page.getByLabel('Path').fill('/pay/now');
  await page.getByLabel('Client address').fill('198.51.100.7');
  await page.getByRole('button', { name: 'Look up', exact: true }).click();
  await expect(page.getByRole('heading', { name: '198.51.100.7' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'keys.site' })).toBeVisible();
  await page.getByLabel('Path').fill('/nothing');
  await page.getByLabel('Client address').fill('');
  await page.getByRole('button', { name: 'Look up', exact: true }).click();
  await expect(page.getByRole('alert')).toBeVisible();
});

test('permits are given back with a reason, and it is in the audit', async ({ page }) => {
  await check('carol', 5);
  await look(page, 'login', 'carol');
  await page.getByRole('button', { name: 'Give permits back…' }).click();
  await dialog(page).getByLabel('Permits').fill('2');
  await dialog(page).getByRole('button', { name: 'Give permits back' }).click();
  await expect(dialog(page)).toContainText('needs a reason');
  await dialog(page).getByLabel('Why').fill('ticket 7');
  await dialog(page).getByRole('button', { name: 'Give permits back' }).click();
  await expect(page.getByText('2 permits given back to carol')).toBeVisible();
  await expect(sentence(page)).toContainText('Rule tries has 2 of 5 left.');
  expect(await lastEntry('key.grant')).toMatchObject({ target: 'login', reason: 'ticket 7', actor: 'account:bea' });
  const done = page.getByRole('region', { name: 'What was done for this key' });
  await expect(done.getByRole('listitem')).toHaveCount(1);
  await expect(done).toContainText('“ticket 7”');
  await look(page, 'login', 'carla');
  await expect(done, 'another key has its own').toHaveCount(0);
});

test('usage is reset with a reason, and it is in the audit', async ({ page }) => {
  await check('dave', 6);
  await look(page, 'login', 'dave');
  await expect(sentence(page)).toContainText('Refused now');
  await page.getByRole('button', { name: 'Reset usage…' }).click();
  await expect(dialog(page)).toContainText('You cannot undo this.');
  await dialog(page).getByLabel('Why').fill('migration');
  await dialog(page).getByRole('button', { name: 'Reset usage' }).click();
  await expect(page.getByText('Usage of dave reset')).toBeVisible();
  await expect(sentence(page)).toContainText('Rule tries has 5 of 5 left.');
  expect(await lastEntry('key.reset')).toMatchObject({ target: 'login', reason: 'migration' });
});

test('a key gets more for a while, and the policy shows until when', async ({ page }) => {
  await look(page, 'login', 'erin');
  await page.getByRole('button', { name: 'Raise limits for a while…' }).click();
  await dialog(page).getByLabel('Multiply its limits by').selectOption('10');
  await dialog(page).getByLabel('For').selectOption('0.25');
  await dialog(page).getByLabel('Why').fill('ticket 8');
  await dialog(page).getByRole('button', { name: 'Raise limits', exact: true }).click();
  await expect(page.getByText(/erin has higher limits until/)).toBeVisible();
  await expect
    .poll(async () => (await page.getByRole('button', { name: 'Refresh' }).click(), sentence(page).textContent()))
    .toContain('of 50 left');
  expect(await lastEntry('key.boost')).toMatchObject({ target: 'login', reason: 'ticket 8', actor: 'account:bea' });
  await page.goto(`${world.url}/apps/demo/login`);
  const own = page.locator('.overrides li').filter({ hasText: 'erin' });
  await expect(own).toContainText(/50 in any 10 min expires in 1[45] min/);
});

test('a permit that is held is released, and its row is gone', async ({ page, context }) => {
  const document = { name: 'keys.slots', rules: [{ concurrency: { limit: 3, ttl: '1h' } }] };
  await world.ada.ask('POST', '/apps/demo/policies', { document, state: 'active' });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const acquire = async (id: string, cost: number) => {
    const body = JSON.stringify({ policy: 'keys.slots', key: 'gina', id, cost });
    return (await fetch(`${world.http}/v1/acquire`, { method: 'POST', headers, body })).status;
  };
  await expect.poll(() => acquire('job-1', 1)).toBe(200);
  expect(await acquire('job-2', 2)).toBe(200);
  await look(page, 'keys.slots', 'gina');
  const held = page.getByRole('region', { name: 'Held permits' });
  const rows = held.getByRole('row');
  await expect(rows).toHaveCount(3);
  const first = rows.nth(1);
  await expect(first.getByRole('cell').first()).toHaveText('1');
  await expect(first).toContainText(/59:\d\d|60 min|1 h/);
  await first.getByRole('button', { name: 'Release…' }).click();
  await expect(dialog(page)).toContainText('goes on working without it');
  await dialog(page).getByLabel('Why').fill('stuck');
  await dialog(page).getByRole('button', { name: 'Release', exact: true }).click();
  await expect(rows).toHaveCount(2);
  await expect(sentence(page)).toContainText('has 1 of 3 left');
  expect(await lastEntry('key.release')).toMatchObject({ target: 'keys.slots', reason: 'stuck', actor: 'account:bea' });
  await expect(page.getByRole('region', { name: 'What was done for this key' })).toContainText('released a permit');
  await look(page, 'keys.slots', 'nobody');
  await expect(held).toContainText('No permit of this key is held.');
  await look(page, 'login', 'nobody');
  await expect(held).toHaveCount(0);
  await context.clearCookies();
  await enter(context, world, 'vic');
  await look(page, 'keys.slots', 'gina');
  await expect(held.getByRole('button', { name: 'Release…' })).toHaveAttribute('aria-disabled', 'true');
});

test('a refusal that is pasted into the palette becomes a sentence', async ({ page }) => {
  await page.goto(`${world.url}/apps`);
  await expect(page.getByRole('heading', { name: 'Apps' })).toBeVisible();
  const paste = async (text: string) => {
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill(text);
  };
  await paste(
    'HTTP/1.1 429 {"allowed":false,"code":-1,"limit":5,"remaining":0,"retry_after_us":599200000,"rule":"tries"}',
  );
  await expect(page.getByRole('option')).toContainText('Refused by rule tries: 0 of 5 left, again in 600 s');
  await page.keyboard.press('Escape');
  await check('frank', 6);
  await paste(`curl -d '{"policy":"login","key":"frank"}'`);
  await expect(page.getByRole('option')).toContainText('Look up the key frank');
  await page.keyboard.press('Enter');
  await expect(keyTitle(page)).toHaveText('frank');
  await expect(sentence(page)).toContainText('Refused now');
});

test('a viewer looks, and cannot change', async ({ page, context }) => {
  await context.clearCookies();
  await enter(context, world, 'vic');
  await look(page, 'login', 'nobody');
  for (const name of ['Give permits back…', 'Reset usage…']) {
    await expect(page.getByRole('button', { name })).toHaveAttribute('aria-disabled', 'true');
  }
});

test('a key of markup and unseen characters stays text', async ({ page }) => {
  await look(page, 'login', '<img src=x onerror="window.hacked=1">\u202egnp\u0007');
  await expect(keyTitle(page)).toHaveText('<img src=x onerror="window.hacked=1">\\u{202e}gnp\\u{7}');
  // The field keeps the exact key, and the page says what is in it.
  await expect(page.getByRole('textbox', { name: 'Key' })).toHaveValue(/\u202egnp\u0007$/);
  await expect(
    page.getByText(
      'The key has characters that cannot be seen: <img src=x onerror="window.hacked=1">\\u{202e}gnp\\u{7}',
    ),
  ).toBeVisible();
  await expect(page.getByRole('textbox', { name: 'Key' })).toHaveCSS('unicode-bidi', 'isolate-override');
  expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
  await page.getByRole('textbox', { name: 'Key' }).fill('plain');
  await expect(page.getByText('The key has characters')).toHaveCount(0);
});

test('the page shows that the server does not answer, and can ask again', async ({ page }) => {
  await look(page, 'login', 'nobody');
  await page.route('**/keys/explain', (route) => route.abort());
  await page.getByRole('button', { name: 'Refresh' }).click();
  await expect(page.getByText('The server does not answer.', { exact: false })).toBeVisible();
  await page.unroute('**/keys/explain');
  await page.getByRole('button', { name: 'Look up', exact: true }).click();
  await expect(sentence(page)).toContainText('Passes');
});
