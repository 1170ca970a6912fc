import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { enter, expect, settled, startServer, test, type Server } from './harness.ts';
import { changed, hasLines, lines } from './lines.ts';
import { VIEWS } from './pages.ts';
import { startWorld } from './world.ts';

/** The folder for pictures of all pages; without it, none are made. */
const SCREENS = process.env.SCREENS;
/** The themes and widths in which each page is opened, by language. */
const LOOKS = {
  en: [
    ['light', 1280],
    ['dark', 1280],
    ['light', 360],
  ],
  zh: [
    ['light', 1280],
    ['dark', 1280],
    ['dark', 360],
  ],
} as const;
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

let world: Server;
let fresh: Server;

test.beforeAll(async () => {
  [world, fresh] = await Promise.all([startWorld(), startServer()]);
  if (SCREENS) mkdirSync(SCREENS, { recursive: true });
});
test.afterAll(async () => {
  await Promise.all([world?.stop(), fresh?.stop()]);
});

for (const language of ['en', 'zh'] as const) {
  for (const view of VIEWS) {
    test(`${view.name} (${language}): axe finds nothing, 320 px are wide enough, and it looks as it did`, async ({
      context,
      page,
    }) => {
      const server = view.name === 'setup' ? fresh : world;
      await page.emulateMedia({ reducedMotion: 'reduce' });
      await context.addInitScript((value) => localStorage.setItem('sluicegate.language', value), language);
      await context.addInitScript({ path: 'node_modules/axe-core/axe.min.js' });
      if (view.as) await enter(context, server, view.as);
      await page.goto(server.url + view.path);
      await settled(page);
      await view.act?.(page);
      await settled(page);
      for (const [theme, width] of LOOKS[language]) {
        await page.setViewportSize({ width, height: 800 });
        await page.evaluate((value) => {
          document.documentElement.dataset.theme = value;
        }, theme);
        if (SCREENS)
          await page.screenshot({
            path: join(SCREENS, `${view.name}-${language}-${theme}-${width}.png`),
            fullPage: true,
          });
        expect(await violations(page), `${theme}, ${width} px`).toEqual([]);
      }
      // What depends on the size of a part is set a moment after the window has another size.
      if (hasLines(view.name))
        await expect.poll(async () => changed(view.name, language, await allLines(page, LOOKS[language]))).toEqual([]);
      await page.setViewportSize({ width: 320, height: 640 });
      await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
      expect(await page.evaluate(() => 'hacked' in window), 'no text of others runs').toBe(false);
      expect(await page.locator('body').innerText(), 'no character turns text around').not.toMatch(
        /[\u202a-\u202e\u2066-\u2069]/,
      );
    });
  }
}

/** The lines of a page in each of its looks. */
async function allLines(page: Page, looks: readonly (readonly [string, number])[]): Promise<string[]> {
  const found: string[] = [];
  await settled(page);
  for (const [theme, width] of looks) {
    await page.setViewportSize({ width, height: 800 });
    await page.evaluate((value) => {
      document.documentElement.dataset.theme = value;
    }, theme);
    found.push(`# ${theme}, ${width} px`, ...(await lines(page)));
  }
  return found;
}

async function violations(page: Page): Promise<string[]> {
  return page.evaluate(async (rules) => {
    const { axe } = window as unknown as { axe: typeof import('axe-core') };
    const found = await axe.run(document, { runOnly: rules, resultTypes: ['violations'] });
    return found.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id} ${target.join(' ')}: ${failureSummary}`),
    );
  }, RULES);
}
