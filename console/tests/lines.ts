import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';

/**
 * The look of a page, as text: where each heading, control and picture is, its size, font and colours. A change shows
 * as the lines that differ. Pictures would change with every release of the browser and of its fonts; these lines do
 * not, and a difference of some pixels does not count.
 *
 * `LINES=write npx playwright test look` writes the lines anew: read the difference before you keep it.
 */
const FOLDER = join(import.meta.dirname, 'lines');
const WRITES = process.env.LINES === 'write';
const PIXELS = 3;

/** Views whose lines are kept: one of each kind, none with numbers of its own. */
const NAMES = [
  'setup',
  'sign-in',
  'overview-new',
  'app',
  'members',
  'tokens-new',
  'accounts',
  'settings',
  'policy',
  'policy-edit',
  'policy-versions',
  'keys-found',
  'import-previewed',
  'palette',
];

export const hasLines = (view: string): boolean => NAMES.includes(view);

/** The first differences from the lines that are kept for this view. */
export function changed(view: string, language: string, found: string[]): string[] {
  const file = join(FOLDER, `${view}-${language}.txt`);
  if (WRITES) {
    mkdirSync(FOLDER, { recursive: true });
    writeFileSync(file, `${found.join('\n')}\n`);
  }
  const kept = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
  return difference(kept, found);
}

/** A line for each part of the page that can be seen, in its order. */
export function lines(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    // Text that depends on the time and the machine of the test has one width.
    for (const time of document.querySelectorAll('time')) time.textContent = '00:00';
    // The scroll position of a row of tabs depends on the time at which it is read.
    for (const part of document.querySelectorAll('nav, [role=tablist]')) part.scrollLeft = 0;
    for (const chart of document.querySelectorAll<HTMLElement>('.chart')) {
      chart.style.height = '320px';
      chart.style.overflow = 'hidden';
    }
    const hex = (color: string) => {
      const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g)?.map(Number) ?? [];
      const part = (value = 0) => Math.round(value).toString(16).padStart(2, '0');
      return color.startsWith('rgb') && alpha > 0 ? `#${part(red)}${part(green)}${part(blue)}` : '-';
    };
    const parts =
      'h1, h2, h3, a, button, input, select, textarea, th, td, meter, svg[role=img], dialog, aside, nav, section, .card';
    let above = 0;
    return [...document.querySelectorAll(parts)].flatMap((element) => {
      const { x, y, width, height } = element.getBoundingClientRect();
      if (
        !element.checkVisibility() ||
        width < 2 ||
        height < 2 ||
        element.closest('.unseen, [aria-hidden=true], .chart *')
      )
        return [];
      const { fontSize, fontWeight, color, backgroundColor } = getComputedStyle(element);
      const place = [x, y - above, width, height].map(Math.round);
      above = y;
      return [
        `${element.tagName.toLowerCase()} ${place.join(' ')} ${fontSize} ${fontWeight} ${hex(color)} ${hex(backgroundColor)}`,
      ];
    });
  });
}

/** Lines that are not there, are new, or differ by more than some pixels: the first of them. */
function difference(kept: string[], found: string[]): string[] {
  const changed: string[] = [];
  for (let line = 0; line < Math.max(kept.length, found.length) && changed.length < 8; line += 1) {
    const [before, after] = [kept[line], found[line]];
    if (before === undefined || after === undefined || !isAlike(before, after))
      changed.push(`${line + 1}: ${before} → ${after}`);
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
