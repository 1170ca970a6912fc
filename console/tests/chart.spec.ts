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
  const chart = page.getByRole('img', { name: /decided in the last 15 min/ });
  await expect(chart).toHaveAccessibleName('0 decided in the last 15 min, 0% of them refused.');
  await act(page.getByRole('button', { name: 'Send a request' }).click());
  await expect(page.getByText('The request for key console: Passes')).toBeVisible();
  // A node sums up every ten seconds, and the page asks every five.
  await expect(chart).toHaveAccessibleName('1 decided in the last 15 min, 0% of them refused.', { timeout: 30_000 });
  await expect(page.locator('svg rect.allowed')).toHaveCount(1);
  expect(interactions).toBeLessThanOrEqual(9);

  await page.getByRole('button', { name: 'As table' }).click();
  await expect(page.getByRole('columnheader', { name: 'refused', exact: true })).toBeVisible();
  await page.getByRole('button', { name: 'As table' }).click();

  // The same numbers elsewhere: beside the policy in the list, and where its limit is changed.
  await page.getByRole('link', { name: 'Edit', exact: true }).click();
  await expect(page.getByText(/Last 24 hours: 0 of 1 requests refused; the busiest 5 minutes had 0.00333\/s/)).toBeVisible();
  await page.goto(`${server.url}/apps/demo`);
  await expect(page.getByRole('row', { name: /^login/ }).getByRole('img')).toHaveAccessibleName('1 in the last 5 minutes, 0 of them refused');
  await page.goto(`${server.url}/apps`);
  await expect(page.getByRole('row', { name: /^demo/ }).getByRole('img')).toHaveAccessibleName('1 in the last 5 minutes, 0 of them refused');
});
