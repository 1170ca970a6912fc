import { Api, endSessionBefore, expect, openAs, signIn, startServer, test, PASSWORD, type Server } from './harness.ts';

test.describe('first run', () => {
  let server: Server;
  test.beforeAll(async () => {
    server = await startServer({ seed: '../examples/policies.yaml' });
  });
  test.afterAll(() => server.stop());

  test('the setup link leads to a first decision in nine interactions', async ({ page }) => {
    let interactions = 0;
    const act = async (action: Promise<unknown>) => {
      interactions += 1;
      await action;
    };
    await act(page.goto(`${server.url}/setup#${server.setupToken}`));
    await expect(page, 'the token leaves the address bar').toHaveURL(`${server.url}/setup`);
    await expect(page.getByLabel('Setup token')).toHaveCount(0);
    await act(page.getByLabel('Account').fill('ada'));
    await act(page.getByLabel('Password', { exact: true }).fill(PASSWORD));
    await act(page.getByRole('button', { name: 'Create account' }).click());
    await expect(page.getByRole('heading', { name: 'First steps' })).toBeVisible();

    await act(page.getByRole('link', { name: 'Create a token' }).click());
    await act(page.getByRole('button', { name: 'New token' }).click());
    await act(page.getByLabel('Name').fill('first'));
    await act(page.getByRole('button', { name: 'Create token' }).click());
    const line = await page.locator('dialog pre').innerText();
    const secret = /SLUICEGATE_TOKEN=(\S+)/.exec(line)![1]!;
    const body = /-d '([^']+)'/.exec(line)![1]!;
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const answer = await fetch(`${server.http}/v1/check`, { method: 'POST', headers, body });
    expect(answer.status, 'the line that the console shows is a request that works').toBe(200);
    expect(interactions).toBeLessThanOrEqual(9);
  });

  test('afterwards there is no setup', async ({ page }) => {
    await page.goto(`${server.url}/setup`);
    await expect(page).toHaveURL(/\/sign-in$/);
  });
});

test.describe('sign-in', () => {
  let server: Server;
  let ada: Api;
  test.beforeAll(async () => {
    server = await startServer({ seed: '../examples/policies.yaml' });
    ada = await Api.setUp(server);
    for (const name of ['bea', 'cho', 'dan']) await ada.addPerson({ name, roles: { demo: 'owner' } });
  });
  test.afterAll(() => server.stop());

  test('a wrong password is an error, and the field is empty again', async ({ page }) => {
    await page.goto(`${server.url}/sign-in`);
    await signIn(page, 'bea', 'not the password');
    await expect(page.getByRole('alert')).toContainText('The account or the password is wrong.');
    await expect(page.getByLabel('Password')).toHaveValue('');
  });

  test('after too many attempts the page counts down', async ({ page }) => {
    await page.clock.install();
    await page.goto(`${server.url}/sign-in`);
    await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
    // The seconds of the page pass when the test says so.
    await page.clock.pauseAt(Date.now() + 60_000);
    const wait = page.getByRole('alert').filter({ hasText: /Try again in/ });
    for (let attempt = 0; attempt < 30 && !(await wait.isVisible()); attempt++) {
      const answer = page.waitForResponse((response) => response.request().method() === 'POST');
      await signIn(page, 'cho', 'not the password');
      await answer;
      await expect(page.getByRole('alert')).toBeVisible();
    }
    const button = page.getByRole('button', { name: 'Sign in' });
    await expect(button).toHaveAttribute('aria-disabled', 'true');
    const first = Number(/in (\d+)/.exec(await wait.innerText())![1]);
    await page.clock.runFor(1_000);
    if (first > 1) await expect(wait).toContainText(`in ${first - 1} s`);
    await page.clock.runFor(first * 1_000);
    await expect(wait).toHaveCount(0);
    await expect(button).not.toHaveAttribute('aria-disabled');
  });

  test('a link opens after the sign-in that it needs', async ({ page }) => {
    await page.goto(`${server.url}/apps/demo/members?q=1`);
    await expect(page).toHaveURL(/\/sign-in\?to=/);
    await signIn(page, 'bea');
    await expect(page).toHaveURL(`${server.url}/apps/demo/members?q=1`);
  });

  for (const to of ['//example.org', '/\\example.org', 'https://example.org', 'javascript:alert(1)']) {
    test(`a sign-in does not lead away to ${to}`, async ({ page }) => {
      await openAs(page, server, 'bea', to);
      await expect(page).toHaveURL(`${server.url}/`);
    });
  }

  test('signing out everywhere ends the other browser, too', async ({ page, browser }) => {
    const other = await browser.newContext();
    const there = await other.newPage();
    await openAs(there, server, 'dan', '/settings');
    await openAs(page, server, 'dan', '/settings');
    await endSessionBefore(there, /\/v1\/admin\/app-summaries\?/, async () => {
      await page.getByRole('button', { name: 'Sign out everywhere' }).click();
      await expect(page).toHaveURL(/\/sign-in$/);
    });
    await there.getByRole('link', { name: 'Apps' }).click();
    await expect(there).toHaveURL(`${server.url}/sign-in?to=%2Fapps`);
    await other.close();
  });

  test('an ended session returns to the same page, and a password change keeps this session only', async ({ page }) => {
    await openAs(page, server, 'bea', '/settings');
    const elsewhere = await Api.signIn(server, 'bea');
    await page.getByLabel('Current password').fill(PASSWORD);
    await page.getByLabel('New password').fill(`${PASSWORD} staple`);
    await page.getByRole('button', { name: 'Change the password' }).click();
    await expect(page.getByText('Password changed.')).toBeVisible();
    expect((await elsewhere.send('GET', '/session')).status).toBe(401);
    await page.reload();
    await expect(page.getByRole('heading', { name: 'Settings' })).toBeVisible();

    await endSessionBefore(page, /\/v1\/admin\/apps\?/, () => page.context().clearCookies());
    await page.getByRole('link', { name: 'Audit' }).click();
    await expect(page).toHaveURL(/\/sign-in\?to=%2Faudit$/);
    await expect(page.getByText('return to where you were')).toBeVisible();
    await signIn(page, 'bea', `${PASSWORD} staple`);
    await expect(page).toHaveURL(`${server.url}/audit`);
  });

  test('what people see of the app is in the language that they chose', async ({ page }) => {
    await page.goto(`${server.url}/sign-in`);
    await page.getByRole('button', { name: '中文' }).click();
    await expect(page.getByRole('heading', { name: '登录' })).toBeVisible();
    await page.reload();
    await expect(page.getByRole('heading', { name: '登录' })).toBeVisible();
    await expect(page.locator('html')).toHaveAttribute('lang', 'zh-CN');
  });
});

test('without a catalog the page says what to do', async ({ page }) => {
  const server = await startServer({ policies: '../examples/policies.yaml' });
  await page.goto(server.url);
  await expect(page.getByText('This server has no catalog')).toBeVisible();
  await server.stop();
});
