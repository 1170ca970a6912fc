import type { Locator, Page } from '@playwright/test';
import { endSessionBefore, enter, expect, hold, signIn, startServer, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
let made = 0;

test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test.beforeEach(async ({ context }) => enter(context, world, 'bea'));

const RULES = [
  { name: 'burst', token_bucket: { rate: '100/s', burst: 200 } },
  { name: 'hourly', sliding_window: { limit: 5000, window: '1h', buckets: 60 } },
];

/** A policy of its own for each test. */
async function policy(state: 'active' | 'shadow' = 'active', more: object = {}): Promise<string> {
  const name = `edit.${(made += 1)}`;
  await world.ada.ask('POST', '/apps/shop/policies', { document: { name, rules: RULES, ...more }, state });
  return name;
}

const stored = (name: string) => world.ada.ask('GET', `/apps/shop/policies/${name}`);

async function openEditor(page: Page, name: string): Promise<void> {
  await page.goto(`${world.url}/apps/shop/${name}/edit`);
  await expect(checked(page)).toBeVisible();
}

const checked = (page: Page) => page.getByText('Checked by the server');
const yaml = (page: Page) => page.getByRole('textbox', { name: 'The policy as YAML' });
const atOnce = (page: Page) => page.getByRole('textbox', { name: 'Burst (at once)' }).first();
const differences = (page: Page) => page.getByRole('list', { name: 'What changes' });
const save = (page: Page, name: 'Save as active' | 'Save in shadow' = 'Save as active') =>
  page.getByRole('button', { name });
const textOf = async (editor: Locator) =>
  (await editor.locator('.cm-line').allInnerTexts())
    .map((line) => line.trimEnd())
    .join('\n')
    .trimEnd();

async function write(page: Page, text: string): Promise<void> {
  await yaml(page).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

test('an edit is checked, compared by meaning, explained and saved with a reason', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await atOnce(page).fill('400');
  await expect(differences(page)).toContainText('rule burst · Burst (at once)');
  await expect(differences(page).getByRole('listitem')).toHaveCount(1);
  await expect(differences(page)).toContainText('200');
  await expect(differences(page)).toContainText('400');
  const carry = page.getByRole('group', { name: 'What callers have left after the change' });
  await expect(carry.getByRole('row')).toContainText(['180 of 200 used', '220 of 400', '40 of 400', '400 of 400']);
  await expect(checked(page)).toBeVisible();

  await save(page).click();
  await expect(page.getByText('An active policy needs a reason.')).toBeVisible();
  expect((await stored(name)).version).toBe(1);
  await page.getByLabel('Why').fill('spring sale, OPS-41');
  await page.keyboard.press('Control+s');
  await expect(page).toHaveURL(`${world.url}/apps/shop/${name}`);
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
  await expect(page.getByText('“spring sale, OPS-41”').last()).toBeVisible();
  expect((await stored(name)).document.rules[0].token_bucket).toEqual({ rate: '100/s', burst: 400 });
  const versions = await world.ada.ask('GET', `/apps/shop/policies/${name}/versions`);
  expect(versions.items[0]).toMatchObject({ version: 2, author: 'account:bea', reason: 'spring sale, OPS-41' });
});

test('a change can be taken back while its message is shown', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await atOnce(page).fill('300');
  await page.getByLabel('Why').fill('a try');
  await save(page).click();
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByText(`${name} is as in v1 again`)).toBeVisible();
  await expect(page.getByText('100/s, up to 200 at once').first()).toBeVisible();
  expect((await stored(name)).document.rules[0].token_bucket.burst).toBe(200);
});

test('an edit stays when the answer about the text of before comes after it', async ({ page }) => {
  const name = await policy();
  const question = await hold(page, /\/validate\?/);
  await page.goto(`${world.url}/apps/shop/${name}/edit`);
  await page.getByLabel('Why').fill('at once');
  await atOnce(page).fill('250');
  question.release();
  await question.over;
  await save(page).click();
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
  expect((await stored(name)).document.rules[0].token_bucket.burst).toBe(250);
});

test('a text of which the server has not said the meaning stays when somebody else saves', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  const question = await hold(page, /\/validate\?/);
  await write(page, `name: ${name}\nrules:\n  - name: burst\n    token_bucket: { rate: 7/min, burst: 9 }\n`);
  await question.asked;
  const rules = [{ name: 'burst', token_bucket: { rate: '100/s', burst: 300 } }, RULES[1]];
  await world.ada.ask('PUT', `/apps/shop/policies/${name}`, { document: { name, rules } }, { 'if-match': '"1"' });
  await expect(page.getByText('ada saved v2 while you edit:')).toBeVisible({ timeout: 12_000 });
  expect(await textOf(yaml(page))).toContain('rate: 7/min');
  question.release();
  await expect(atOnce(page)).toHaveValue('9');
});

test('an edit that is saved does not take back a person who has gone on', async ({ page }) => {
  const name = await policy('shadow');
  await openEditor(page, name);
  await atOnce(page).fill('350');
  await expect(checked(page)).toBeVisible();
  const saving = await hold(page, new RegExp(`/policies/${name}$`));
  await save(page, 'Save in shadow').click();
  await saving.asked;
  await page.getByRole('link', { name: 'Audit' }).first().click();
  await expect(page).toHaveURL(`${world.url}/audit`);
  saving.release();
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
  await expect(page).toHaveURL(`${world.url}/audit`);
  await openEditor(page, name);
  await expect(page.getByText('based on v2'), 'the draft has ended').toBeVisible();
});

test('the form changes one place of the text, and what it does not show stays', async ({ page }) => {
  const name = await policy('active', { on_overload: { wait: '200ms' }, on_key_quota: 'deny' });
  await openEditor(page, name);
  const text = [
    'on_key_quota: deny',
    'rules:',
    '  - name: hourly',
    '    sliding_window: { buckets: 60, window: 1h, limit: 5000 }',
    '  - token_bucket: { burst: 200, rate: 100/s }',
    '    name: burst',
    `name: ${name}`,
    'on_overload: { wait: 200ms }',
  ].join('\n');
  await write(page, text);
  await expect(checked(page)).toBeVisible();
  await expect(differences(page)).toContainText('rules');
  await page.getByRole('textbox', { name: 'Limit' }).fill('6000');
  await expect.poll(() => textOf(yaml(page))).toBe(text.replace('limit: 5000', 'limit: 6000'));
  await expect(checked(page)).toBeVisible();
  await page.getByLabel('Why').fill('order');
  await save(page).click();
  await expect(page).toHaveURL(/\/apps\/shop\/edit\.\d+$/);
  expect((await stored(name)).document).toMatchObject({ on_overload: { wait: '200ms' }, on_key_quota: 'deny' });
});

test('the text changes the form, and keeps its comments while it is a draft', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await write(
    page,
    `name: ${name}\nrules:\n  # for the sale\n  - name: burst\n    token_bucket: { rate: 7/min, burst: 9 }\n`,
  );
  await expect(atOnce(page)).toHaveValue('9');
  await expect(page.getByRole('textbox', { name: 'Rate' })).toHaveValue('7');
  await expect(page.getByText('Comments stay in your draft.')).toBeVisible();
  await page.reload();
  await expect(checked(page)).toBeVisible();
  expect(await textOf(yaml(page))).toContain('# for the sale');
  await page.getByRole('button', { name: 'Discard the draft' }).click();
  await openEditor(page, name);
  await expect(atOnce(page)).toHaveValue('200');
});

test('errors stand at their lines and at their fields, and nothing is saved', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await write(page, `name: ${name}\nrules:\n  - name: burst\n    token_bucket: { rate: fast, burst: 9 }\nunknown: 1\n`);
  const errors = page.getByRole('list', { name: 'Errors' }).getByRole('listitem');
  await expect(errors).toHaveCount(2);
  await expect(errors.filter({ hasText: 'line 4' })).toContainText('fast');
  await expect(errors.filter({ hasText: 'line 5' })).toContainText('unknown field');
  await expect(page.getByText('Correct them to use the form again.')).toBeVisible();
  await errors.filter({ hasText: 'line 4' }).getByRole('button').click();
  await expect(yaml(page)).toBeFocused();
  await expect(yaml(page).locator('.cm-activeLine')).toContainText('rate: fast');
  await page.getByLabel('Why').fill('wrong');
  await save(page).click();
  await expect(page).toHaveURL(/edit$/);
  expect((await stored(name)).version).toBe(1);

  await write(page, `name: ${name}\nrules: [`);
  await expect(errors.filter({ hasText: 'line 2' })).toHaveCount(1);
  await write(page, `name: ${name}\nrules:\n  - name: burst\n    token_bucket: { rate: 5/s, burst: 9 }\n`);
  await expect(errors).toHaveCount(0);
  await atOnce(page).fill('0');
  await expect(page.getByRole('alert').filter({ hasText: 'is not a whole number' })).toBeVisible();
  await expect(atOnce(page)).toBeEnabled();
});

test('leases have bounds in the form, and a document has them as the form shows them', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  const leases = page.getByLabel('Leases');
  const share = page.getByLabel('One node holds at most');
  const term = page.getByLabel('A lease lasts at most');
  await expect(leases).toHaveValue('auto');
  await expect(share).toHaveCount(0);
  await leases.selectOption('within bounds');
  await expect(share).toHaveValue('5%');
  await expect(term).toHaveValue('2s');
  await share.fill('60%');
  await expect(share).toHaveAccessibleDescription(/is not a whole percentage from 1% to 50%/);
  await share.fill('3%');
  await expect(leases).toHaveAccessibleDescription('Not leased: the limit 200 is below 267.');
  await share.fill('10%');
  await expect(share).toHaveAccessibleDescription('Of the least limit: 1% to 50%.');
  await term.fill('3s');
  await expect(term).toHaveAccessibleDescription(/expected a duration from 100ms to 2s/);
  await term.fill('');
  await expect(checked(page)).toBeVisible();
  await expect(differences(page)).toContainText('leases');
  await page.getByLabel('Why').fill('fewer calls');
  await save(page).click();
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
  expect((await stored(name)).document).toEqual({ name, rules: RULES, leases: { max_share: '10%' } });

  await openEditor(page, name);
  await expect(share).toHaveValue('10%');
  await expect(term).toHaveValue('');
  await write(page, (await textOf(yaml(page))).replace(/^leases: .*$/m, 'leases: off'));
  await expect(leases).toHaveValue('off');
  await expect(share).toHaveCount(0);
  await leases.selectOption('automatic');
  await expect.poll(() => textOf(yaml(page))).not.toContain('leases');
});

test('rules that cannot be leased say so, and bounds from before can be taken back', async ({ page }) => {
  const name = await policy('active', { rules: [{ name: 'slots', concurrency: { limit: 2, ttl: '30s' } }] });
  await openEditor(page, name);
  const leases = page.getByLabel('Leases');
  const never = 'Never leased: any node can release the permits of rule slots.';
  await expect(leases).toBeDisabled();
  await expect(leases).toHaveAccessibleDescription(never);
  const algorithm = page.getByLabel('Algorithm');
  await algorithm.selectOption('Token bucket');
  await page.getByLabel('Over the limit').selectOption('queue');
  await expect(leases).toHaveAccessibleDescription('Never leased: requests that wait book permits in advance.');
  await page.getByLabel('Over the limit').selectOption('reject');
  await leases.selectOption('within bounds');
  await expect(checked(page)).toBeVisible();

  await algorithm.selectOption('Concurrency');
  await expect(leases).toHaveAccessibleDescription(/whose permits cannot be leased; expected auto or off/);
  await expect(leases).toHaveValue('within');
  await leases.selectOption('automatic');
  await expect(leases).toBeDisabled();
  await expect(leases).toHaveAccessibleDescription(never);
  await expect(checked(page)).toBeVisible();
  expect(await textOf(yaml(page))).not.toContain('leases');
});

test('a policy keeps its name', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await write(page, `name: other\nrules:\n  - name: burst\n    token_bucket: { rate: 5/s }\n`);
  await expect(checked(page)).toBeVisible();
  await page.getByLabel('Why').fill('rename');
  await save(page).click();
  await expect(page.getByText('the name of a policy cannot change')).toBeVisible();
});

test('a risky change needs the name of the policy, and is in the audit with its reason', async ({ page }) => {
  const name = await policy();
  await openEditor(page, name);
  await atOnce(page).fill('2');
  await page.getByRole('textbox', { name: 'Rate' }).fill('1');
  await page.getByLabel('Why').fill('an attack');
  await save(page).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('the limit drops from 200 to 2');
  const anyway = dialog.getByRole('button', { name: 'Save anyway' });
  await expect(anyway).toBeDisabled();
  await dialog.getByRole('textbox').fill('edit.0');
  await expect(anyway).toBeDisabled();
  expect((await stored(name)).version).toBe(1);
  await dialog.getByRole('textbox').fill(name);
  await anyway.click();
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
  const { items } = await world.ada.ask('GET', '/apps/shop/audit?limit=1');
  expect(items[0]).toMatchObject({ action: 'policy.update', target: name, reason: 'an attack' });
});

test('two people change one policy: the second sees both changes, and none is lost', async ({ page, browser }) => {
  const name = await policy();
  await openEditor(page, name);
  await atOnce(page).fill('250');
  await page.getByLabel('Why').fill('mine');
  const context = await browser.newContext({ locale: 'en-GB' });
  await enter(context, world, 'ada');
  const other = await context.newPage();
  await openEditor(other, name);
  await other.getByRole('textbox', { name: 'Limit' }).fill('6000');
  await other.getByLabel('Why').fill('theirs');
  await save(other).click();
  await expect(other.getByText(`${name} saved as v2`)).toBeVisible();
  await context.close();

  await save(page).click();
  const conflict = page.getByRole('region', { name: 'The policy is at v2 now' });
  await expect(conflict).toContainText('ada saved a version while you edited v1');
  await expect(conflict.getByRole('list', { name: 'Theirs' })).toContainText('6,000');
  await expect(conflict.getByRole('list', { name: 'Yours' })).toContainText('250');
  await expect(conflict.getByRole('list', { name: 'Both together' }).getByRole('listitem')).toHaveCount(2);
  await conflict.getByRole('button', { name: 'Side by side' }).click();
  await expect(conflict.getByText('burst: 250').first()).toBeVisible();
  await conflict.getByRole('button', { name: 'Go on with both' }).click();
  await expect(checked(page)).toBeVisible();
  await save(page).click();
  await expect(page.getByText(`${name} saved as v3`)).toBeVisible();
  const { document } = await stored(name);
  expect(document.rules[0].token_bucket.burst).toBe(250);
  expect(document.rules[1].sliding_window.limit).toBe(6000);
});

test('where both changed the same, the page says so', async ({ page }) => {
  const name = await policy('shadow');
  await openEditor(page, name);
  await atOnce(page).fill('250');
  await expect(checked(page)).toBeVisible();
  const rules = [{ name: 'burst', token_bucket: { rate: '100/s', burst: 300 } }, RULES[1]];
  await world.ada.ask('PUT', `/apps/shop/policies/${name}`, { document: { name, rules } }, { 'if-match': '"1"' });
  await save(page, 'Save in shadow').click();
  await expect(page.getByText('The merge takes yours: rule burst · Burst (at once)')).toBeVisible();
  await page.getByRole('button', { name: 'Go on with theirs' }).click();
  await expect(atOnce(page)).toHaveValue('300');
});

/** Signs in again, and finds the edit as it was. */
async function signInToTheDraft(page: Page, name: string): Promise<void> {
  await expect(page).toHaveURL(/sign-in/);
  await expect(page.getByText('Your drafts are kept')).toBeVisible();
  await signIn(page, 'bea');
  await expect(page).toHaveURL(`${world.url}/apps/shop/${name}/edit`);
  await expect(atOnce(page)).toHaveValue('222');
  await expect(page.getByLabel('Why')).toHaveValue('later');
  await save(page).click();
  await expect(page.getByText(`${name} saved as v2`)).toBeVisible();
}

test('a session that has ended when an edit is saved keeps the draft', async ({ page, context }) => {
  const name = await policy();
  await openEditor(page, name);
  await atOnce(page).fill('222');
  await page.getByLabel('Why').fill('later');
  await expect(checked(page)).toBeVisible();
  await endSessionBefore(page, /\/edit\.\d+\?reason=/, () => context.clearCookies());
  await save(page).click();
  await signInToTheDraft(page, name);
});

test('a session that has ended when an edit is checked keeps the draft', async ({ page, context }) => {
  const name = await policy();
  await openEditor(page, name);
  await page.getByLabel('Why').fill('later');
  await context.clearCookies();
  await atOnce(page).fill('222');
  await signInToTheDraft(page, name);
});

test('the message after saving says at how many nodes the change is in force', async ({ page }) => {
  const second = await startServer({ catalog: world.catalog });
  try {
    await expect.poll(async () => (await world.ada.ask('GET', '/fleet')).nodes.length).toBe(2);
    const name = await policy('shadow');
    await openEditor(page, name);
    await atOnce(page).fill('321');
    await save(page, 'Save in shadow').click();
    await expect(page.getByText(/saved as v2 · in force on \d of 2 nodes/)).toBeVisible();
    await expect
      .poll(
        async () => {
          const { revision } = await stored(name);
          const { nodes } = await world.ada.ask('GET', '/fleet');
          return nodes.every((node: { revision: number }) => node.revision >= revision);
        },
        { timeout: 15_000 },
      )
      .toBe(true);
  } finally {
    await second.stop();
  }
});

test('texts that look like markup or turn the direction stay text', async ({ page }) => {
  const hostile = '<img src=x onerror="window.hacked=1">\u202egnp.exe\u0007';
  const name = await policy('shadow', { overrides: [{ key: hostile, rules: RULES }], key: ['remote_ip'] });
  await openEditor(page, name);
  await page.getByText('Own limits for 1 key').click();
  await page.getByRole('textbox', { name: 'Key', exact: true }).last().fill(`${hostile}2`);
  await expect(differences(page)).toContainText('\\u{202e}gnp.exe\\u{7}2');
  await expect(checked(page)).toBeVisible();
  const why = page.getByLabel('Why (needed to save as active)');
  await why.fill('spring\u202esale');
  await save(page, 'Save in shadow').click();
  await expect(why).toHaveAccessibleDescription(/without control or text direction characters/);
  await why.fill('<script>window.hacked=1</script>');
  await save(page, 'Save in shadow').click();
  await expect(page.getByText('“<script>window.hacked=1</script>”').last()).toBeVisible();
  await page.getByText('As code').click();
  expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
  expect(await page.locator('body').innerText()).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
  expect((await stored(name)).document.overrides[0].key).toBe(`${hostile}2`);
});
