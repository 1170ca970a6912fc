import { freePort } from './database.ts';
import { Api, expect, startServer, test, type Server } from './harness.ts';
import { startProvider, type Provider } from './provider.ts';

let server: Server;
let provider: Provider;

test.beforeAll(async () => {
  provider = await startProvider();
  server = await startServer({ env: provider.env(await freePort()) });
  await Api.setUp(server);
});
test.afterAll(async () => {
  await server?.stop();
  provider.stop();
});

test('a sign-in that the provider refuses ends on the sign-in page, with the reason, once', async ({ page }) => {
  provider.error = 'access_denied';
  await page.goto(`${server.url}/sign-in`);
  await page.getByRole('link', { name: /^Sign in with/ }).click();
  await expect(page).toHaveURL(`${server.url}/sign-in`);
  await expect(page.getByRole('alert')).toContainText('access_denied');
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a sign-in with the provider leads back into the console, with an account', async ({ page }) => {
  provider.error = '';
  // A link leads to its page also after a sign-in at the provider.
  await page.goto(`${server.url}/settings?from=mail`);
  await expect(page.getByText('Sign in to open /settings?from=mail.')).toBeVisible();
  await page.getByRole('link', { name: /^Sign in with/ }).click();
  await expect(page).toHaveURL(`${server.url}/settings?from=mail`);
  await page.goto(`${server.url}/settings`);
  await expect(page.getByRole('main')).toContainText('dan@example.org');
  await expect(page.getByLabel('Current password'), 'there is no password to change').toHaveCount(0);
});

test('a link of another site shows no reason of its own', async ({ page }) => {
  await page.goto(`${server.url}/sign-in?problem=pay+me&error=x#problem=pay+me`);
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await expect(page.getByText('pay me')).toHaveCount(0);
});
