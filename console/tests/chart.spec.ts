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
  await page.screenshot({ path: `${process.env.SCREENS ?? '/tmp'}/chart.png`, fullPage: true });
});
