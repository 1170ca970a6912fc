import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { enter, expect, settled, startServer, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test('two nodes are two dots, and one that was stopped is no longer there', async ({ context, page }) => {
  const second = await startServer({ catalog: world.catalog });
  await enter(context, world, 'vic');
  await page.clock.install();
  await page.goto(`${world.url}/nodes`);
  await settled(page);
  await expect
    .poll(
      async () => {
        await page.clock.runFor(6_000);
        return page.getByRole('main').innerText();
      },
      { timeout: 20_000 },
    )
    .toMatch(/in force on 2 of 2 nodes/);
  await expect(page.getByRole('cell', { name: 'ready', exact: true })).toHaveCount(2);
  await expect(page.getByRole('link', { name: /in force on 2 of 2 nodes/ }).locator('i.current')).toHaveCount(2);
  await second.stop();
  await expect
    .poll(
      async () => {
        await page.clock.runFor(6_000);
        return page.getByRole('main').innerText();
      },
      { timeout: 20_000 },
    )
    .toMatch(/in force on 1 of 1 node/);
});

test('a node whose clock is five minutes behind lives, and its clock is named', async ({ context, page }) => {
  test.setTimeout(60_000);
  const folder = mkdtempSync(join(tmpdir(), 'sluicegate-clock-'));
  const [shim, offset] = [join(folder, 'clock.so'), join(folder, 'offset')];
  execFileSync('cc', ['-shared', '-fPIC', '-o', shim, '../crates/testkit/src/clock_shim.c']);
  const behind = Buffer.alloc(8);
  behind.writeBigInt64LE(-300_000_000n);
  writeFileSync(offset, behind);
  const env = { LD_PRELOAD: shim, SLUICEGATE_CLOCK_FILE: offset, SLUICEGATE__CATALOG__NODE: 'behind' };
  const second = await startServer({ catalog: world.catalog, env });
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/nodes`);
  // Its second report is known to be new, whatever its time.
  await expect(page.getByRole('main')).toContainText(/in force on 2 of 2 nodes/, { timeout: 30_000 });
  await expect(page.getByRole('row', { name: /^behind/ })).toContainText(/ready.*clock (29\d|30\d) s behind/s, {
    timeout: 30_000,
  });
  await second.stop();
});

test('what is refused is seen in the lists, worst first', async ({ context, page }) => {
  test.setTimeout(60_000);
  const { secret } = await world.ada.ask('POST', '/apps/demo/tokens', {
    name: 'caller',
    scopes: ['check'],
    expires_in_days: 1,
  });
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ policy: 'login', key: 'alice' });
  const check = async () => (await fetch(`${world.http}/v1/check`, { method: 'POST', headers, body })).status;
  // The node learns of the token a moment after it was made.
  await expect.poll(check).toBe(200);
  for (let call = 1; call < 10; call++) expect(await check()).toBe(200);
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/apps/demo?sort=refused`);
  // A node sums up every ten seconds, and the page asks every ten.
  await expect(page.locator('tbody tr').first()).toContainText('50.0%', { timeout: 45_000 });
  await expect(page.locator('tbody tr').first()).toContainText('login');
  await page.goto(world.url);
  const first = page.locator('a.app').first();
  await expect(first).toContainText('demo');
  await expect(first).toContainText('10 requests');
  await expect(first).toContainText('5 refused · 50.0%');
});
