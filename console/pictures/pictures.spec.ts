import { resolve } from 'node:path';
import type { Page } from '@playwright/test';
import { Api, enter, expect, startServer, test, type Server } from '../tests/harness.ts';

/** The pictures of README and docs, made of a real server: `scripts/pictures`. */
const INTO = resolve('../docs/images');
const MINUTES = 6;

let server: Server;
let ada: Api;
test.beforeAll(async () => {
  server = await startServer({ seed: '../examples/policies.yaml', env: { SLUICEGATE__ADMIN__KEYS: 'clear' } });
  ada = await Api.setUp(server);
  await ada.ask('POST', '/apps', { name: 'shop', description: 'The web shop' });
  await ada.addPerson({ name: 'bea', roles: { shop: 'owner' } });
});
test.afterAll(() => server.stop());
test.beforeEach(async ({ context, page }) => {
  await enter(context, server, 'bea');
  await page.setViewportSize({ width: 1280, height: 800 });
});

const picture = (page: Page, name: string) => page.screenshot({ path: `${INTO}/${name}.png` });

test('traffic of a policy, with the change that made the difference', async ({ page }) => {
  test.setTimeout((MINUTES + 2) * 60_000);
  const document = (rate: number) => ({
    name: 'orders.place',
    key: ['remote_ip'],
    rules: [
      { name: 'burst', token_bucket: { rate: `${rate}/s`, burst: 2 * rate } },
      { name: 'daily', fixed_window: { limit: 50_000, calendar: 'day', time_zone: 'Europe/Berlin' } },
    ],
  });
  await ada.ask('POST', '/apps/shop/policies?reason=launch', { document: document(12), state: 'active' });
  const { secret } = await ada.ask('POST', '/apps/shop/tokens', {
    name: 'gateway',
    scopes: ['check'],
    expires_in_days: 30,
  });
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const end = Date.now() + MINUTES * 60_000;
  let isChanged = false;
  for (let second = 0; Date.now() < end; second += 1) {
    const wanted = 14 + Math.round(5 * Math.sin(second / 17) + 3 * Math.sin(second / 5));
    const body = JSON.stringify({ policy: 'orders.place', key: '203.0.113.7' });
    await Promise.all(
      Array.from({ length: wanted }, () => fetch(`${server.http}/v1/check`, { method: 'POST', headers, body })),
    );
    if (!isChanged && Date.now() > end - (MINUTES / 2.5) * 60_000) {
      isChanged = true;
      const reason = encodeURIComponent('spring sale, OPS-41');
      await ada.ask(
        'PUT',
        `/apps/shop/policies/orders.place?reason=${reason}`,
        { document: document(20) },
        { 'if-match': '"1"' },
      );
    }
    await new Promise((done) => setTimeout(done, 1_000 - (Date.now() % 1_000)));
  }
  await page.goto(`${server.url}/apps/shop/orders.place`);
  await expect(page.getByText(/Now on/)).toBeVisible();
  await picture(page, 'console-policy');
});

test('an edit, with what it changes', async ({ page }) => {
  const rules = [
    { name: 'burst', token_bucket: { rate: '100/s', burst: 200 } },
    { name: 'hourly', sliding_window: { limit: 5000, window: '1h' } },
  ];
  await ada.ask('POST', '/apps/shop/policies', {
    document: { name: 'search', key: ['header:x-user'], rules },
    state: 'active',
  });
  await page.goto(`${server.url}/apps/shop/search/edit`);
  await page.getByRole('textbox', { name: 'Burst (at once)' }).first().fill('400');
  await expect(page.getByText('Checked by the server')).toBeVisible();
  await picture(page, 'console-edit');
});

test('a what-if of ten thousand requests', async ({ page }) => {
  const document = {
    name: 'web',
    key: ['remote_ip'],
    rules: [{ name: 'minute', fixed_window: { limit: 60, window: '1m' } }],
  };
  await ada.ask('POST', '/apps/shop/policies', { document, state: 'active' });
  await page.goto(`${server.url}/whatif?app=shop&policy=web`);
  const log = process.env.ACCESS_LOG;
  if (!log) throw new Error('ACCESS_LOG: set it to an access log');
  await page.locator('input[type=file]').setInputFiles(log);
  await expect(page.locator('p.sentence')).not.toBeEmpty({ timeout: 20_000 });
  await expect(page.getByRole('slider')).toBeVisible();
  await page.getByRole('slider').focus();
  for (let press = 0; press < 25; press += 1) await page.keyboard.press('ArrowDown');
  await page.waitForTimeout(3_000);
  await page.getByRole('heading', { name: 'What-if' }).click();
  await picture(page, 'console-whatif');
});
