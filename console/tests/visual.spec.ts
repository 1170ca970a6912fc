import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { enter, expect, startServer, test, type Server } from './harness.ts';
import { settled, VIEWS } from './pages.ts';
import { startWorld } from './world.ts';

/**
 * What pages look like, as text: where each heading, control and picture is, its size, font and colours. A change shows
 * as the lines that differ. Pictures would change with every release of the browser and of its fonts; these lines do
 * not, and a difference of some pixels is none.
 *
 * `VISUAL=write npx playwright test visual` writes the lines anew: read the difference before you keep it.
 */
const FOLDER = join(import.meta.dirname, 'visual');
const WRITES = process.env.VISUAL === 'write';
const SCREENS = process.env.SCREENS;
const PIXELS = 3;
const LOOKS = [['light', 1280], ['dark', 1280], ['light', 360], ['dark', 360]] as const;
const NAMES = [
  'setup', 'sign-in', 'overview-new', 'app', 'members', 'tokens-new', 'accounts', 'settings', 'policy', 'policy-edit',
  'policy-versions', 'keys-found', 'import-previewed', 'palette',
];
const views = VIEWS.filter(({ name }) => NAMES.includes(name));

let world: Server;
let fresh: Server;
test.beforeAll(async () => {
  [world, fresh] = await Promise.all([startWorld({ SLUICEGATE__CATALOG__NODE: 'node-1' }), startServer()]);
  mkdirSync(FOLDER, { recursive: true });
});
test.afterAll(async () => {
  await Promise.all([world?.stop(), fresh?.stop()]);
});

test('every view that has lines is a view', () => {
  expect(views.map(({ name }) => name).sort()).toEqual([...NAMES].sort());
});

for (const language of ['en', 'zh'] as const) {
  for (const view of views) {
    test(`${view.name} (${language}) looks as it did`, async ({ context, page }) => {
      const server = view.name === 'setup' ? fresh : world;
      await page.emulateMedia({ reducedMotion: 'reduce' });
      await context.addInitScript((value) => localStorage.setItem('sluicegate.language', value), language);
      if (view.as) await enter(context, server, view.as);
      await page.goto(server.url + view.path);
      await settled(page);
      await view.act?.(page);
      await page.waitForLoadState('networkidle');
      const found: string[] = [];
      for (const [theme, width] of LOOKS) {
        await page.setViewportSize({ width, height: 800 });
        await page.evaluate((value) => {
          document.documentElement.dataset.theme = value;
        }, theme);
        found.push(`# ${theme}, ${width} px`, ...(await lines(page)));
      }
      const file = join(FOLDER, `${view.name}-${language}.txt`);
      if (WRITES) writeFileSync(file, `${found.join('\n')}\n`);
      const kept = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
      const changed = difference(kept, found);
      if (changed.length > 0 && SCREENS) {
        mkdirSync(SCREENS, { recursive: true });
        await page.screenshot({ path: join(SCREENS, `changed-${view.name}-${language}.png`), fullPage: true });
      }
      expect(changed).toEqual([]);
    });
  }
}

/** A line for each part of the page that can be seen, in its order. */
function lines(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    // What depends on when and where it runs has one width.
    for (const time of document.querySelectorAll('time')) time.textContent = '00:00';
    for (const chart of document.querySelectorAll<HTMLElement>('.chart')) {
      chart.style.height = '320px';
      chart.style.overflow = 'hidden';
    }
    const hex = (color: string) => {
      const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g)?.map(Number) ?? [];
      const part = (value = 0) => Math.round(value).toString(16).padStart(2, '0');
      return color.startsWith('rgb') && alpha > 0 ? `#${part(red)}${part(green)}${part(blue)}` : '-';
    };
    const parts = 'h1, h2, h3, a, button, input, select, textarea, th, td, meter, svg[role=img], dialog, aside, nav, section, .card';
    let above = 0;
    return [...document.querySelectorAll(parts)].flatMap((element) => {
      const { x, y, width, height } = element.getBoundingClientRect();
      if (!element.checkVisibility() || width < 2 || height < 2 || element.closest('.unseen, [aria-hidden=true], .chart *')) return [];
      const { fontSize, fontWeight, color, backgroundColor } = getComputedStyle(element);
      const place = [x, y - above, width, height].map(Math.round);
      above = y;
      return [`${element.tagName.toLowerCase()} ${place.join(' ')} ${fontSize} ${fontWeight} ${hex(color)} ${hex(backgroundColor)}`];
    });
  });
}

/** Lines that are not there, are new, or differ by more than some pixels: the first of them. */
function difference(kept: string[], found: string[]): string[] {
  const changed: string[] = [];
  for (let line = 0; line < Math.max(kept.length, found.length) && changed.length < 8; line += 1) {
    const [before, after] = [kept[line], found[line]];
    if (before === undefined || after === undefined || !isAlike(before, after)) changed.push(`${line + 1}: ${before} → ${after}`);
  }
  return changed;
}

function isAlike(before: string, after: string): boolean {
  const [one, other] = [before.split(' '), after.split(' ')];
  return (
    one.length === other.length &&
    one.every((word, place) => {
      const isPixels = place >= 1 && place <= 4 && !before.startsWith('#');
      return isPixels ? Math.abs(Number(word) - Number(other[place])) <= PIXELS : word === other[place];
    })
  );
}
