import { generateKeyPairSync, sign } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const CLIENT = 'sluicegate';
const KEYS = generateKeyPairSync('rsa', { modulusLength: 2048 });
const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A provider of OpenID Connect at which Dan signs in, or presses `cancel`. */
export interface Provider {
  /** The error in the provider's redirect; empty: people sign in. */
  error: string;
  issuer: string;
  /** The configuration of a server whose admin address has this port. */
  env: (port: number) => Record<string, string>;
  stop: () => void;
}

export async function startProvider(): Promise<Provider> {
  /** The nonce of the sign-in under way. */
  let nonce = '';
  /** A token that says that Dan signed in, with a name that has markup. */
  function idToken(issuer: string): string {
    const now = Math.floor(Date.now() / 1000);
    const claims = {
      iss: issuer,
      aud: CLIENT,
      sub: 'd-1 <b>',
      email: 'dan@example.org',
      email_verified: true,
      iat: now,
      exp: now + 60,
      nonce,
    };
    const signed = `${part({ alg: 'RS256', kid: 'k' })}.${part(claims)}`;
    return `${signed}.${sign('RSA-SHA256', Buffer.from(signed), KEYS.privateKey).toString('base64url')}`;
  }
  const server = createServer((request, answer) => {
    const issuer = `http://${request.headers.host}`;
    const { pathname, searchParams } = new URL(request.url!, issuer);
    if (pathname === '/authorize') {
      const back = new URL(searchParams.get('redirect_uri')!);
      nonce = searchParams.get('nonce') ?? '';
      const { error } = provider;
      back.search = new URLSearchParams({
        ...(error ? { error } : { code: 'c' }),
        state: searchParams.get('state')!,
      }).toString();
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
    answer
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify(bodies[pathname]?.() ?? described));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider: Provider = {
    error: '',
    issuer,
    env: (port) => ({
      SLUICEGATE__ADMIN__LISTEN: `127.0.0.1:${port}`,
      SLUICEGATE__CATALOG__OIDC__ISSUER: issuer,
      SLUICEGATE__CATALOG__OIDC__CLIENT_ID: CLIENT,
      SLUICEGATE__CATALOG__OIDC__CLIENT_SECRET: 'secret',
      SLUICEGATE__CATALOG__OIDC__CREATE_ACCOUNTS: 'true',
      SLUICEGATE__CATALOG__OIDC__REDIRECT_URL: `http://127.0.0.1:${port}/v1/admin/oidc/callback`,
    }),
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
  return provider;
}
