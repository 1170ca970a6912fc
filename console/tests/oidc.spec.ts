import { generateKeyPairSync, sign } from 'node:crypto';
import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Api, expect, startServer, test, type Server } from './harness.ts';

const CLIENT = 'sluicegate';

let server: Server;
let provider: HttpServer;
/** What the provider sends people back with; empty: they sign in. */
let error = '';
/** Of the sign-in that goes on. */
let nonce = '';

const KEYS = generateKeyPairSync('rsa', { modulusLength: 2048 });
const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A token that says that Dan signed in, with a name that has markup. */
function idToken(issuer: string): string {
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, aud: CLIENT, sub: 'd-1 <b>', email: 'dan@example.org', email_verified: true, iat: now, exp: now + 60, nonce };
  const signed = `${part({ alg: 'RS256', kid: 'k' })}.${part(claims)}`;
  return `${signed}.${sign('RSA-SHA256', Buffer.from(signed), KEYS.privateKey).toString('base64url')}`;
}

/** A port that is free now. */
async function freePort(): Promise<number> {
  const taken = createServer();
  await new Promise<void>((done) => taken.listen(0, '127.0.0.1', done));
  const { port } = taken.address() as AddressInfo;
  await new Promise((done) => taken.close(done));
  return port;
}

test.beforeAll(async () => {
  // A provider of OpenID Connect at which people sign in, or press `cancel`.
  provider = createServer((request, answer) => {
    const issuer = `http://${request.headers.host}`;
    const { pathname, searchParams } = new URL(request.url!, issuer);
    if (pathname === '/authorize') {
      const back = new URL(searchParams.get('redirect_uri')!);
      nonce = searchParams.get('nonce') ?? '';
      back.search = new URLSearchParams({ ...(error ? { error } : { code: 'c' }), state: searchParams.get('state')! }).toString();
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
    const bodies: Record<string, () => object> = {
      '/keys': () => ({ keys: [{ ...KEYS.publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] }),
      '/token': () => ({ access_token: 'a', token_type: 'Bearer', id_token: idToken(issuer) }),
    };
    answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(bodies[pathname]?.() ?? described));
  });
  await new Promise<void>((done) => provider.listen(0, '127.0.0.1', done));
  const port = await freePort();
  server = await startServer({
    env: {
      SLUICEGATE__ADMIN__LISTEN: `127.0.0.1:${port}`,
      SLUICEGATE__CATALOG__OIDC__ISSUER: `http://127.0.0.1:${(provider.address() as AddressInfo).port}`,
      SLUICEGATE__CATALOG__OIDC__CLIENT_ID: CLIENT,
      SLUICEGATE__CATALOG__OIDC__CLIENT_SECRET: 'secret',
      SLUICEGATE__CATALOG__OIDC__CREATE_ACCOUNTS: 'true',
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

test('a sign-in with the provider leads back into the console, with an account', async ({ page }) => {
  error = '';
  // A link leads there also by the provider.
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
