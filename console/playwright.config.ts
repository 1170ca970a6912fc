import { defineConfig } from '@playwright/test';
import { CHROMIUM, SLOW } from './tests/harness.ts';

export default defineConfig({
  testDir: 'tests',
  testMatch: '*.spec.ts',
  outputDir: 'test-results',
  timeout: SLOW === undefined ? 30_000 : 120_000,
  expect: { timeout: SLOW === undefined ? 5_000 : 20_000 },
  workers: 1,
  fullyParallel: false,
  forbidOnly: process.env.CI === 'true',
  reporter: [['./tests/reporter.ts']],
  use: {
    browserName: 'chromium',
    locale: 'en-GB',
    timezoneId: 'UTC',
    viewport: { width: 1280, height: 800 },
    permissions: ['clipboard-read', 'clipboard-write'],
    screenshot: 'only-on-failure',
    launchOptions: { executablePath: CHROMIUM, args: ['--no-sandbox'] },
  },
});
