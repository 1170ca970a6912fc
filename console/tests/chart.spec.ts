import { expect, PASSWORD, startServer, test, type Server } from './harness.ts';

let server: Server;
test.beforeAll(async () => {
  server = await startServer({ seed: '../examples/policies.yaml' });
});
test.afterAll(() => server.stop());

test('from the printed link to a request that the chart shows in nine interactions', async ({ page }) => {
  test.setTimeout(60_000);
  let interactions = 0;
  const act = async (action: Promise<unknown>) => {
    interactions += 1;
    await action;
  };
  await act(page.goto(`${server.url}/setup#${server.setupToken}`));
  await act(page.getByLabel('Account').fill('ada'));
  await act(page.getByLabel('Password', { exact: true }).fill(PASSWORD));
  await act(page.getByRole('button', { name: 'Create account' }).click());
  await act(page.getByRole('link', { name: 'demo' }).first().click());
  await act(page.getByRole('link', { name: 'login' }).first().click());
  const chart = page.getByRole('img', { name: /requests? in the last 15 min/ });
  await expect(chart).toHaveAccessibleName('0 requests in the last 15 min: 0% refused.');
  await act(page.getByRole('button', { name: 'Send a test request' }).click());
  await expect(page.getByText('Test request with key console: Passes')).toBeVisible();
  // A node sums up every ten seconds, and the page asks every five.
  await expect(chart).toHaveAccessibleName('1 request in the last 15 min: 0% refused.', { timeout: 30_000 });
  await expect(page.locator('svg rect.allowed')).toHaveCount(1);
  expect(interactions).toBeLessThanOrEqual(9);

  await page.getByRole('button', { name: 'As table' }).click();
  await expect(page.getByRole('columnheader', { name: 'refused', exact: true })).toBeVisible();
  await page.getByRole('button', { name: 'As table' }).click();

  // A column says what it has, by the pointer and by the keyboard.
  const probe = page.getByRole('slider', { name: /^Counts over time/ });
  const tip = page.locator('.plot .tip');
  await probe.focus();
  // Columns move to the left every ten seconds: what was found may have passed.
  await expect(async () => {
    await page.keyboard.press('End');
    for (let step = 0; step < 12 && !/allowed 1$/.test(await tip.innerText()); step += 1)
      await page.keyboard.press('ArrowLeft');
    expect(await tip.innerText()).toMatch(/^\d\d:\d\d:\d0 · allowed 1$/);
    expect(await probe.getAttribute('aria-valuetext')).toMatch(/allowed 1$/);
  }).toPass();
  await page.keyboard.press('Escape');
  await expect(tip).toHaveCount(0);
  await probe.hover({ position: { x: 2, y: 60 } });
  await expect(tip).toBeVisible();

  // A change of the policy is a mark, which says whose it is and leads to the comparison.
  const { version } = await page.evaluate(async () =>
    (
      await fetch('/v1/admin/apps/demo/policies/login/shadow?reason=attack&force=true', {
        method: 'POST',
        headers: { 'if-match': '"1"' },
      })
    ).json(),
  );
  expect(version).toBe(2);
  const mark = page.getByRole('button', { name: /login v2 · ada/ });
  await expect(mark).toBeVisible({ timeout: 10_000 });
  await mark.focus();
  await expect(page.getByText('Latest change: login v2 · ada')).toContainText('“attack”');
  await page.getByRole('link', { name: 'Compare', exact: true }).first().click();
  await expect(page).toHaveURL(/versions\?from=1&to=2$/);
  await page.goBack();

  // The same numbers elsewhere: beside the policy in the list, and where its limit is changed.
  await page.getByRole('link', { name: 'Edit', exact: true }).click();
  await expect(
    page.getByText(/Last 24 hours: 0 of 1 requests refused; the busiest 5 minutes had 0.00333\/s/),
  ).toBeVisible();
  await page.goto(`${server.url}/apps/demo`);
  await expect(page.getByRole('row', { name: /^login/ }).getByRole('img')).toHaveAccessibleName(
    '1 in the last 5 minutes, 0 of them refused',
  );
  await page.goto(`${server.url}/apps`);
  await expect(page.getByRole('row', { name: /^demo/ }).getByRole('img')).toHaveAccessibleName(
    '1 in the last 5 minutes, 0 of them refused',
  );
});
