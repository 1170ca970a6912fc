import { readFileSync } from 'node:fs';
import type { Locator, Page } from '@playwright/test';
import { Api, enter, expect, settled, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

interface Row {
  method: string;
  path: string;
  action: string;
  /** The API permits the request, by person. */
  may: Record<string, boolean>;
}

/** People of the table, by its columns. */
const PEOPLE = { nobody: undefined, "other app's owner": 'cho', viewer: 'vic', owner: 'bea', admin: 'ada' } as const;
type Person = keyof typeof PEOPLE;

function table(): Row[] {
  const lines = readFileSync('../docs/roles.md', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| '));
  const [head = [], ...rows] = lines.map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return rows.map(([method = '', path = '', action = '', ...marks]) => ({
    method,
    path: path.replaceAll('`', ''),
    action,
    may: Object.fromEntries(marks.map((mark, index) => [head[index + 3], mark === '✓'])),
  }));
}

const TABLE = table();
/** Reads whose query is too long for an address. */
const READS = ['policy.validate', 'policy.import', 'policy.whatif', 'key.read', 'key.explain', 'key.permits'];
const button = (name: string | RegExp) => (page: Page) => page.getByRole('main').getByRole('button', { name }).first();
const link = (name: string | RegExp) => (page: Page) =>
  page.getByRole('main').locator('a, button').filter({ hasText: name }).first();

/** The controls of each action. Those that appear only after a step (a dialog, a version) are in tests of their own. */
const CONTROLS: { action: string; path: string; control: (page: Page) => Locator }[] = [
  { action: 'app.create', path: '/apps', control: button('New app') },
  { action: 'app.update', path: '/apps/demo', control: button('Change the app') },
  { action: 'member.update', path: '/apps/demo/members', control: button('Add a member') },
  { action: 'member.update', path: '/apps/demo/members', control: (page) => page.getByLabel('Role of vic') },
  { action: 'member.update', path: '/apps/demo/members', control: button('Remove vic') },
  { action: 'policy.create', path: '/apps/demo', control: link('Policy') },
  { action: 'token.create', path: '/apps/shop/tokens', control: button('New token') },
  { action: 'token.create', path: '/apps/shop/tokens', control: button('Rotate') },
  { action: 'token.revoke', path: '/apps/shop/tokens', control: button('Revoke') },
  { action: 'account.create', path: '/accounts', control: button('New account') },
  { action: 'account.update', path: '/accounts', control: button('Change vic') },
  { action: 'audit.read', path: '/audit', control: button('Verify the chain') },
  { action: 'fleet.read', path: '/nodes', control: (page) => page.getByRole('table', { name: 'Nodes' }) },
];

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test('the table of roles was read', () => {
  expect(TABLE.length).toBeGreaterThan(40);
  expect(CONTROLS.filter(({ action }) => !TABLE.some((row) => row.action === action))).toEqual([]);
});

for (const person of Object.keys(PEOPLE) as Person[]) {
  test(`${person}: what is enabled is what the API permits`, async ({ context, page }) => {
    const name = PEOPLE[person];
    if (name) await enter(context, world, name);
    let shown = '';
    for (const { action, path, control } of CONTROLS) {
      if (path !== shown) {
        await page.goto(world.url + path);
        await settled(page);
        shown = path;
      }
      const row = TABLE.find((row) => row.action === action)!;
      const isOffered = (await control(page).isVisible()) && (await control(page).isEnabled());
      expect(isOffered, `${action} on ${path}`).toBe(row.may[person]);
    }
  });

  const denied = TABLE.filter(({ method, may }) => method !== 'GET' && !may[person]);
  test(`${person}: all other writes are refused and audited`, async ({ context, page }) => {
    const name = PEOPLE[person];
    if (name) await enter(context, world, name);
    await page.goto(`${world.url}/apps`);
    await settled(page);
    const filled = (path: string) =>
      path
        .replace('{app}', 'demo')
        .replace('{account}', 'vic')
        .replace('{policy}', 'login')
        .replace('{token}', '0')
        .replace('{version}', '1');
    const statuses = await page.evaluate(
      async (requests) => {
        const answers = requests.map(async ({ method, path }) => {
          const headers = { 'content-type': 'application/json' };
          const answer = await fetch(`/v1/admin${path}`, { method, headers, body: '{}' });
          return `${method} ${path} ${answer.status}`;
        });
        return Promise.all(answers);
      },
      denied.map(({ method, path }) => ({ method, path: filled(path) })),
    );
    const status = name ? 403 : 401;
    expect(statuses).toEqual(denied.map(({ method, path }) => `${method} ${filled(path)} ${status}`));
    if (!name || denied.length === 0) return;
    const { items } = await world.ada.ask('GET', `/audit?actor=account:${name}&outcome=denied&limit=100`);
    const written = new Set(items.map(({ action }: { action: string }) => action));
    const changes = denied.filter(({ action }) => !READS.includes(action));
    expect(changes.filter(({ action }) => !written.has(action))).toEqual([]);
  });
}

test('whatever a viewer presses, nothing is written and no form opens', async ({ context, page }) => {
  await enter(context, world, 'vic');
  const writes: string[] = [];
  page.on('request', (request) => {
    if (request.method() !== 'GET') writes.push(`${request.method()} ${request.url()}`);
  });
  for (const path of [
    '/',
    '/apps',
    '/apps/demo',
    '/apps/demo/members',
    '/apps/shop/tokens',
    '/apps/shop/audit',
    '/apps/shop/code',
    '/audit',
  ]) {
    await page.goto(world.url + path);
    await settled(page);
    const buttons = page.getByRole('main').getByRole('button');
    for (let index = 0; index < (await buttons.count()); index++) {
      await buttons.nth(index).click({ force: true });
      await expect(page.locator('dialog'), `${path}: button ${index}`).toHaveCount(0);
    }
    const selects = page.getByRole('main').getByRole('combobox', { name: /^Role of/ });
    for (const select of await selects.all()) await expect(select).toBeDisabled();
  }
  expect(writes).toEqual([]);
});

test('a disabled action says who can do it', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/apps/demo/tokens`);
  await expect(page.getByRole('button', { name: 'New token' })).toHaveAccessibleDescription(
    'Owners of demo can change this: bea',
  );
  await page.goto(`${world.url}/apps/empty`);
  await expect(page.getByRole('main').getByRole('button', { name: 'Policy' }).first()).toHaveAccessibleDescription(
    /no owner/,
  );
});
