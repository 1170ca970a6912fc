import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import openapi from '../../../docs/openapi-admin.json';

const SRC = join(import.meta.dirname, '..');

vi.stubGlobal('location', { pathname: '/', search: '', origin: 'http://127.0.0.1:8082' });
vi.stubGlobal('document', { documentElement: {} });

const { appPath, match, policyPath } = await import('./router.svelte.ts');
const { curl, quote, visible } = await import('./text.ts');
const { need, preferred, relative, t } = await import('./i18n/index.svelte.ts');
const { beginSession, unwrap, whenSignedOut } = await import('./api.ts');
const { Loaded } = await import('./loaded.svelte.ts');
const { poll } = await import('./poll.ts');

describe('answers that come late', () => {
  /** A promise, and what ends it. */
  function later<T>() {
    let end: (value: T) => void = () => {};
    return { answer: new Promise<T>((done) => (end = done)), end: (value: T) => end(value) };
  }

  test('a request from before a sign-in does not end the new session', async () => {
    const ended = vi.fn();
    whenSignedOut(ended);
    const denied = () => ({ error: {}, response: new Response(null, { status: 401 }) });
    const { answer, end } = later<ReturnType<typeof denied>>();
    const early = unwrap(answer);
    beginSession();
    end(denied());
    await expect(early).rejects.toThrow();
    expect(ended).not.toHaveBeenCalled();
    await expect(unwrap(Promise.resolve(denied()))).rejects.toThrow();
    expect(ended).toHaveBeenCalledOnce();
  });

  test('the answer to a change stays when a reading from before it ends', async () => {
    const app = new Loaded<string>();
    const { answer, end } = later<string>();
    const reading = app.load(() => answer);
    app.set('after');
    end('before');
    await reading;
    expect(app.value).toBe('after');
  });

  test('a server that takes longer than the interval is asked again once it has answered, or after half a minute', async () => {
    vi.useFakeTimers();
    try {
      vi.stubGlobal('document', { hidden: false, addEventListener: () => {}, removeEventListener: () => {} });
      const shown = new Loaded<number>();
      let asked = 0;
      const slow = (ms: number) => () => shown.load(() => new Promise((answer) => setTimeout(answer, ms, ++asked)));
      const stop = poll(5_000, slow(7_000));
      await vi.advanceTimersByTimeAsync(21_000);
      expect([asked, shown.value]).toEqual([3, 2]);
      stop();
      const stopLost = poll(5_000, slow(3_600_000));
      await vi.advanceTimersByTimeAsync(31_000);
      expect(asked).toBe(5);
      stopLost();
    } finally {
      vi.useRealTimers();
      vi.stubGlobal('document', { documentElement: {} });
    }
  });

  test('a page is not shown before its messages, also if another page asked for them', async () => {
    const first = need('policy');
    await need('policy');
    expect(t('policy.edit')).toBe('Edit');
    await first;
  });
});

describe('addresses', () => {
  test('each path of a name leads back to the name', () => {
    for (const name of [
      'shop',
      'orders.create',
      'a-b_c',
      'new',
      'deleted',
      'members',
      'code',
      '.',
      '..',
      'edit',
      'versions',
    ]) {
      expect(match(appPath(name))).toEqual({ page: 'app', params: { app: name, tab: 'policies' } });
      expect(match(policyPath('shop', name)), name).toEqual({ page: 'policy', params: { app: 'shop', policy: name } });
      expect(match(policyPath(name, name, 'edit'))).toEqual({
        page: 'policy-edit',
        params: { app: name, policy: name },
      });
    }
  });

  test('what is no page is missing', () => {
    for (const path of [
      '/nowhere',
      '/audit/1',
      '/apps/a/b/c',
      '/apps/a/b/edit/d',
      '/apps/a%E2%80%AEb',
      '/apps/a/%00',
    ]) {
      expect(match(path).page, path).toBe('missing');
    }
  });
});

describe('text of others', () => {
  test('characters that cannot be seen are written out', () => {
    expect(visible('a\u202eb\u0000c\u200bd')).toBe('a\\u{202e}b\\u{0}c\\u{200b}d');
    expect(visible('双十一 – ok')).toBe('双十一 – ok');
  });

  test('a word of the shell stays one word', () => {
    expect(quote('orders.create')).toBe('orders.create');
    expect(quote('$(reboot)')).toBe(`'$(reboot)'`);
    expect(quote(`it's`)).toBe(`'it'\\''s'`);
    expect(curl('POST', '/v1/x', { a: `'; reboot` })).toContain(`'{"a":"'\\''; reboot"}'`);
  });
});

test('each curl line with a token asks what tokens may ask', () => {
  const sources = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.svelte'))
    .map((name) => readFileSync(join(SRC, name), 'utf8'));
  const lines = sources.flatMap((text) => [...text.matchAll(/\bcurl\('(\w+)', (?:`([^`]+)`|(\w+))/g)]);
  expect(lines.length).toBeGreaterThan(3);
  for (const [, method = '', template, named] of lines) {
    // A name is that of the list of policies.
    const path = (template ?? `/v1/admin/apps/\${app}/policies`).replaceAll('${', '{');
    expect(named === undefined || named === 'path', named).toBe(true);
    const { security } = (openapi.paths as Record<string, Record<string, { security: object[] }>>)[path]![
      method.toLowerCase()
    ]!;
    expect(security, `${method} ${path}`).toContainEqual({ token: [] });
  }
});

test('the language is the first one that there is', () => {
  expect(preferred(['de-DE', 'zh-TW', 'en'])).toBe('zh');
  expect(preferred(['fr'])).toBe('en');
  expect(preferred([])).toBe('en');
});

describe('clocks that differ', () => {
  const now = 1_800_000_000_000;
  const minute = 60_000;

  test('what has happened is never in the future', () => {
    expect(relative(now - 5 * minute, false, now)).toBe('5 min ago');
    expect(relative(now + 5 * minute, false, now)).toBe('now');
    expect(relative(now + 59_000, true, now), 'an end that is near').toBe('now');
    expect(relative(now + 5 * minute, true, now)).toBe('in 5 min');
  });
});
