import js from '@eslint/js';
import { defineConfig } from 'eslint/config';
import svelte from 'eslint-plugin-svelte';
import globals from 'globals';
import ts from 'typescript-eslint';
import svelteConfig from './svelte.config.js';

export default defineConfig(
  { ignores: ['dist/', 'test-results/', 'src/lib/api-types.d.ts'] },
  js.configs.recommended,
  ts.configs.recommended,
  svelte.configs.recommended,
  {
    languageOptions: { globals: { ...globals.browser, ...globals.node } },
    rules: {
      // TypeScript finds them, and types that are global.
      'no-undef': 'off',
      // Control characters are what these expressions look for.
      'no-control-regex': 'off',
      // `{' '}` is a space that stays when the lines around it are broken.
      'svelte/no-useless-mustaches': 'off',
      // State is what `$state` says; other maps and sets live within one call.
      'svelte/prefer-svelte-reactivity': 'off',
      // A place that must be passed over begins with `_`.
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', destructuredArrayIgnorePattern: '^_' },
      ],
    },
  },
  {
    files: ['tests/**'],
    rules: {
      // Answers and rows are compared as they come.
      '@typescript-eslint/no-explicit-any': 'off',
      // A fixture of Playwright that needs no other has an empty pattern.
      'no-empty-pattern': 'off',
    },
  },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, svelteConfig } },
  },
);
