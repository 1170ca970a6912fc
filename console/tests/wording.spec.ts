import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { enter, expect, settled, test, type Server } from './harness.ts';
import { startWorld } from './world.ts';

let world: Server;
test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

/** Longer words of other languages: by this part more than English. */
const LONGER = 0.4;
const PAGES = [
  '/apps/demo',
  '/apps/demo/orders.create',
  '/apps/demo/orders.create/edit',
  '/keys?app=demo&policy=login&key=kim',
  '/settings',
];

/** The messages of a file, each with its own words repeated until it is long enough. */
function lengthened(name: string): Record<string, string> {
  const messages: Record<string, string> = JSON.parse(readFileSync(`src/lib/i18n/${name}.json`, 'utf8'));
  const longer = (text: string) => {
    const words = text
      .replace(/\{\w+\}/g, '')
      .split(/\s+/)
      .filter(Boolean);
    let more = '';
    for (let at = 0; words.length > 0 && more.length < text.length * LONGER; at += 1)
      more += ` ${words[at % words.length]}`;
    return text + more;
  };
  return Object.fromEntries(Object.entries(messages).map(([key, text]) => [key, longer(text)]));
}

/** Buttons, tabs and headings whose text does not fit. */
async function clipped(page: Page): Promise<string[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>('button, .button, nav a, h1, h2, h3')]
      // A shortened name ends in dots on purpose; an unseen element has no width.
      .filter((element) => element.clientWidth > 1 && getComputedStyle(element).textOverflow !== 'ellipsis')
      .filter((element) => element.scrollWidth > element.clientWidth + 1)
      .map(
        (element) =>
          `${element.tagName} ${element.innerText.slice(0, 60)}: ${element.scrollWidth} > ${element.clientWidth}`,
      ),
  );
}

test('words that are longer by two fifths have a place', async ({ context, page }) => {
  for (const name of ['en', 'policy.en']) {
    const body = `export default ${JSON.stringify(lengthened(name))}`;
    await context.route(`**/assets/${name}.js`, (route) => route.fulfill({ contentType: 'text/javascript', body }));
  }
  await enter(context, world, 'bea');
  for (const path of PAGES) {
    await page.goto(world.url + path);
    await settled(page);
    await expect(
      page.getByRole('link', { name: 'Overview Overview' }).first(),
      'the messages are the long ones',
    ).toBeAttached();
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      // What depends on the size of a part is set a moment after the window has another size.
      await expect
        .poll(() => page.evaluate(() => document.documentElement.scrollWidth), `${path} at ${width} px`)
        .toBeLessThanOrEqual(width);
      await expect.poll(() => clipped(page), `${path} at ${width} px`).toEqual([]);
    }
  }
});
