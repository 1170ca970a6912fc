import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';

/** The most that a browser loads in its language, compressed as the server sends it, in bytes. */
const FIRST_VIEW_MAX = 61_000;
const WITH_CHART_MAX = 100_000;
const ALL_MAX = 300_000;

/** The messages of the languages; a browser loads those of one. */
const MESSAGES = /^(?:\w+\.)?(en|zh)\.js$/;

const ASSETS = join(process.env.CONSOLE_DIST ?? 'dist', 'assets');
const isBuilt = existsSync(join(ASSETS, 'index.js'));

test.skipIf(!isBuilt)('the console is within its budget', () => {
  const first = size(['index.js', 'style.css', 'en.js', 'Overview.js']);
  const withChart = size(['index.js', 'style.css', 'en.js', 'Policy.js']);
  const all = Math.max(...['en', 'zh'].map((language) => size(allIn(language))));
  console.log(`gzip: first view ${kb(first)}, with chart ${kb(withChart)}, all ${kb(all)}`);
  expect(first).toBeLessThanOrEqual(FIRST_VIEW_MAX);
  expect(withChart).toBeLessThanOrEqual(WITH_CHART_MAX);
  expect(all).toBeLessThanOrEqual(ALL_MAX);
});

function allIn(language: string): string[] {
  return readdirSync(ASSETS).filter((name) => [undefined, language].includes(MESSAGES.exec(name)?.[1]));
}

/** Returns the compressed size of these files and of all that they import at once. */
function size(names: string[]): number {
  const files = new Set<string>();
  const add = (name: string) => {
    const path = join(ASSETS, name);
    if (files.has(name) || !existsSync(path)) return;
    files.add(name);
    if (!name.endsWith('.js')) return;
    const text = readFileSync(path, 'utf8');
    for (const [, imported] of text.matchAll(/(?:from|import)\s*["']\.\/([^"']+)["']/g)) add(imported!);
  };
  names.forEach(add);
  return [...files].reduce((sum, name) => sum + gzipSync(readFileSync(join(ASSETS, name)), { level: 9 }).length, 0);
}

const kb = (bytes: number) => `${(bytes / 1000).toFixed(1)} kB`;
