import { Api, startServer, type Server } from './harness.ts';

/** Markup that would run if a page took it for HTML. */
const MARKUP = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">';
/** Text that looks like other text unless a page shows characters that cannot be seen. */
const UNSEEN = 'invoice\u202egnp.exe\u0007';

/** A server with two apps, people of each role, tokens and a history. */
export async function startWorld(env: Record<string, string> = {}): Promise<Server & { ada: Api }> {
  const server = await startServer({ seed: '../examples/policies.yaml', env });
  const ada = await Api.setUp(server);
  await ada.ask('POST', '/apps', { name: 'shop', description: `The web shop. ${MARKUP}` });
  await ada.ask('POST', '/apps', { name: 'empty', description: '' });
  await ada.addPerson({ name: 'bea', roles: { demo: 'owner', shop: 'owner' } });
  await ada.addPerson({ name: 'vic', roles: { demo: 'viewer', shop: 'viewer', empty: 'viewer' } });
  await ada.addPerson({ name: 'cho' });
  await ada.ask('POST', '/apps', { name: 'other', owners: ['cho'] });

  const document = {
    name: 'shop.search',
    key: ['header:x-user'],
    match: { path: { prefix: '/search/<script>' }, method: ['GET'] },
    rules: [
      { name: 'burst', token_bucket: { rate: '20/s', burst: 40 } },
      { name: 'hourly', sliding_window: { limit: 5000, window: '1h' } },
    ],
    overrides: [{ key: MARKUP + UNSEEN, rules: [{ name: 'burst', token_bucket: { rate: '5/s', burst: 5 } }] }],
  };
  const reason = `?reason=${encodeURIComponent(MARKUP)}`;
  await ada.ask('POST', `/apps/shop/policies${reason}`, { document, state: 'shadow' });
  const faster = {
    ...document,
    rules: [{ name: 'burst', token_bucket: { rate: '30/s', burst: 40 } }, document.rules[1]],
  };
  await ada.ask('PUT', `/apps/shop/policies/shop.search${reason}`, { document: faster }, { 'if-match': '"1"' });
  await ada.ask('POST', '/apps/shop/policies', { document: { name: 'shop.old', rules: document.rules } });
  await ada.ask('DELETE', `/apps/shop/policies/shop.old${reason}`, undefined, { 'if-match': '"1"' });
  await ada.ask('POST', '/apps/shop/policies', {
    document: { name: 'shop.export', key: ['remote_ip'], rules: [{ concurrency: { limit: 2, ttl: '30s' } }] },
    state: 'active',
  });
  await ada.ask('POST', '/apps/shop/tokens', { name: 'gateway', scopes: ['check'], expires_in_days: 90 });
  await ada.ask('POST', '/apps/shop/tokens', {
    name: 'pipeline',
    scopes: ['policy:read', 'policy:write'],
    expires_in_days: 7,
  });
  return { ...server, ada };
}
