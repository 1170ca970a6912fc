import type { Page } from '@playwright/test';
import { enter, expect, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server;
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test.beforeEach(async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps/demo/tokens`);
});

test('a secret is shown once, and nowhere afterwards', async ({ page, context }) => {
  const secret = await create(page, 'gateway');
  expect(secret.length).toBeGreaterThan(20);
  expect(page.url()).not.toContain(secret);

  const done = page.getByRole('button', { name: 'Done' });
  await expect(done).toHaveAttribute('aria-disabled', 'true');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await done.click({ force: true });
  await expect(page.getByText(secret).first(), 'nothing closes the dialog by accident').toBeVisible();

  await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).first().click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(secret);
  await page.getByLabel('I stored it').check();
  await done.click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expectNoTrace(page, secret);
  await page.reload();
  await expect(page.getByRole('cell', { name: 'gateway' }).first()).toBeVisible();
  await expectNoTrace(page, secret);
  expect(JSON.stringify(await context.storageState()), 'not in the storage of the browser').not.toContain(secret);
});

test('a token works at once, and no more once it is revoked', async ({ page }) => {
  const secret = await create(page, 'short');
  expect(await check(secret)).toBe(200);
  await page.getByLabel('I stored it').check();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('row', { name: /short/ }).getByRole('button', { name: 'Revoke' }).click();
  await expect(page.getByRole('dialog')).toContainText('You cannot undo this.');
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect(page.getByText('Token short revoked')).toBeVisible();
  await expect.poll(() => check(secret)).toBe(401);
  await expect(page.getByRole('row', { name: /short/ })).toHaveCount(0);
});

test('rotating makes a second token with the same name and scopes', async ({ page }) => {
  await create(page, 'twin', 'refund');
  await page.getByLabel('I stored it').check();
  await page.getByRole('button', { name: 'Done' }).click();
  const twins = page.getByRole('row', { name: /twin/ });
  await twins.getByRole('button', { name: 'Rotate' }).click();
  await expect(page.getByLabel('Name')).toHaveValue('twin');
  await expect(page.getByRole('checkbox', { name: 'refund' })).toBeChecked();
  await page.getByRole('button', { name: 'Create token' }).click();
  await page.getByLabel('I stored it').check();
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(twins).toHaveCount(2);
});

test('the dialog shows what the server refuses', async ({ page }) => {
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Name').fill('No Such Name!');
  await page.getByRole('button', { name: 'Create token' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).not.toBeEmpty();
});

async function create(page: Page, name: string, scope = 'check'): Promise<string> {
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Name').fill(name);
  await page.getByRole('checkbox', { name: scope }).check();
  await page.getByRole('button', { name: 'Create token' }).click();
  const code = page.locator('.secret code');
  await expect(code).toBeVisible();
  return code.innerText();
}

async function expectNoTrace(page: Page, secret: string): Promise<void> {
  const kept = await page.evaluate(() =>
    [
      document.documentElement.outerHTML,
      location.href,
      JSON.stringify(history.state),
      JSON.stringify({ ...localStorage, ...sessionStorage }),
    ].join('\n'),
  );
  expect(kept.includes(secret), 'neither in the document nor in its storage or address').toBe(false);
}

async function check(secret: string): Promise<number> {
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const answer = await fetch(`${world.http}/v1/check`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ policy: 'login', key: 'alice' }),
  });
  return answer.status;
}
