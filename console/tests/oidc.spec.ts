import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Api, expect, startServer, test, type Server } from './harness.ts';

const CLIENT = 'sluicegate';

let server: Server;
let provider: HttpServer;
/** What the provider sends people back with. */
let error = 'access_denied';

/** A port that is free now. */
async function freePort(): Promise<number> {
  const taken = createServer();
  await new Promise<void>((done) => taken.listen(0, '127.0.0.1', done));
  const { port } = taken.address() as AddressInfo;
  await new Promise((done) => taken.close(done));
  return port;
}

test.beforeAll(async () => {
  // A provider of OpenID Connect at which people press `cancel`.
  provider = createServer((request, answer) => {
    const issuer = `http://${request.headers.host}`;
    const { pathname, searchParams } = new URL(request.url!, issuer);
    if (pathname === '/authorize') {
      const back = new URL(searchParams.get('redirect_uri')!);
      back.search = new URLSearchParams({ error, state: searchParams.get('state')! }).toString();
      answer.writeHead(302, { location: back.href }).end();
      return;
    }
    const described = {
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      jwks_uri: `${issuer}/keys`,
      response_types_supported: ['code'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
    };
    answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(pathname === '/keys' ? { keys: [] } : described));
  });
  await new Promise<void>((done) => provider.listen(0, '127.0.0.1', done));
  const port = await freePort();
  server = await startServer({
    env: {
      SLUICEGATE__ADMIN__LISTEN: `127.0.0.1:${port}`,
      SLUICEGATE__CATALOG__OIDC__ISSUER: `http://127.0.0.1:${(provider.address() as AddressInfo).port}`,
      SLUICEGATE__CATALOG__OIDC__CLIENT_ID: CLIENT,
      SLUICEGATE__CATALOG__OIDC__CLIENT_SECRET: 'secret',
      SLUICEGATE__CATALOG__OIDC__REDIRECT_URL: `http://127.0.0.1:${port}/v1/admin/oidc/callback`,
    },
  });
  await Api.setUp(server);
});
test.afterAll(async () => {
  await server?.stop();
  provider.closeAllConnections();
  provider.close();
});

test('a sign-in that the provider refuses ends on the sign-in page, with the reason, once', async ({ page }) => {
  error = 'access_denied';
  await page.goto(`${server.url}/sign-in`);
  await page.getByRole('link', { name: /^Sign in with/ }).click();
  await expect(page).toHaveURL(`${server.url}/sign-in`);
  await expect(page.getByRole('alert')).toContainText('access_denied');
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a link of another site shows no reason of its own', async ({ page }) => {
  await page.goto(`${server.url}/sign-in?problem=pay+me&error=x#problem=pay+me`);
  await expect(page.getByRole('button', { name: 'Sign in', exact: true })).toBeVisible();
  await expect(page.getByText('pay me')).toHaveCount(0);
});
