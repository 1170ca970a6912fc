import { execFileSync } from 'node:child_process';
import { enter, expect, settled, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server;
test.beforeEach(async ({ context, page }) => {
  world = await startWorld();
  await enter(context, world, 'ada');
  await page.goto(`${world.url}/audit`);
});
test.afterEach(() => world.stop());

test('entries are sentences, filters are in the address', async ({ page }) => {
  const entries = page.getByRole('list', { name: 'Audit' }).getByRole('listitem');
  await expect(entries.filter({ hasText: 'ada created the token gateway' })).toHaveCount(1);
  await expect(entries.filter({ hasText: 'ada set the role of vic in shop' })).toHaveCount(1);

  await page.getByLabel('Action').selectOption('token.create');
  await expect(page).toHaveURL(/[?&]action=token\.create/);
  await expect(entries).toHaveCount(2);
  await page.getByLabel('Action').selectOption('');
  await page.getByLabel('Actor').fill('operator');
  await page.getByLabel('Actor').press('Enter');
  await expect(entries.first()).toContainText('The command line');
  await page.reload();
  await expect(page.getByLabel('Actor')).toHaveValue('operator');
  await expect(entries.first()).toContainText('The command line');
  await page.getByText('More filters').click();
  await page.getByLabel('Since').fill('2099-01-01T00:00');
  await page.getByLabel('Since').press('Tab');
  await expect(page.getByText('No entries match')).toBeVisible();
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await expect(page).toHaveURL(/\/audit$/);

  await page.getByLabel('App', { exact: true }).selectOption('shop');
  await expect(entries.filter({ hasText: 'demo' })).toHaveCount(0);
  await entries.filter({ hasText: 'created the policy shop.search' }).locator('summary').click();
  await page.locator('details[open]').getByRole('link', { name: 'Versions' }).click();
  await expect(page).toHaveURL(`${world.url}/apps/shop/shop.search/versions`);
  await settled(page);
});

test('a whole chain is confirmed', async ({ page }) => {
  await page.getByRole('button', { name: 'Verify the chain' }).click();
  await expect(page.getByText(/Chain intact: \d+ entries/)).toBeVisible();
});

test('a broken chain is shown as damage', async ({ page }) => {
  const statement = "update audit set actor = 'account:mallory' where action = 'token.create'";
  // Python, which everything else here needs as well, has SQLite.
  const script = 'import sqlite3,sys\nwith sqlite3.connect(sys.argv[1]) as c: c.execute(sys.argv[2])';
  execFileSync('python3', ['-c', script, world.catalog.replace('sqlite:', ''), statement]);
  await page.getByRole('button', { name: 'Verify the chain' }).click();
  await expect(page.getByText('The chain is broken')).toBeVisible();
  await expect(page.getByText(/entry \d+ of the audit was changed/)).toBeVisible();
  await expect(page.getByText('Chain intact')).toHaveCount(0);
});
