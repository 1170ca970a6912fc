import type { Locator, Page } from '@playwright/test';
import { enter, expect, test, type Api, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());
test.beforeEach(async ({ context }) => enter(context, world, 'bea'));

/** More controls than any page has before the wanted one. */
const STOPS_MAX = 80;

/** Moves the focus to `wanted` with the Tab key alone. */
async function tabTo(page: Page, wanted: Locator): Promise<void> {
  await expect(wanted).toBeVisible();
  for (let stop = 0; stop < STOPS_MAX; stop += 1) {
    if (await wanted.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`${wanted} is not reached by the Tab key`);
}

test('a policy is changed and saved by the keyboard alone', async ({ page }) => {
  const rules = [{ name: 'burst', token_bucket: { rate: '100/s', burst: 200 } }];
  await world.ada.ask('POST', '/apps/shop/policies', { document: { name: 'by.keyboard', rules }, state: 'active' });
  await page.goto(`${world.url}/apps/shop/by.keyboard`);
  await tabTo(
    page,
    page
      .getByRole('link', { name: 'Edit' })
      .or(page.getByRole('button', { name: 'Edit' }))
      .first(),
  );
  await page.keyboard.press('Enter');
  const burst = page.getByRole('textbox', { name: 'Burst (at once)' }).first();
  await tabTo(page, burst);
  await page.keyboard.press('Control+a');
  await page.keyboard.type('400');
  await expect(page.getByText('Checked by the server')).toBeVisible();
  await tabTo(page, page.getByLabel('Why'));
  await page.keyboard.type('by keyboard');
  await tabTo(page, page.getByRole('button', { name: 'Save as active' }));
  await page.keyboard.press('Enter');
  await expect(page.getByText('by.keyboard saved as v2')).toBeVisible();
  expect((await world.ada.ask('GET', '/apps/shop/policies/by.keyboard')).document.rules[0].token_bucket.burst).toBe(
    400,
  );
});

test('a key is found and given permits by the keyboard alone, and the focus comes back', async ({ page }) => {
  await page.goto(`${world.url}/keys?app=demo&policy=login`);
  await tabTo(page, page.getByRole('textbox', { name: 'Key' }));
  await page.keyboard.type('kim');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'kim' })).toBeVisible();
  const give = page.getByRole('button', { name: 'Give permits back…' });
  await tabTo(page, give);
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await expect(dialog).toBeVisible();
  await tabTo(page, dialog.getByLabel('Why'));
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Escape');
  // Closed, it leaves the page a moment later.
  await expect(page.locator('dialog')).toHaveCount(0);
  await expect(give).toBeFocused();
  await page.keyboard.press('Enter');
  await tabTo(page, dialog.getByLabel('Why'));
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Enter');
  await expect(page.getByText('1 permit given back to kim')).toBeVisible();
});

test('forced colours leave every control, mark and picture to be seen', async ({ page }) => {
  await page.emulateMedia({ forcedColors: 'active' });
  await page.goto(`${world.url}/apps/demo/login`);
  await page.getByRole('button', { name: 'Send a test request' }).click();
  await expect(page.getByText('Test request with key console: Passes')).toBeVisible();
  await expect(page.locator('svg rect.allowed')).toHaveCount(1, { timeout: 30_000 });
  const colours = await page.evaluate(() => {
    const of = (selector: string, property: string) =>
      getComputedStyle(document.querySelector(selector)!).getPropertyValue(property);
    return {
      bar: of('svg rect.allowed', 'fill'),
      legend: of('figcaption i', 'background-color'),
      ground: of('body', 'background-color'),
    };
  });
  expect(colours.bar).not.toBe(colours.ground);
  expect(colours.legend, 'the legend has the colour of the bar').toBe(colours.bar);
  await tabTo(page, page.getByRole('button', { name: 'As table' }));
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
  expect(outline).not.toBe('none');
});
