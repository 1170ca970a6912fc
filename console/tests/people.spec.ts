import {
  Api,
  FOLLOWED_MS,
  endSessionBefore,
  enter,
  expect,
  hold,
  settled,
  signIn,
  test,
  type Server,
} from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test('an account is created, disabled and deleted', async ({ context, page, browser }) => {
  await enter(context, world, 'ada');
  await page.goto(`${world.url}/accounts`);
  await page.getByRole('button', { name: 'New account' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Account').fill('eve');
  await dialog.getByLabel('Password', { exact: true }).fill('short');
  await expect(dialog.getByText('5 of at least 12 characters')).toBeVisible();
  await dialog.getByRole('button', { name: 'Create account' }).click();
  await expect(dialog.getByRole('alert')).not.toBeEmpty();
  await dialog.getByLabel('Password', { exact: true }).fill('correct horse battery');
  await dialog.getByRole('button', { name: 'Create account' }).click();
  await expect(page.getByText('Account eve created')).toBeVisible();

  const other = await browser.newContext();
  const eve = await other.newPage();
  await eve.goto(`${world.url}/sign-in`);
  await signIn(eve, 'eve');
  await expect(eve.getByText('You have no role in any app.')).toBeVisible();

  await endSessionBefore(eve, /\/v1\/admin\/app-summaries\?/, async () => {
    await page.getByRole('button', { name: 'Change eve' }).click();
    await dialog.getByLabel('Disabled').check();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await expect(page.getByRole('row', { name: /eve/ })).toContainText('Disabled');
  });
  await eve.getByRole('link', { name: 'Apps', exact: true }).click();
  await expect(eve, 'the session has ended').toHaveURL(/\/sign-in/);
  await other.close();

  await page.getByRole('button', { name: 'Change eve' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(dialog).toContainText('Its audit entries stay.');
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByText('Account eve deleted')).toBeVisible();
  await expect(page.getByRole('row', { name: /eve/ })).toHaveCount(0);
});

test('an account is not shown with the sessions of another one', async ({ context, page }) => {
  await Api.signIn(world, 'bea');
  await enter(context, world, 'ada');
  await page.goto(`${world.url}/accounts`);
  const dialog = page.getByRole('dialog');
  const sessions = await hold(page, /\/accounts\/bea\/sessions$/);
  await page.getByRole('button', { name: 'Change bea' }).click();
  await sessions.asked;
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await page.getByRole('button', { name: 'Change cho' }).click();
  await expect(dialog.getByRole('heading', { name: 'cho' })).toBeVisible();
  sessions.release();
  await settled(page);
  await expect(dialog.getByRole('button', { name: /sessions/ })).toHaveCount(0);
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await page.getByRole('button', { name: 'Change bea' }).click();
  await expect(dialog.getByRole('button', { name: /sessions/ })).toBeVisible();
});

test('roles are given, undone and taken; the last owner is a question', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps/shop/members`);
  await page.getByRole('button', { name: 'Add a member' }).click();
  await page.getByRole('dialog').getByLabel('Account').fill('nobody-here');
  await page.getByRole('dialog').getByRole('button', { name: 'Add a member' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).not.toBeEmpty();
  await page.getByRole('dialog').getByLabel('Account').fill('cho');
  await page.getByRole('dialog').getByRole('button', { name: 'Add a member' }).click();
  await expect(page.getByLabel('Role of cho')).toHaveValue('viewer');

  await page.getByLabel('Role of vic').selectOption('owner');
  await expect(page.getByText('vic is now owner')).toBeVisible();
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByLabel('Role of vic')).toHaveValue('viewer');

  await page.getByRole('button', { name: 'Remove cho' }).click();
  await expect(page.getByLabel('Role of cho')).toHaveCount(0);
  await page.getByRole('button', { name: 'Undo' }).last().click();
  await expect(page.getByLabel('Role of cho')).toHaveValue('viewer');

  await page.getByLabel('Role of bea').selectOption('viewer');
  await expect(page.getByRole('dialog')).toContainText('bea is the last owner of shop');
  await page.keyboard.press('Escape');
  await expect(page.getByLabel('Role of bea')).toHaveValue('owner');
});

test('an app is created, described and deleted; one with policies stays', async ({ context, page }) => {
  await enter(context, world, 'ada');
  await page.goto(`${world.url}/apps`);
  await page.getByRole('button', { name: 'New app' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('brief');
  await page.getByRole('button', { name: 'Create app' }).click();
  await expect(page).toHaveURL(`${world.url}/apps/brief`);
  await page.getByRole('button', { name: 'Add a description' }).click();
  await page.getByLabel('Description').fill('Not for long.');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('main')).toContainText('Not for long.');
  await page.getByRole('button', { name: 'Change the app' }).click();
  await page.getByRole('button', { name: 'Delete the app' }).click();
  await expect(page).toHaveURL(`${world.url}/apps`);
  await expect(page.getByRole('link', { name: 'brief' })).toHaveCount(0);

  await page.goto(`${world.url}/apps/demo`);
  await page.getByRole('button', { name: 'Change the app' }).click();
  await page.getByRole('button', { name: 'Delete the app' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).toContainText(/polic/);
});

test('two people change one description: the second sees the conflict', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps/demo`);
  await page.getByRole('button', { name: 'Change the app' }).click();
  const { version } = await world.ada.ask('GET', '/apps/demo');
  await world.ada.ask('PATCH', '/apps/demo', { description: 'By ada.' }, { 'if-match': `"${version}"` });
  // The page behind the dialog follows; the dialog still changes the version that was read.
  await expect(page.getByRole('main', { includeHidden: true })).toContainText('By ada.', { timeout: FOLLOWED_MS });
  await page.getByLabel('Description').fill('By bea.');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).not.toBeEmpty();
  expect((await world.ada.ask('GET', '/apps/demo')).description).toBe('By ada.');
});
