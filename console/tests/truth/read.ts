import type { Page } from '@playwright/test';

/** A sentence that a page shows, and its place. */
export interface Sentence {
  /** Times in it are `⟨milliseconds⟩`. */
  text: string;
  /** The label of the nearest section, table or list. */
  region: string;
  /** The first words of the row or list item that it is in. */
  row: string;
  /** The index of its row, from 0. */
  place: number;
  /** `text` of an element, or the name of an attribute that screen readers say. */
  kind: string;
}

/** A time in the words of a page, and its value. */
export interface Shown {
  words: string;
  ms: number;
  /** The time of reading, by the clock of the browser. */
  now: number;
}

export interface Reading {
  sentences: Sentence[];
  times: Shown[];
  /** The number of rows of each region. */
  rows: Record<string, number>;
}

/** Every sentence of a page: visible text, and the labels that screen readers say in its place. */
export function readPage(page: Page): Promise<Reading> {
  return page.evaluate(() => {
    const SAID = ['aria-label', 'aria-valuetext', 'title', 'alt'];
    const sentences: { text: string; region: string; row: string; place: number; kind: string }[] = [];
    const times: { words: string; ms: number; now: number }[] = [];
    const rows: Record<string, number> = {};
    const blocks = new Map<Element, string>();

    const label = (element: Element | null): string => {
      if (!element) return '';
      const by = element.getAttribute('aria-labelledby');
      return (by ? document.getElementById(by)?.textContent : element.getAttribute('aria-label')) ?? '';
    };
    const regionOf = (element: Element) =>
      label(
        element.closest(
          'table[aria-label], [aria-labelledby], ol[aria-label], ul[aria-label], section[aria-label], nav[aria-label], header, [role=alert], [role=dialog]',
        ),
      ).trim();
    const rowOf = (element: Element) => element.closest('tbody tr, li');
    const text = (element: Element) => (element as HTMLElement).innerText.replace(/\s+/g, ' ').trim();
    const nameOf = (row: Element | null) => (row ? text(row.matches('tr') ? row.querySelector('td, th')! : row) : '');
    const placeOf = (row: Element | null) => (row ? [...row.parentElement!.children].indexOf(row) : -1);
    const add = (element: Element, words: string, kind: string) => {
      const found = words.replace(/\s+/g, ' ').trim();
      const row = rowOf(element);
      if (found)
        sentences.push({ text: found, region: regionOf(element), row: nameOf(row), place: placeOf(row), kind });
    };
    const isSeen = (element: Element) =>
      element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) &&
      !element.closest('pre, code, textarea, script, style, option');
    const isInline = (element: Element) =>
      ['inline', 'contents'].includes(getComputedStyle(element).display) && element !== document.body;

    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement!;
      if (!isSeen(element)) continue;
      const time = element.closest('time');
      let words = node.textContent ?? '';
      if (time) {
        const ms = Date.parse(time.dateTime);
        if (words.trim()) times.push({ words: words.trim(), ms, now: Date.now() });
        words = words.trim() && `⟨${ms}⟩`;
      }
      let block = element;
      while (isInline(block)) block = block.parentElement!;
      blocks.set(block, `${blocks.get(block) ?? ''}${words}`);
    }
    for (const [block, words] of blocks) add(block, words, 'text');
    for (const name of SAID) {
      for (const element of document.body.querySelectorAll(`[${name}]`)) {
        // The labels of regions are read with them, and the title of a time is checked with it.
        if (!element.checkVisibility() || element.matches('time, table, nav, section, ol, ul')) continue;
        add(element, element.getAttribute(name)!, name);
      }
    }
    for (const list of document.querySelectorAll('tbody, ol, ul')) {
      if (!list.checkVisibility()) continue;
      const region = regionOf(list);
      rows[region] = (rows[region] ?? 0) + list.children.length;
    }
    return { sentences, times, rows };
  });
}
