import type { Page } from '@playwright/test';
import { Api, enter, expect, hold, settled, startServer, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

test('from the sign-in to a policy by keyboard alone', async ({ page }) => {
  const { keyboard } = page;
  await page.goto(`${world.url}/sign-in`);
  await settled(page);
  await tabTo(page, 'Account');
  await keyboard.type('bea');
  await tabTo(page, 'Password');
  await keyboard.type('correct horse battery');
  await keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();

  await keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to the content' })).toBeFocused();
  await keyboard.press('Control+k');
  await expect(page.getByRole('combobox')).toBeFocused();
  await keyboard.type('demo');
  await keyboard.press('Enter');
  await expect(page).toHaveURL(`${world.url}/apps/demo`);
  await expect(page.getByRole('main')).toBeFocused();
  await expect(page.getByRole('link', { name: 'login', exact: true })).toBeVisible();

  await keyboard.press('/');
  await expect(page.getByRole('searchbox')).toBeFocused();
  await keyboard.type('o');
  await expect(page.getByText('2 of 3')).toBeVisible();
  await tabTo(page, /^login/);
  await keyboard.press('j');
  await keyboard.press('k');
  await keyboard.press('Enter');
  await expect(page).toHaveURL(`${world.url}/apps/demo/login`);
});

test('what has the focus is seen: no bar hides it', async ({ context, page }) => {
  await enter(context, world, 'ada');
  await page.setViewportSize({ width: 360, height: 560 });
  await page.goto(`${world.url}/audit`);
  await settled(page);
  for (let step = 0; step < 40; step++) {
    await page.keyboard.press('Tab');
    const hidden = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body || element.closest('header, nav')) return '';
      const box = element.getBoundingClientRect();
      const bars = [...document.querySelectorAll('header, nav')].filter((bar) =>
        ['fixed', 'sticky'].includes(getComputedStyle(bar).position),
      );
      const isHidden = bars.some((bar) => {
        const over = bar.getBoundingClientRect();
        return over.height > 0 && over.top <= box.top && over.bottom >= box.bottom;
      });
      return isHidden && !element.matches('.skip') ? element.outerHTML.slice(0, 120) : '';
    });
    expect(hidden).toBe('');
  }
});

test('the palette finds policies', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/`);
  await settled(page);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('sear');
  await expect(page.getByRole('option', { name: /shop\.search/ })).toBeVisible();
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(`${world.url}/apps/shop/shop.search`);
});

test('what is typed before the palette is loaded is not lost, and no shortcut', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/`);
  await settled(page);
  let go = () => {};
  const gone = new Promise<void>((resolve) => (go = resolve));
  await page.route(/Palette/, async (route) => {
    await gone;
    await route.continue();
  });
  await page.keyboard.press('Control+k');
  // `g` and `n` open the nodes where there is no palette.
  await page.keyboard.type('gn?shop.sear');
  go();
  await expect(page.getByRole('combobox')).toHaveValue('gn?shop.sear');
  await expect(page).toHaveURL(`${world.url}/`);
});

test('Enter in the palette waits for the apps, so that the name of one opens it', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/`);
  await settled(page);
  let go = () => {};
  const gone = new Promise<void>((resolve) => (go = resolve));
  await page.route(/admin\/apps\?/, async (route) => {
    await gone;
    await route.continue();
  });
  await page.keyboard.press('Control+k');
  await expect(page.getByRole('combobox')).toBeFocused();
  await page.keyboard.type('shop');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(`${world.url}/`);
  go();
  await expect(page).toHaveURL(`${world.url}/apps/shop`);
});

test('Enter in the palette waits for the policies, so that the name of one opens it', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/`);
  await settled(page);
  const search = await hold(page, /admin\/search\?/);
  await page.keyboard.press('Control+k');
  await expect(page.getByRole('combobox')).toBeFocused();
  await page.keyboard.type('shop.search');
  await page.keyboard.press('Enter');
  await search.asked;
  await expect(page).toHaveURL(`${world.url}/`);
  search.release();
  await expect(page).toHaveURL(`${world.url}/apps/shop/shop.search`);
});

test('a dialog returns the focus to the button that opened it', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps/shop/tokens`);
  const opener = page.getByRole('button', { name: 'New token' });
  await opener.click();
  await expect(page.getByRole('dialog')).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect(opener).toBeFocused();
});

test('single-letter keys go to sections, and can be switched off', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/`);
  await settled(page);
  await page.keyboard.press('g');
  await page.keyboard.press('a');
  await expect(page).toHaveURL(`${world.url}/apps`);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keyboard shortcuts' })).toBeVisible();
  await page.keyboard.press('Escape');
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await page.getByLabel('Single-letter shortcuts').uncheck();
  await page.getByRole('heading', { name: 'Settings' }).click();
  await page.keyboard.press('g');
  await page.keyboard.press('a');
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect(page).toHaveURL(`${world.url}/settings`);
});

test('theme and language stay after a reload', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/settings`);
  await page.getByLabel('Theme', { exact: true }).selectOption('dark');
  await page.getByLabel('Language', { exact: true }).selectOption('zh');
  await expect(page.getByRole('heading', { name: '设置' })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('heading', { name: '设置' })).toBeVisible();
  await expect(page.locator('html')).toHaveCSS('background-color', 'rgb(20, 23, 26)');
});

for (const path of [
  '/apps/%3Cscript%3Ewindow.hacked=1%3C%2Fscript%3E',
  '/apps/demo?q=%22%3E%3Cimg%20src=x%20onerror=window.hacked=1%3E',
  '/apps/demo/%E2%80%AEegap',
  '/apps/%E0%A4%A',
  '/audit?actor=%3Cb%3E&action=%3Cscript%3E&since=never',
  '/apps/constructor/__proto__',
  '/__proto__',
]) {
  test(`an odd address is a page like others: ${path}`, async ({ context, page }) => {
    await enter(context, world, 'ada');
    await page.goto(world.url + path);
    await settled(page);
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    expect(await page.locator('body').innerText()).not.toMatch(/[\u0000-\u0008\u202a-\u202e\u2066-\u2069]/);
  });
}

test('back and forward show the pages between', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps`);
  await page.getByRole('main').getByRole('link', { name: 'demo' }).click();
  await page.getByRole('link', { name: 'Members' }).click();
  await expect(page.getByLabel('Role of vic')).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('searchbox')).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('heading', { name: 'Apps' })).toBeVisible();
  await page.goForward();
  await expect(page.getByRole('heading', { name: 'demo' })).toBeVisible();
});

test('without the server a banner says so, until it is back', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.clock.install();
  // The chart must have been read once before it can be kept.
  const traffic = page.waitForResponse(/\/traffic\?/);
  await page.goto(`${world.url}/apps/demo`);
  await (await traffic).finished();
  await settled(page);
  await context.setOffline(true);
  await page.clock.runFor(11_000);
  await expect(page.getByRole('alert')).toContainText('The server does not answer');
  await expect(page.getByRole('link', { name: 'login', exact: true }), 'what was read stays').toBeVisible();
  await context.setOffline(false);
  await page.clock.runFor(11_000);
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a page that cannot be loaded offers to load again', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/apps`);
  await settled(page);
  await page.route('**/assets/Settings.js', (route) => route.abort());
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await expect(page.getByText('This page could not be loaded')).toBeVisible();
  await page.unroute('**/assets/Settings.js');
  await page.getByRole('button', { name: 'Load again' }).click();
  await expect(page.getByRole('heading', { name: 'Settings' })).toBeVisible();
});

test('the most policies that an app can have are at most 60 rows of the document', async ({ context, page }) => {
  test.setTimeout(90_000);
  const server = await startServer();
  const ada = await Api.setUp(server);
  await ada.ask('POST', '/apps', { name: 'big' });
  await enter(context, server, 'ada');
  const policies = Array.from({ length: 2_500 }, (_, index) => ({
    document: { name: `policy-${String(index).padStart(5, '0')}`, rules: [{ token_bucket: { rate: '10/s' } }] },
    state: index % 9 ? 'active' : 'shadow',
  }));
  await ada.ask('PUT', '/apps/big/policies?force=true', { policies });
  let asked = 0;
  page.on('request', (request) => {
    if (/\/apps\/big\/policy-summaries\?/.test(request.url())) asked += 1;
  });
  await page.goto(`${server.url}/apps/big`);
  const rows = page.locator('tbody tr');
  await expect(page.getByText(/of 2,500/)).toBeVisible({ timeout: 15_000 });
  const shown: number[] = [];
  for (const part of [0, 0.25, 0.5, 1]) {
    await page.evaluate((share) => scrollTo(0, document.documentElement.scrollHeight * share), part);
    await page.waitForTimeout(100);
    shown.push(await rows.count());
  }
  expect(Math.max(...shown)).toBeLessThanOrEqual(60);
  await expect(page.getByText('policy-02499')).toBeVisible();
  await page.getByRole('searchbox').fill('01321');
  await expect(page.getByText('policy-01321')).toBeVisible();
  await expect(page.getByText('1 of 2,500')).toBeVisible();
  // Once more if the page has seen the revision of the change only then.
  expect([3, 6], 'a request per 1,000 policies').toContain(asked);
  await server.stop();
});

/** Presses Tab until a control of this name has the focus. */
async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  for (let step = 0; step < 60; step++) {
    const focused = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement & { labels?: NodeListOf<HTMLElement> };
      return element.labels?.[0]?.innerText ?? element.ariaLabel ?? element.innerText ?? '';
    });
    if (typeof name === 'string' ? focused === name : name.test(focused)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`Tab does not reach ${name}`);
}
