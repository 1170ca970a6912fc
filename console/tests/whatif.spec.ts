import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { BIN, enter, expect, hold, settled, test, type Api, type Server } from './harness.ts';
import { accessLog } from './pages.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
let folder = '';

test.beforeAll(async () => {
  world = await startWorld();
  folder = mkdtempSync(join(tmpdir(), 'sluicegate-whatif-'));
  writeFileSync(join(folder, 'access.log'), accessLog(900));
});
test.afterAll(async () => {
  await world.stop();
  rmSync(folder, { recursive: true, force: true });
});

test.beforeEach(async ({ context }) => enter(context, world, 'bea'));

interface Told {
  requests: number;
  refused_today: number;
  refused_new: number;
  newly_refused: number;
  no_longer_refused: number;
  keys_newly_refused: { key: string; requests: number }[];
}

/** Returns the answer of the command line about the same log. */
async function told(policy: string, draft: unknown): Promise<Told> {
  const { document } = await world.ada.ask('GET', `/apps/demo/policies/${policy}`);
  writeFileSync(join(folder, 'today.json'), JSON.stringify({ policies: [document] }));
  writeFileSync(join(folder, 'new.json'), JSON.stringify({ policies: [draft] }));
  const args = [
    'policies',
    'whatif',
    '-f',
    'new.json',
    '--policies',
    'today.json',
    '--log',
    'access.log',
    '--output',
    'json',
  ];
  return JSON.parse(
    execFileSync(BIN, [...args, '--key', 'remote_ip', '--policy', policy], { cwd: folder, encoding: 'utf8' }),
  );
}

const sentence = (page: Page) => page.locator('main').getByRole('status').first();
const slider = (page: Page) => page.getByRole('slider');

async function send(page: Page): Promise<void> {
  await page.getByLabel('Key from the log').selectOption('remote_ip');
  await page.locator('input[type=file]').setInputFiles(join(folder, 'access.log'));
  await expect(slider(page)).toBeVisible();
}

/** The sentence for these numbers. */
const says = ({ requests, refused_today, refused_new, newly_refused, no_longer_refused }: Told): RegExp => {
  const figure = (value: number) => new Intl.NumberFormat('en-GB').format(value);
  return new RegExp(
    `^Of ${figure(requests)} requests, the policy in force refuses ${figure(refused_today)} \\(.*\\) and the draft ${figure(refused_new)} \\(.*\\): ` +
      `${figure(newly_refused)} newly refused, ${figure(no_longer_refused)} no longer refused`,
  );
};

test('the limit line is a handle, the log is sent once, and the figures are those of the command line', async ({
  page,
}) => {
  const sent: number[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/whatif') && request.method() === 'POST')
      sent.push(Number(request.headers()['content-length'] ?? 0));
  });
  await page.goto(`${world.url}/whatif?app=demo&policy=login`);
  await expect(page.getByRole('heading', { level: 1, name: 'What-if' })).toBeVisible();
  await send(page);
  const { document } = await world.ada.ask('GET', '/apps/demo/policies/login');
  await expect(sentence(page)).toHaveText(says(await told('login', document)));

  const limit = Number(await slider(page).getAttribute('aria-valuenow'));
  await slider(page).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const [rule] = document.rules;
  const turned = (permits: number) => ({
    ...document,
    rules: [{ ...rule, sliding_log: { ...rule.sliding_log, limit: permits } }],
  });
  const less = await told('login', turned(limit - 2));
  await expect(sentence(page)).toHaveText(says(less));
  const keys = page.getByRole('region', { name: 'Keys that change the most' });
  await expect(keys).toContainText(less.keys_newly_refused[0]!.key);

  const box = (await slider(page).boundingBox())!;
  await page.mouse.move(box.x + 100, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + 100, box.y + box.height / 2 - 180, { steps: 6 });
  await page.mouse.up();
  const dragged = Number(await slider(page).getAttribute('aria-valuenow'));
  expect(dragged).toBe((limit - 2) * 8);
  await expect(sentence(page)).toHaveText(says(await told('login', turned(dragged))));

  await page.getByRole('textbox', { name: /^Limit of/ }).fill('4');
  await expect(sentence(page)).toHaveText(says(await told('login', turned(4))));
  await page.getByRole('textbox', { name: /^Limit of/ }).fill('0');
  await expect(page.getByText('A whole number from 1 to')).toBeVisible();
  expect(await page.evaluate(() => 'hacked' in window)).toBe(false);

  const [first, ...later] = sent;
  expect(later.length).toBeGreaterThanOrEqual(3);
  expect(Math.max(0, ...later), `after ${first} bytes`).toBeLessThan(2_000);
  const { document: after } = await world.ada.ask('GET', '/apps/demo/policies/login');
  expect(after, 'nothing was saved').toEqual(document);
});

test('from the editor in one click, and back with the limit that was found', async ({ page }) => {
  await page.goto(`${world.url}/apps/demo/login/edit`);
  await page
    .getByRole('textbox', { name: /^Limit/ })
    .first()
    .fill('3');
  await expect(page.getByText('Checked by the server')).toBeVisible();
  await page.getByRole('link', { name: 'What-if' }).last().click();
  await expect(page.getByText('The draft from the editor is compared.')).toBeVisible();
  await send(page);
  await expect(slider(page)).toHaveAttribute('aria-valuenow', '3');
  await page.getByRole('textbox', { name: /^Limit of/ }).fill('8');
  await page.getByRole('button', { name: 'Continue in the editor' }).click();
  await expect(page).toHaveURL(/\/apps\/demo\/login\/edit$/);
  await expect(page.getByRole('textbox', { name: /^Limit/ }).first()).toHaveValue('8');
});

test('what cannot be compared has an error in words, and the page goes on', async ({ page }) => {
  await page.goto(`${world.url}/whatif?app=demo&policy=login`);
  writeFileSync(join(folder, 'large.log'), Buffer.alloc(33 * 2 ** 20, 'x'));
  await page.locator('input[type=file]').setInputFiles(join(folder, 'large.log'));
  await expect(page.getByRole('alert')).toContainText('large.log has 33 MiB; the limit is 32 MiB');
  const events = { name: 'events.jsonl', mimeType: 'text/plain', buffer: Buffer.from('{"at_us":0}\n') };
  await page.getByLabel('Key from the log').selectOption('remote_ip');
  await page.locator('input[type=file]').setInputFiles(events);
  await expect(page.getByRole('alert')).toContainText('The log is JSON');
  const junk = { name: 'junk.bin', mimeType: 'text/plain', buffer: Buffer.from([0, 1, 10, 255, 254]) };
  await page.locator('input[type=file]').setInputFiles(junk);
  await expect(sentence(page)).toHaveText('The policy applies to no line of this log.');
  await expect(
    page.getByText('2 lines were not decided: they are not of an access log, or a gateway answers them with an error.'),
  ).toBeVisible();
  await send(page);
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('an answer about what was chosen before is not shown', async ({ page }) => {
  await page.goto(`${world.url}/whatif?app=demo&policy=login`);
  await send(page);
  await expect(slider(page)).toHaveAttribute('aria-valuenow', '5');
  const other = await hold(page, /\/policies\/orders\.create$/);
  await page.getByLabel('Policy', { exact: true }).selectOption('orders.create');
  await other.asked;
  await page.getByLabel('Policy', { exact: true }).selectOption('login');
  await expect(slider(page)).toHaveAttribute('aria-valuenow', '5');
  other.release();
  await other.over;
  await settled(page);
  await expect(slider(page)).toHaveAttribute('aria-valuenow', '5');

  const comparison = await hold(page, /\/whatif$/);
  await page.locator('input[type=file]').setInputFiles(join(folder, 'access.log'));
  await comparison.asked;
  writeFileSync(join(folder, 'large.log'), Buffer.alloc(33 * 2 ** 20, 'x'));
  await page.locator('input[type=file]').setInputFiles(join(folder, 'large.log'));
  await expect(page.getByRole('alert')).toContainText('large.log has 33 MiB');
  comparison.release();
  await comparison.over;
  await settled(page);
  await expect(page.getByRole('alert')).toContainText('large.log has 33 MiB');
  await expect(slider(page)).toHaveCount(0);
});

test('a viewer sees what would happen and cannot go on to the editor', async ({ context, page }) => {
  await context.clearCookies();
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/whatif?app=demo&policy=login`);
  await send(page);
  await slider(page).press('ArrowDown');
  await expect(page.getByRole('button', { name: 'Continue in the editor' })).toHaveAttribute('aria-disabled', 'true');
});
