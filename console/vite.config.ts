import { existsSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** The API of a server beside the development server; both are then one origin for the browser. */
const api = process.env.SLUICEGATE_ADMIN ?? 'http://127.0.0.1:8082';

/** Writes the licences of the libraries that the bundle contains to `LICENCES.txt`. */
function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_options, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== 'chunk') continue;
        for (const id of Object.keys(chunk.modules)) {
          const folder = packageFolder(id);
          if (folder) folders.add(folder);
        }
      }
      const texts = [...folders].map(licence).sort();
      this.emitFile({ type: 'asset', fileName: 'LICENCES.txt', source: texts.join('\n') });
    },
  };
}

/** Removes what an earlier build wrote; hidden files belong to git and to `scripts/console`. */
function emptyDist(): Plugin {
  let dist = '';
  return {
    name: 'empty-dist',
    apply: 'build',
    configResolved(config) {
      dist = resolve(config.root, config.build.outDir);
    },
    buildStart() {
      for (const entry of existsSync(dist) ? readdirSync(dist) : []) {
        if (!entry.startsWith('.')) rmSync(join(dist, entry), { recursive: true });
      }
    },
  };
}

function packageFolder(id: string): string | undefined {
  const path = id.replace(/^\0/, '').replace(/\?.*$/, '');
  if (!path.includes('/node_modules/')) return undefined;
  let folder = dirname(path);
  while (!existsSync(join(folder, 'package.json')) || !packageOf(folder).version) {
    folder = dirname(folder);
  }
  return folder;
}

function packageOf(folder: string): { name?: string; version?: string; license?: string } {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

function licence(folder: string): string {
  const { name, version, license } = packageOf(folder);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(join(folder, file), 'utf8') : '';
  return `${name} ${version} (${license})\n\n${text.trim()}\n\n${'-'.repeat(72)}\n`;
}

export default defineConfig({
  plugins: [svelte(), emptyDist(), licences()],
  server: { host: '127.0.0.1', proxy: { '/v1': { target: api } } },
  // Messages are looked up by name: an export for each would have their names twice.
  json: { namedExports: false },
  build: {
    emptyOutDir: false,
    // Names without hashes: the server sends an ETag for each file.
    target: ['chrome123', 'firefox128', 'safari17.5'],
    cssTarget: ['chrome123', 'firefox128', 'safari17.5'],
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        entryFileNames: 'assets/[name].js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name][extname]',
        codeSplitting: {
          groups: [
            { name: 'editor', test: /node_modules\/(@codemirror|@lezer|@marijn|crelt|style-mod|w3c-keyname)\// },
            { name: 'svelte', test: /node_modules\/(svelte|esm-env|clsx|openapi-fetch)\// },
            // Files that most pages need: one compresses better than thirty.
            { name: 'ui', test: /\/src\/lib\/(ui\/|[a-z.]+\.ts)/ },
            {
              name: 'policies',
              test: /\/src\/policy\/((?!editor)[a-z.]+\.ts|(Confirm|Differences|History|Warnings)\.svelte)/,
            },
          ],
        },
      },
    },
  },
  test: { testTimeout: 30_000, include: ['src/**/*.test.ts', 'tests/unit/**/*.test.ts'] },
});
