import type { Page } from '@playwright/test';
import { enter, expect, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };

test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test.beforeEach(async ({ context }) => enter(context, world, 'bea'));

const limit = (burst: number) => [{ name: 'limit', token_bucket: { rate: '10/s', burst } }];

async function create(name: string, state: 'active' | 'shadow' = 'shadow', burst = 20): Promise<void> {
  await world.ada.ask('POST', '/apps/shop/policies', { document: { name, rules: limit(burst) }, state });
}

async function change(name: string, version: number, burst: number): Promise<void> {
  const document = { name, rules: limit(burst) };
  await world.ada.ask(
    'PUT',
    `/apps/shop/policies/${name}?reason=r${version + 1}`,
    { document },
    { 'if-match': `"${version}"` },
  );
}

const stored = (name: string) => world.ada.ask('GET', `/apps/shop/policies/${name}`);
const dialog = (page: Page) => page.getByRole('dialog');
/** Both the page and its dialog have a button of that name. */
const press = (page: Page, name: string) => dialog(page).getByRole('button', { name }).click();

test('a new policy starts in the shadow, and can be taken back', async ({ page }) => {
  await page.goto(`${world.url}/apps/shop/new`);
  await page.getByRole('textbox', { name: 'Name' }).first().fill('life.new');
  await page.getByRole('textbox', { name: 'Burst (at once)' }).fill('50');
  await expect(page.getByText('Checked by the server')).toBeVisible();
  await page.getByRole('button', { name: 'Save in shadow' }).click();
  await expect(page).toHaveURL(`${world.url}/apps/shop/life.new`);
  await expect(page.getByText('100/s, up to 50 at once').first()).toBeVisible();
  expect(await stored('life.new')).toMatchObject({
    state: 'shadow',
    document: { rules: [{ token_bucket: { burst: 50 } }] },
  });
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByText('life.new deleted')).toBeVisible();
  expect((await world.ada.send('GET', '/apps/shop/policies/life.new')).status).toBe(404);
});

test('a name that is taken or wrong is an error at its field', async ({ page }) => {
  await page.goto(`${world.url}/apps/shop/new`);
  const name = page.getByRole('textbox', { name: 'Name' }).first();
  await expect(page.getByText('Give the policy a name.')).toBeVisible();
  await expect(name).not.toHaveAttribute('aria-invalid', 'true');
  await page.getByRole('button', { name: 'Save in shadow' }).click();
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await name.fill('Not a name');
  await expect(page.getByRole('list', { name: 'Errors' })).toBeVisible();
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await name.fill('shop.search');
  await page.getByRole('button', { name: 'Save in shadow' }).click();
  await expect(page.getByText(/exists|taken/)).toBeVisible();
  expect((await stored('shop.search')).version).toBe(2);
});

test('from the shadow to active, and back', async ({ page }) => {
  await create('life.state');
  await page.goto(`${world.url}/apps/shop/life.state`);
  await expect(page.getByText('It counts what it would refuse')).toBeVisible();
  await page.getByRole('button', { name: 'Activate' }).click();
  await press(page, 'Activate');
  await expect(dialog(page)).toContainText('An active policy needs a reason.');
  await dialog(page).getByLabel('Why').fill('numbers look right');
  await press(page, 'Activate');
  await expect(page.getByText(/life.state is active/)).toBeVisible();
  await expect(page.getByText('It counts what it would refuse')).toHaveCount(0);
  expect(await stored('life.state')).toMatchObject({ state: 'active', version: 2 });

  await page.getByRole('button', { name: 'Move to shadow' }).click();
  await dialog(page).getByLabel('Why').fill('too strict');
  await press(page, 'Move to shadow');
  await expect(page.getByText(/life.state is in shadow/)).toBeVisible();
  expect(await stored('life.state')).toMatchObject({ state: 'shadow', version: 3 });
  await page.getByRole('button', { name: 'Undo' }).last().click();
  await expect.poll(async () => (await stored('life.state')).state).toBe('active');
});

test('a policy that has just become active shows what it refuses, and one click leads back', async ({ page }) => {
  test.setTimeout(60_000);
  await create('life.strip', 'shadow', 1);
  const { secret } = await world.ada.ask('POST', '/apps/shop/tokens', {
    name: 'strip',
    scopes: ['check'],
    expires_in_days: 1,
  });
  await world.ada.ask('POST', '/apps/shop/policies/life.strip/activate?force=true', undefined, { 'if-match': '"1"' });
  await page.goto(`${world.url}/apps/shop/life.strip`);
  const strip = page.getByRole('region', { name: /^Active since/ });
  // Decisions in shadow are not counted: the bucket in which the policy became active is left out.
  await expect(strip).toContainText(/Nothing is counted yet\. Counting starts at \d\d:\d\d:\d\d\./);
  const since = /\d\d:\d\d:\d\d/.exec((await strip.innerText()).split('Counting')[1]!)![0];
  await expect.poll(() => new Date().toISOString().slice(11, 19) >= since, { timeout: 12_000 }).toBe(true);
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  for (let call = 0; call < 4; call += 1) {
    await fetch(`${world.http}/v1/check`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ policy: 'life.strip', key: 'a', cost: 1 }),
    });
  }
  await expect(strip).toContainText(new RegExp(`Refused \\d of 4 requests since ${since} \\(`), { timeout: 25_000 });
  await strip.getByRole('button', { name: 'Back to shadow' }).click();
  await expect(page.getByText(/life.strip is in shadow/)).toBeVisible();
  await expect(strip).toHaveCount(0);
  expect(await stored('life.strip')).toMatchObject({ state: 'shadow', version: 3 });
});

test('a policy in the shadow says what it would have refused', async ({ page }) => {
  test.setTimeout(90_000);
  const document = { name: 'life.shadow', rules: [{ sliding_log: { limit: 1, window: '1h' } }] };
  await world.ada.ask('POST', '/apps/shop/policies', { document, state: 'shadow' });
  const { secret } = await world.ada.ask('POST', '/apps/shop/tokens', {
    name: 'shadow',
    scopes: ['check'],
    expires_in_days: 1,
  });
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ policy: 'life.shadow', key: 'alice' });
  const card = page.getByRole('region', { name: /^In shadow/ });
  await page.goto(`${world.url}/apps/shop/life.shadow`);
  await expect(card).toContainText('No requests yet.');
  // A shadow is counted in whole buckets of ten seconds, and a node sums them up every ten.
  await expect(async () => {
    for (let call = 0; call < 3; call += 1) await fetch(`${world.http}/v1/check`, { method: 'POST', headers, body });
    await expect(card).toContainText(/It would have refused \d+(\.\d)?% \(\d+ of \d+\)\. At least 1 key\./, {
      timeout: 1_500,
    });
  }).toPass({ timeout: 60_000 });
});

test('a change of somebody else meanwhile is not overwritten', async ({ page }) => {
  await create('life.stale');
  await page.goto(`${world.url}/apps/shop/life.stale`);
  await page.getByRole('button', { name: 'Activate' }).click();
  await change('life.stale', 1, 30);
  await dialog(page).getByLabel('Why').fill('late');
  await press(page, 'Activate');
  await expect(dialog(page)).toContainText('Somebody has changed the policy since');
  expect(await stored('life.stale')).toMatchObject({ state: 'shadow', version: 2 });
});

test('a deleted policy is listed and comes back in the shadow', async ({ page }) => {
  await create('life.gone', 'active');
  await page.goto(`${world.url}/apps/shop/life.gone`);
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await dialog(page).getByLabel('Why').fill('not needed');
  await press(page, 'Delete');
  await expect(page.getByText('life.gone deleted')).toBeVisible();
  await expect(page).toHaveURL(`${world.url}/apps/shop`);

  await page.goto(`${world.url}/apps/shop/deleted`);
  const row = page.getByRole('row', { name: /life\.gone/ });
  await expect(row).toContainText('10/s, up to 20 at once');
  await row.getByRole('button', { name: 'Restore' }).click();
  await press(page, 'Restore');
  await expect(page.getByText('life.gone restored')).toBeVisible();
  await expect(page).toHaveURL(`${world.url}/apps/shop/life.gone`);
  expect((await stored('life.gone')).state).toBe('shadow');
});

test('deleting can be taken back, to the same state', async ({ page }) => {
  await create('life.oops', 'active');
  await page.goto(`${world.url}/apps/shop/life.oops`);
  await page.getByRole('button', { name: 'More actions' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await dialog(page).getByLabel('Why').fill('wrong one');
  await press(page, 'Delete');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page).toHaveURL(`${world.url}/apps/shop/life.oops`);
  expect((await stored('life.oops')).state).toBe('active');
});

test('any two versions are compared, and an old one comes back', async ({ page }) => {
  await create('life.versions', 'active');
  await change('life.versions', 1, 40);
  await change('life.versions', 2, 60);
  await page.goto(`${world.url}/apps/shop/life.versions/versions`);
  const versions = page.getByRole('list').filter({ hasText: 'v3' }).getByRole('listitem');
  await expect(versions).toHaveCount(3);
  await expect(versions.first()).toContainText('rule limit · Burst (at once): 40 → 60');
  await expect(versions.first()).toContainText('“r3”');

  const compared = page.getByRole('list', { name: 'Compare' });
  await page.getByLabel('Older version').selectOption('v1');
  await page.getByLabel('Newer version').selectOption('v3');
  await expect(page).toHaveURL(/from=1&to=3/);
  await expect(compared).toContainText('20');
  await expect(compared).toContainText('60');
  await page.getByText('Side by side').click();
  await expect(page.locator('.comparison').getByText('burst: 20')).toBeVisible();
  await expect(page.locator('.comparison').getByText('burst: 60')).toBeVisible();

  await versions
    .last()
    .getByRole('button', { name: /Roll back/ })
    .click();
  await expect(dialog(page)).toContainText('60');
  await dialog(page).getByLabel('Why').fill('too generous');
  await press(page, 'Roll back');
  await expect(page.getByText(/life.versions saved as v4/)).toBeVisible();
  await expect(versions).toHaveCount(4);
  expect((await stored('life.versions')).document.rules).toEqual(limit(20));
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect.poll(async () => (await stored('life.versions')).document.rules).toEqual(limit(60));
});

test('rolling back to a much lower limit needs the name of the policy', async ({ page }) => {
  await create('life.low', 'active', 2);
  await change('life.low', 1, 2000);
  await page.goto(`${world.url}/apps/shop/life.low/versions`);
  await page.getByRole('button', { name: /Roll back/ }).click();
  await dialog(page).getByLabel('Why').fill('back');
  await press(page, 'Roll back');
  await expect(dialog(page)).toContainText('the limit drops from 2000 to 2');
  await press(page, 'Roll back anyway');
  await expect(dialog(page)).toContainText('This is not the name of the policy.');
  await dialog(page).getByLabel('Type life.low to confirm').fill('life.low');
  await press(page, 'Roll back anyway');
  await expect(page.getByText(/life.low saved as v3/)).toBeVisible();
});

test('a viewer sees everything, and every button to change it says who can', async ({ page, context }) => {
  await context.clearCookies();
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/apps/shop/shop.search`);
  await page.getByRole('button', { name: 'More actions' }).click();
  for (const name of ['Activate', 'Delete', 'Edit']) {
    const button = page.getByRole('button', { name });
    await expect(button).toHaveAttribute('aria-disabled', 'true');
    await expect(button).toHaveAccessibleDescription('Owners of shop can change this: bea');
  }
  await page.goto(`${world.url}/apps/shop/shop.search/edit`);
  await expect(page.getByText('Only owners edit policies')).toBeVisible();
  await expect(page.getByRole('button', { name: /Save/ })).toHaveCount(0);
  await page.goto(`${world.url}/apps/shop/shop.search/versions`);
  await expect(page.getByRole('button', { name: /Roll back/ })).toHaveAttribute('aria-disabled', 'true');
  await page.goto(`${world.url}/apps/shop/deleted`);
  await expect(page.getByRole('button', { name: 'Restore shop.old' })).toHaveAttribute('aria-disabled', 'true');
});
