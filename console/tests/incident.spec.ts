import { execFile } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { BrowserContext, Page } from '@playwright/test';
import { Api, BIN, enter, expect, FOLLOWED_MS, PASSWORD, settled, startServer, test, type Server } from './harness.ts';
import { accessLog } from './pages.ts';
import { burst, startSlowRedis } from './redis.ts';

/** A node sums up every ten seconds, and a page asks every five. */
const COUNTED_MS = 40_000;

interface Incident extends Server {
  ada: Api;
  /** Requests for permits, one after the other. */
  check: (policy: string, key: string, times: number) => Promise<void>;
}

/** A server with the app `shop`, of which bea is an owner and vic a viewer. */
async function startIncident(env: Record<string, string> = {}): Promise<Incident> {
  const server = await startServer({ seed: '../examples/policies.yaml', env });
  const ada = await Api.setUp(server);
  await ada.ask('POST', '/apps', { name: 'shop' });
  await ada.addPerson({ name: 'bea', roles: { shop: 'owner', demo: 'owner' } });
  await ada.addPerson({ name: 'vic', roles: { shop: 'viewer', demo: 'viewer' } });
  const { secret } = await ada.ask('POST', '/apps/shop/tokens', {
    name: 'caller',
    scopes: ['check'],
    expires_in_days: 90,
  });
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const check = async (policy: string, key: string, times: number) => {
    for (let time = 0; time < times; time += 1)
      await fetch(`${server.http}/v1/check`, { method: 'POST', headers, body: JSON.stringify({ policy, key }) });
  };
  return { ...server, ada, check };
}

async function addPolicy(
  { ada }: Incident,
  name: string,
  limit: number,
  state: 'active' | 'shadow',
  more: object = {},
): Promise<void> {
  const document = { name, rules: [{ name: 'main', fixed_window: { limit, window: '1h' } }], ...more };
  await ada.ask('POST', '/apps/shop/policies?reason=new', { document, state });
}

async function setState({ ada }: Incident, policy: string, state: 'activate' | 'shadow'): Promise<void> {
  const { version } = await ada.ask('GET', `/apps/shop/policies/${policy}`);
  await ada.ask('POST', `/apps/shop/policies/${policy}/${state}?reason=test&force=true`, undefined, {
    'if-match': `"${version}"`,
  });
}

/** Runs lines that a page shows, as somebody who types the password. */
async function run(lines: string): Promise<string> {
  const home = mkdtempSync(join(tmpdir(), 'sluicegate-lines-'));
  const { XDG_CONFIG_HOME: _, ...rest } = process.env;
  const env = { ...rest, HOME: home, PATH: `${dirname(BIN)}:${process.env.PATH}` };
  const ran = promisify(execFile)('sh', ['-ec', lines], { cwd: home, env, timeout: 20_000 });
  ran.child.stdin?.end(`${PASSWORD}\n`);
  return (await ran).stdout;
}

const chart = (page: Page) => page.getByRole('img', { name: /requests? in the last 15 min/ });

test.describe('with one server', () => {
  let server: Incident;
  test.beforeAll(async () => {
    server = await startIncident();
  });
  test.afterAll(() => server.stop());

  const openedAs = async (context: BrowserContext, page: Page, name: string, path: string) => {
    await enter(context, server, name);
    await page.goto(server.url + path);
    await settled(page);
  };

  test('the sentence of a chart has what was refused and what would have been, for screen readers too', async ({
    context,
    page,
  }) => {
    test.setTimeout(90_000);
    await addPolicy(server, 'carts.read', 1, 'active');
    await server.check('carts.read', 'a', 5);
    await setState(server, 'carts.read', 'shadow');
    await server.check('carts.read', 'a', 2);
    await setState(server, 'carts.read', 'activate');
    await server.check('carts.read', 'a', 1);
    await openedAs(context, page, 'bea', '/apps/shop/carts.read');
    const sentence = '8 requests in the last 15 min: 62.5% refused and 25.0% would have been refused.';
    await expect(chart(page)).toHaveAccessibleName(sentence, { timeout: COUNTED_MS });
    await expect(page.getByRole('slider', { name: /^Counts over time/ })).toHaveAttribute('aria-valuetext', sentence);
    await expect(page.getByText(sentence)).toBeVisible();
    // The axis begins at zero and has round rates.
    await expect(page.locator('.plot > .small').filter({ hasText: /^0$/ })).toBeVisible();
    await expect(
      page
        .locator('.plot > .small')
        .filter({ hasText: /^\d{1,2}\/min$/ })
        .first(),
    ).toBeVisible();
  });

  test('an open page shows what others change, and its times go on', async ({ context, page }) => {
    test.setTimeout(60_000);
    await addPolicy(server, 'orders.update', 100, 'shadow');
    await openedAs(context, page, 'vic', '/apps/shop/orders.update');
    await expect(page.getByRole('heading', { name: /^In shadow/ })).toBeVisible();
    await expect(page.locator('.page-head').getByText(/^\d+ s ago$/)).toBeVisible({ timeout: 5_000 });
    await setState(server, 'orders.update', 'activate');
    await expect(page.locator('.page-head')).toContainText(/active\s*· v2/, { timeout: FOLLOWED_MS });
    await expect(page.getByRole('heading', { name: /^In shadow/ })).toHaveCount(0);
    await expect(page.getByRole('listitem').filter({ hasText: 'v2' }).filter({ hasText: 'activated' })).toBeVisible();
    const first = await page.locator('.page-head time').innerText();
    await expect(page.locator('.page-head time')).not.toHaveText(first, { timeout: 5_000 });
  });

  test('the overview follows changes, and lists no sign-ins and no test requests', async ({ context, page }) => {
    test.setTimeout(60_000);
    await addPolicy(server, 'mails.send', 100, 'shadow');
    await openedAs(context, page, 'ada', '/');
    const list = page.getByRole('region', { name: 'Latest changes of policies' });
    await expect(list.getByRole('listitem').first()).toContainText('ada created the policy mails.send');
    // The entries that filled the list: wrong passwords of others, and test requests.
    for (let time = 0; time < 3; time += 1) {
      await fetch(`${server.url}/v1/admin/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ account: 'eve', password: 'guess' }),
      });
      await server.ada.ask('POST', '/apps/shop/policies/mails.send/keys/try', { key: 'console' });
    }
    await setState(server, 'mails.send', 'activate');
    await expect(list.getByRole('listitem').first()).toContainText('ada activated the policy mails.send', {
      timeout: FOLLOWED_MS,
    });
    await expect(list.getByText(/eve|test request|key\.try/)).toHaveCount(0);
    await list.getByRole('link', { name: 'Compare v1 → v2' }).first().click();
    await expect(page).toHaveURL(/mails\.send\/versions\?from=1&to=2$/);
  });

  test('an editor sees that somebody else saved, before it saves', async ({ context, page }) => {
    await addPolicy(server, 'users.find', 100, 'shadow');
    await openedAs(context, page, 'bea', '/apps/shop/users.find/edit');
    await page.getByRole('textbox', { name: 'Limit' }).first().fill('50');
    const document = { name: 'users.find', rules: [{ name: 'main', fixed_window: { limit: 70, window: '1h' } }] };
    await server.ada.ask('PUT', '/apps/shop/policies/users.find', { document }, { 'if-match': '"1"' });
    const news = page.getByRole('status').filter({ hasText: 'ada saved v2 while you edit:' });
    await expect(news).toBeVisible({ timeout: FOLLOWED_MS });
    await expect(page.getByRole('textbox', { name: 'Limit' }).first()).toHaveValue('50');
    await news.getByRole('button', { name: 'See what changed' }).click();
    await expect(page.getByRole('heading', { name: 'The policy is at v2 now' })).toBeVisible();
    await expect(page.getByText('The merge takes yours: rule main · Limit')).toBeVisible();
    await expect(page.getByText('/rules/rule main')).toHaveCount(0);
  });

  test('an editor without changes goes on with what somebody else saved', async ({ context, page }) => {
    await addPolicy(server, 'users.list', 100, 'shadow');
    await openedAs(context, page, 'bea', '/apps/shop/users.list/edit');
    const limit = page.getByRole('textbox', { name: 'Limit' }).first();
    await expect(limit).toHaveValue('100');
    const document = { name: 'users.list', rules: [{ name: 'main', fixed_window: { limit: 70, window: '1h' } }] };
    await server.ada.ask('PUT', '/apps/shop/policies/users.list', { document }, { 'if-match': '"1"' });
    await expect(limit).toHaveValue('70', { timeout: FOLLOWED_MS });
    await expect(page.getByText('based on v2')).toBeVisible();
  });

  test('a denied attempt is a sentence about what it was about, and found by it', async ({ context, page }) => {
    await addPolicy(server, 'orders.create2', 100, 'shadow');
    const vic = await Api.signIn(server, 'vic');
    const denied = async (method: string, path: string, body?: unknown) =>
      expect((await vic.send(method, path, body, { 'if-match': '"1"' })).status).toBe(403);
    await denied('DELETE', '/apps/shop/policies/orders.create2');
    await denied('PUT', '/apps/shop/members/vic', { role: 'owner' });
    await denied('POST', '/accounts', { name: 'mallory' });
    await denied('POST', '/apps/shop/policies', {});
    await openedAs(context, page, 'ada', '/audit?outcome=denied&actor=vic');
    const entries = page.getByRole('list', { name: 'Audit' }).getByRole('listitem');
    await expect(entries).toHaveText([
      /vic\s+was denied: create a policy in shop/,
      /vic\s+was denied: create an account/,
      /vic\s+was denied: change the role of vic in shop/,
      /vic\s+was denied: delete the policy orders\.create2/,
    ]);
    await page.getByLabel('Target').fill('orders.create2');
    await page.getByLabel('Target').press('Enter');
    await expect(entries).toHaveCount(1);
    await page.getByRole('button', { name: '中文' }).click();
    await expect(page.getByRole('list', { name: '审计' }).getByRole('listitem')).toContainText(
      /vic\s+被拒：删除策略 orders\.create2/,
    );
  });

  test('a test request has words in the audit, and is in its filter', async ({ context, page }) => {
    await addPolicy(server, 'login2', 100, 'shadow');
    await server.ada.ask('POST', '/apps/shop/policies/login2/keys/try', { key: 'console' });
    await openedAs(context, page, 'ada', '/audit?target=login2');
    await expect(page.getByRole('list', { name: 'Audit' }).getByRole('listitem').first()).toContainText(
      'sent a test request for the key console to login2',
    );
    await page.getByLabel('Action').selectOption('key.try');
    await expect(page.getByRole('list', { name: 'Audit' }).getByRole('listitem')).toHaveCount(1);
  });

  test('Save as active says that it needs a reason, by the pressed button', async ({ context, page }) => {
    await openedAs(context, page, 'bea', '/apps/shop/new');
    await page.getByRole('textbox', { name: 'Name' }).first().fill('pay.card');
    await expect(page.getByText('Checked by the server')).toBeVisible();
    await expect(page.getByLabel('Why (needed to save as active)')).toBeVisible();
    const writes: string[] = [];
    page.on(
      'request',
      (request) => request.method() === 'POST' && /policies$/.test(request.url()) && writes.push(request.url()),
    );
    await page.getByRole('button', { name: 'Save as active' }).click();
    const why = page.getByLabel('Why', { exact: true });
    await expect(why).toBeFocused();
    await expect(why).toHaveAttribute('aria-invalid', 'true');
    await expect(page.getByRole('alert').filter({ hasText: 'An active policy needs a reason.' })).toBeVisible();
    expect(writes).toEqual([]);
    // In shadow no reason is needed.
    await page.getByRole('button', { name: 'Save in shadow' }).click();
    await expect(page.getByText('pay.card created')).toBeVisible();
  });

  test('a draft has its reason, and is that of its account', async ({ context, page }) => {
    await openedAs(context, page, 'bea', '/apps/demo/login/edit');
    await page.getByLabel('Why').fill('spring sale');
    await page.getByRole('textbox', { name: 'Limit' }).first().fill('77');
    await page.reload();
    await expect(page.getByLabel('Why')).toHaveValue('spring sale');
    await expect(page.getByRole('textbox', { name: 'Limit' }).first()).toHaveValue('77');
    // The session ends, and somebody else signs in in this tab.
    await context.clearCookies();
    await expect(page.getByText('Your session has ended.')).toBeVisible({ timeout: FOLLOWED_MS });
    await page.getByLabel('Account').fill('ada');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await expect(page.getByRole('textbox', { name: 'Limit' }).first()).not.toHaveValue('77');
    await expect(page.getByLabel('Why')).toHaveValue('');
  });

  test('the sign-in page names the link that a first visitor opened, and no session', async ({ page }) => {
    await page.goto(`${server.url}/apps/shop/tokens`);
    await expect(page.getByText('Sign in to open /apps/shop/tokens.')).toBeVisible();
    await expect(page.getByText('Your session has ended')).toHaveCount(0);
  });

  test('tokens that end are found in all apps, by one request', async ({ context, page }) => {
    for (let place = 0; place < 8; place += 1) {
      await server.ada.ask('POST', '/apps', { name: `app${place}` });
      const body = { name: 'gateway', scopes: ['check'], expires_in_days: place === 0 ? 3 : 90 };
      await server.ada.ask('POST', `/apps/app${place}/tokens`, body);
    }
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await openedAs(context, page, 'ada', '/');
    const warning = page.getByRole('region', { name: 'Tokens that expire soon' });
    await expect(warning).toContainText('1 token expires soon');
    await expect(warning.getByRole('link', { name: /app0 · gateway/ })).toBeVisible();
    expect(asked.filter((path) => path === '/v1/admin/tokens').length).toBeGreaterThan(0);
    expect(asked.filter((path) => /^\/v1\/admin\/apps\/app\d/.test(path))).toEqual([]);
    // Only the apps that the account may see.
    await context.clearCookies();
    await openedAs(context, page, 'vic', '/');
    await expect(
      page.getByRole('region', { name: 'Latest changes of policies' }).getByRole('listitem').first(),
    ).toBeVisible();
    await expect(warning).toHaveCount(0);
  });

  test('apps with the most refused requests come first, whatever their share', async ({ context, page }) => {
    test.setTimeout(90_000);
    await server.ada.ask('POST', '/apps', { name: 'aa-small' });
    const { secret } = await server.ada.ask('POST', '/apps/aa-small/tokens', {
      name: 'caller',
      scopes: ['check'],
      expires_in_days: 90,
    });
    const document = { name: 'small.one', rules: [{ name: 'main', fixed_window: { limit: 1, window: '1h' } }] };
    await server.ada.ask('POST', '/apps/aa-small/policies?reason=new', { document, state: 'active' });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    for (let time = 0; time < 3; time += 1)
      await fetch(`${server.http}/v1/check`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ policy: 'small.one', key: 'a' }),
      });
    await addPolicy(server, 'big.one', 10, 'active');
    await server.check('big.one', 'a', 20);
    await openedAs(context, page, 'ada', '/');
    const rows = page.getByRole('region', { name: 'Apps' }).getByRole('listitem');
    await expect(rows.filter({ hasText: 'aa-small' })).toContainText('2 refused · 66.7%', { timeout: COUNTED_MS });
    await expect(rows.first()).toContainText('shop', { timeout: COUNTED_MS });
    await expect(rows.nth(1)).toContainText('aa-small');
  });

  test('every command that a page shows works with what its reader has, at the address of the server', async ({
    context,
    page,
  }) => {
    await openedAs(context, page, 'bea', '/apps/shop/tokens');
    await page.getByRole('button', { name: 'New token' }).click();
    await page.getByLabel('Name', { exact: true }).fill('edge');
    await page.getByRole('button', { name: 'Create token' }).click();
    const code = page.locator('dialog pre');
    await expect(code).toContainText(`curl ${server.http}/v1/check`);
    const secret =
      /sgt_\w+/.exec(await code.innerText())?.[0] ?? /SLUICEGATE_TOKEN=(\S+)/.exec(await code.innerText())![1]!;
    const answer = await fetch(`${server.http}/v1/check`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ policy: 'carts.read', key: 'alice' }),
    });
    expect([200, 404, 429]).toContain(answer.status);
    // A token that may not read policies has no line that does.
    await expect(page.locator('dialog').getByRole('button', { name: 'sluicegate', exact: true })).toHaveCount(0);
    await page.getByLabel('I stored it').check();
    await page.getByRole('button', { name: 'Done' }).click();

    const shown = async (path: string) => {
      await page.goto(server.url + path);
      await settled(page);
      await page.getByText('As code', { exact: true }).last().click();
      return page.locator('details.code pre').last().innerText();
    };
    const members = await shown('/apps/shop/members');
    expect(members).toBe(
      `export SLUICEGATE_ADMIN_URL=${server.url}\nsluicegate login --name bea\nsluicegate members set ACCOUNT --app shop --role viewer`,
    );
    await run(members.replace('ACCOUNT', 'ada'));
    expect(
      (await server.ada.ask('GET', '/apps/shop/members')).items.map(({ account }: { account: string }) => account),
    ).toContain('ada');
    expect(await run((await shown('/nodes')).replace('PASSWORD', PASSWORD))).toContain(`"listen":["${server.http}"]`);
    expect(await shown('/keys?app=demo&policy=login&key=kim')).toBe(
      `sluicegate explain login kim --app demo --to ${server.http}`,
    );
  });

  for (const width of [720, 768, 900, 1_024, 1_100, 1_279]) {
    test(`tables fit into ${width} px`, async ({ context, page }) => {
      // Numbers in all columns, long limits and names.
      const name = `a-policy-with-a-long-name-${width}`;
      await addPolicy(server, name, 1, 'active', {
        key: ['header:x-tenant', 'path'],
        overrides: [{ key: 'a|b', rules: [{ name: 'main', fixed_window: { limit: 5_000_000, window: '1h' } }] }],
      });
      await server.check(name, 'a', 3);
      await page.setViewportSize({ width, height: 800 });
      await enter(context, server, 'ada');
      for (const path of [
        '/',
        '/apps',
        '/apps/demo',
        '/apps/shop',
        '/apps/shop/members',
        '/apps/shop/tokens',
        '/apps/shop/audit',
        '/apps/demo/login',
        '/accounts',
        '/nodes',
        '/audit',
      ]) {
        await page.goto(server.url + path);
        await settled(page);
        const over = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        expect(over, path).toBeLessThanOrEqual(0);
      }
      await page.goto(`${server.url}/apps/shop`);
      await expect(page.getByRole('columnheader', { name: 'Refused, 5 min' })).toBeInViewport();
    });
  }

  test('a refusal that is pasted has no numbers that it does not have', async ({ context, page }) => {
    await openedAs(context, page, 'bea', '/apps/demo/login');
    const option = page.getByRole('option').last();
    const paste = async (text: string) => {
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox').fill(text);
    };
    await paste('{"allowed":false,"rule":"main"}');
    await expect(option).toContainText('Refused by rule main – choose its policy and type its key');
    await page.keyboard.press('Escape');
    await expect(page.getByRole('combobox')).toHaveCount(0);
    await paste('{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"limit reached"}');
    await expect(option).toContainText('limit reached');
    await page.keyboard.press('Enter');
    // An answer does not name its policy: that of the page is used.
    await expect(page).toHaveURL(/\/keys\?app=demo&policy=login/);
  });

  test('the palette opens again in the moment in which it closes', async ({ context, page }) => {
    await openedAs(context, page, 'bea', '/apps/demo/login');
    const box = page.getByRole('combobox');
    await page.keyboard.press('Control+k');
    await expect(box).toBeFocused();
    // The browser reports that a dialog was closed in a later task: both keys come before it.
    await page.evaluate(() => {
      const press = (init: KeyboardEventInit) =>
        document.activeElement?.dispatchEvent(
          new KeyboardEvent('keydown', { ...init, bubbles: true, cancelable: true }),
        );
      press({ key: 'Escape' });
      document.querySelector('dialog')?.close();
      press({ key: 'k', ctrlKey: true });
    });
    // The report of the first dialog has come by now.
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 0)));
    await expect(box).toBeFocused();
    await page.keyboard.type('members');
    await expect(box).toHaveValue('members');
  });

  test('j and k begin with the first row, and a row is one stop for Tab', async ({ context, page }) => {
    for (const name of ['row.a', 'row.b', 'row.c']) await addPolicy(server, name, 5, 'shadow');
    await openedAs(context, page, 'bea', '/apps/shop?q=row.&sort=name');
    await page.keyboard.press('j');
    const rows = page.getByRole('table', { name: 'Policies' }).locator('tr.line');
    await expect(rows.first()).toBeFocused();
    await page.keyboard.press('j');
    await expect(rows.nth(1)).toBeFocused();
    await page.keyboard.press('Tab');
    await expect(rows.nth(1).getByRole('link')).toBeFocused();
    await page.keyboard.press('Tab');
    await expect(rows.nth(2).getByRole('link')).toBeFocused();
  });

  test('higher limits of a key are among what was done for it, and can be ended', async ({ context, page }) => {
    test.setTimeout(60_000);
    await addPolicy(server, 'vip.calls', 5, 'active');
    await openedAs(context, page, 'bea', '/keys?app=shop&policy=vip.calls&key=kim');
    await page.getByRole('button', { name: 'Raise limits for a while…' }).click();
    await page.getByLabel('Why').fill('OPS-41');
    await page.getByRole('button', { name: 'Raise limits', exact: true }).click();
    await expect(page.getByText(/kim has higher limits until/)).toBeVisible();
    const done = page.getByRole('region', { name: 'What was done for this key' });
    await expect(done).toContainText('raised the limits of the key kim for a while under vip.calls');
    await done.getByText(/raised the limits/).click();
    await expect(done.getByRole('link', { name: 'Compare v1 → v2' })).toBeVisible();
    await page.getByRole('button', { name: 'End the higher limits…' }).click();
    await page.getByLabel('Why').fill('over');
    await page.getByRole('button', { name: 'End them now' }).click();
    await expect(page.getByRole('button', { name: 'End the higher limits…' })).toHaveCount(0);
    const { version, document } = await server.ada.ask('GET', '/apps/shop/policies/vip.calls');
    expect([version, document.overrides]).toEqual([3, undefined]);
  });

  test('pages about policies begin with the app that was looked at last', async ({ context, page }) => {
    await openedAs(context, page, 'bea', '/apps/shop');
    await page.getByRole('link', { name: 'Keys' }).first().click();
    await expect(page.getByLabel('App', { exact: true })).toHaveValue('shop');
  });

  test('an empty log is an error in a sentence, and the line of the limit moves by Home and End', async ({
    context,
    page,
  }) => {
    await openedAs(context, page, 'bea', '/whatif?app=demo&policy=login');
    const log = (text: string) => ({ name: 'access.log', mimeType: 'text/plain', buffer: Buffer.from(text) });
    await page.locator('input[type=file]').setInputFiles(log(''));
    await expect(page.getByRole('alert').filter({ hasText: 'log' })).toHaveText(/^The log is missing/);
    await page.locator('input[type=file]').setInputFiles(log(accessLog(120)));
    const line = page.getByRole('slider');
    await line.press('Home');
    await expect(line).toHaveAttribute('aria-valuenow', '1');
    await line.press('End');
    await expect(line).toHaveAttribute('aria-valuenow', (await line.getAttribute('aria-valuemax'))!);
  });

  test('a name of a tab that is none is a policy', async ({ context, page }) => {
    await addPolicy(server, 'traffic', 5, 'shadow');
    await openedAs(context, page, 'bea', '/apps/shop/traffic');
    await expect(page.getByRole('heading', { name: 'traffic', exact: true })).toBeVisible();
  });
});

test('overload, decisions without the store and refusals by a limit are three numbers', async ({ context, page }) => {
  test.setTimeout(180_000);
  const redis = await startSlowRedis(6);
  const server = await startIncident({ SLUICEGATE__STORE__URL: redis.url, SLUICEGATE__ADMIN__KEYS: 'clear' });
  try {
    await addPolicy(server, 'sessions.create', 3, 'active');
    await addPolicy(server, 'sessions.read', 1_000, 'shadow');
    const { secret } = await server.ada.ask('POST', '/apps/shop/tokens', {
      name: 'load',
      scopes: ['check'],
      expires_in_days: 1,
    });
    const headers = { authorization: `Bearer ${secret}` };
    await expect(async () => {
      await server.check('sessions.create', 'greedy', 6);
      const { keys } = await server.ada.ask('GET', '/apps/shop/policies/sessions.create/top');
      expect(keys.map(({ key }: { key: string }) => key)).toEqual(['greedy']);
    }).toPass({ timeout: 20_000 });
    let shed = 0;
    // A shadow is counted in whole buckets of ten seconds.
    await page.waitForTimeout(11_000);
    for (const policy of ['sessions.create', 'sessions.read']) {
      for (let time = 0; time < 10 && shed < 50; time += 1)
        shed += (await burst(server.http, headers, policy, 800)).shed ?? 0;
      expect(shed).toBeGreaterThan(0);
      shed = 0;
    }
    await enter(context, server, 'bea');
    await page.goto(`${server.url}/apps/shop/sessions.create`);
    await expect(chart(page)).toHaveAccessibleName(
      /requests in the last 15 min: \S+% refused,? (.*, )?(and )?\S+% met an overloaded store/,
      { timeout: COUNTED_MS },
    );
    await expect(page.getByText('Overload is no limit')).toBeVisible();
    await page.getByRole('button', { name: 'As table' }).click();
    await expect(page.getByRole('columnheader', { name: 'overload' })).toBeVisible();
    // The key that the limit refused is in the list; those that met the overload are not.
    const keys = page.getByRole('region', { name: 'Refused most, lately' });
    await expect(keys.getByRole('button', { name: 'greedy' })).toBeVisible({ timeout: COUNTED_MS });
    await expect(keys.getByRole('listitem')).toHaveCount(1);

    // The card of the shadow does not count overload as refusals of the limit.
    await page.goto(`${server.url}/apps/shop/sessions.read`);
    await expect(page.getByText(/^It would have refused 0% \(0 of [\d,]+\)\./)).toBeVisible({ timeout: COUNTED_MS });
    await expect(page.getByText(/[\d,]+ requests? met an overloaded store: no limit was asked about/)).toBeVisible();

    await page.goto(`${server.url}/`);
    const row = page.getByRole('region', { name: 'Apps' }).getByRole('listitem').filter({ hasText: 'shop' });
    await expect(row).toContainText(/[\d,]+ met an overloaded store/, { timeout: COUNTED_MS });
    await page.goto(`${server.url}/apps/shop`);
    await expect(page.getByRole('row', { name: /^sessions\.create/ })).toContainText(/% overload/, {
      timeout: COUNTED_MS,
    });
  } finally {
    await server.stop();
    await redis.stop();
  }
});

test('a setup link is taken in an open tab, and pages without an app say who makes one', async ({ page }) => {
  const server = await startServer();
  try {
    await page.goto(`${server.url}/setup`);
    await expect(page.getByLabel('Setup token')).toBeVisible();
    // As when a link is pasted into the address bar of the same page.
    await page.evaluate((token) => (location.hash = token), server.setupToken);
    await expect(page.getByLabel('Setup token')).toHaveCount(0);
    await expect(page).toHaveURL(`${server.url}/setup`);
    await page.getByLabel('Account').fill('ada');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Create account' }).click();
    await page.getByRole('link', { name: 'Later' }).click();
    // The empty overview shows a command that an administrator can run.
    await expect(page.locator('pre')).toHaveText(
      `export SLUICEGATE_ADMIN_URL=${server.url}\nsluicegate login --name ada\nsluicegate apps create shop`,
    );
    const lines = await page.locator('pre').innerText();
    for (const path of ['/keys', '/whatif', '/import']) {
      await page.goto(server.url + path);
      await expect(
        page.getByText('An app owns policies, tokens and members. Create the first one.'),
        path,
      ).toBeVisible();
    }
    await run(lines);
    await page.goto(`${server.url}/apps`);
    await expect(page.getByRole('link', { name: 'shop' })).toBeVisible();
  } finally {
    await server.stop();
  }
});
