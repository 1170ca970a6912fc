import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import en from '../lib/i18n/policy.en.json';
import zh from '../lib/i18n/policy.zh.json';
import { ALGORITHMS, ALGORITHM_NAMES, paramsOf } from './algorithms.ts';
import { carried } from './carry.ts';
import { describeDifference, differences } from './diff.ts';
import { arranged } from './document.ts';
import { appended, edited, moved, withAlgorithm, withRule, without } from './edit.ts';
import { holdsPermits, shortId, unlisted } from './held.ts';
import { type Json, type JsonObject, get, same } from './json.ts';
import { LEASES, LEASES_STARTS, leasesOf, neverLeased, tooSmall } from './leases.ts';
import { merge } from './merge.ts';
import { orderedAs } from './order.ts';
import { durationText, parseRate } from './units.ts';
import { type Translator, describeLimits } from './describe.ts';
import { printYaml } from './yaml.ts';
import { dialsOf, firstLine, stepped, turned } from './whatif.ts';

const ROOT = join(import.meta.dirname, '../../..');
const BINARY = process.env.SLUICEGATE_BIN;

function translatorIn(messages: Record<string, string>, locale: string): Translator {
  return {
    locale: () => locale,
    t(key, params = {}) {
      const plural = new Intl.PluralRules(locale).select(Number(params.count ?? 0));
      const text = messages[key] ?? messages[`${key}_${plural}`] ?? messages[`${key}_other`] ?? `no message ${key}`;
      return text.replace(/\{(\w+)\}/g, (_, name: string) => {
        const value = params[name];
        return typeof value === 'number' ? value.toLocaleString(locale) : String(value);
      });
    },
  };
}

const english = translatorIn(en, 'en-GB');
const chinese = translatorIn(zh, 'zh-CN');

const ORDERS: JsonObject = {
  name: 'orders.create',
  key: ['remote_ip'],
  rules: [
    { name: 'burst', token_bucket: { rate: '100/s', burst: 200 } },
    { name: 'hourly', sliding_window: { limit: 5000, window: '1h', buckets: 60 } },
  ],
  overrides: [{ key: '203.0.113.7', rules: [{ name: 'burst', token_bucket: { rate: '1000/s', burst: 2000 } }] }],
};

/** Documents of every kind: those of the vectors, and random ones. */
function vectorDocuments(): JsonObject[] {
  const folder = join(ROOT, 'spec/vectors');
  const folders = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return folders.flatMap(({ name: group }) =>
    readdirSync(join(folder, group)).map((file) => {
      const vector = JSON.parse(readFileSync(join(folder, group, file), 'utf8')) as { rules: VectorRule[] };
      return { name: `${group}.${file.replace(/\.json$/, '')}`, rules: vector.rules.map(fromVector) };
    }),
  );
}

interface VectorRule {
  name: string;
  algorithm: string;
  params: Record<string, Json>;
}

function fromVector({ name, algorithm, params }: VectorRule): Json {
  const entries = Object.entries(params).map(([field, value]): [string, Json] => {
    if (field === 'rate') {
      const rate = value as { permits: number; period_us: number };
      return [field, `${rate.permits}/${rate.period_us}us`];
    }
    return field.endsWith('_us') ? [field.slice(0, -3), durationText(value as number)] : [field, value];
  });
  return { name, [algorithm]: Object.fromEntries(entries) };
}

/** A small generator, so that a failure can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const AWKWARD = [
  '',
  ' ',
  'null',
  'NO',
  '~',
  '1e3',
  '0x10',
  '1_000',
  '12:30:45',
  '2026-11-24',
  '- a',
  'a: b',
  'a #b',
  '# a',
  '"',
  "'",
  '\\',
  '*',
  '&a',
  '!tag',
  '%',
  '@',
  '`',
  '{',
  '[',
  '>',
  '|',
  '.',
  '..',
  '...',
  '---',
  '1/s',
  '.inf',
  '=',
  '<<',
  'é',
  '双十一',
  '\u0000',
  '\u007f',
  '\u0085',
  '\u2028',
  '\ufeff',
  '\u202e',
  '😀',
  'a\nb',
  'a\tb',
  'tail ',
  ' head',
  'y',
  '?',
  'a:',
  ':a',
  'x'.repeat(200),
];

function randomDocument(next: (below: number) => number, name: string): JsonObject {
  const pick = <T>(from: readonly T[]): T => from[next(from.length)]!;
  const texts = (most: number) => [
    ...new Set(Array.from({ length: 1 + next(most) }, () => pick(AWKWARD) + pick(AWKWARD))),
  ];
  const rules = (): Json[] => [
    {
      name: pick(['a', 'no', 'null', '1.5', '0x1f', '-', '.', '1e3', 'y']),
      token_bucket: { rate: pick(['1/s', '64KiB/s', '5/200ms', '2.5/s', '60r/m']), burst: 1 + next(1000) },
    },
    { name: 'other', sliding_log: { limit: 1 + next(100), window: pick(['1s', '10m', '1d']) } },
  ];
  const printable = (text: string) => text.replace(/\p{Cc}/gu, '') || 'x';
  const document: JsonObject = { name, rules: rules() };
  if (next(2))
    document.overrides = texts(6)
      .filter(Boolean)
      .map((key) => ({ key, rules: rules() }));
  if (next(2)) document.key = pick([['remote_ip'], ['header:X-Tenant', 'path'], ['user_agent', 'host']]);
  if (next(2)) document.match = { path: { prefix: `/${printable(pick(AWKWARD)).replace(/[?#]/g, '')}` } };
  if (next(2)) document.on_overload = pick<Json>(['refuse', { wait: '1s' }]);
  if (next(2)) {
    const headers = { 'x-note': printable(pick(AWKWARD)).replace(/[^\x20-\x7e]/g, '') || 'x' };
    document.overflow = pick<Json>([
      'shadow',
      { queue: { max_wait: '500ms' } },
      { degrade: { response: { status: 503, body: pick(AWKWARD), headers } } },
      { divert: { target: printable(pick(AWKWARD)) } },
    ]);
  }
  const bounds: Json[] =
    neverLeased(document, english) === undefined ? [{}, { max_share: '50%' }, { term: '250ms', max_share: '1%' }] : [];
  if (next(2)) document.leases = pick<Json>(['auto', 'off', ...bounds]);
  return document;
}

describe('words', () => {
  test('say what a limit is in both languages', () => {
    expect(describeLimits(ORDERS, english)).toBe('100/s, up to 200 at once · 5,000 in any hour');
    expect(describeLimits(ORDERS, chinese)).toBe('每秒 100，突发最多 200 · 任意 1 小时内最多 5,000 次');
  });

  test.each([
    [{ token_bucket: { rate: '10/min' } }, '10/min'],
    [{ token_bucket: { rate: '5/200ms' } }, '5 per 200 ms'],
    [{ token_bucket: { rate: '64KiB/s' } }, '64 KiB/s'],
    [{ token_bucket: { rate: '2.5/s', burst: 3 } }, '2.5/s, up to 3 at once'],
    [{ leaky_bucket: { rate: '0.001/s' } }, '0.001/s, evenly spaced'],
    [{ leaky_bucket: { rate: '60r/m' } }, '60/min, evenly spaced'],
    [{ leaky_bucket: { rate: '100/s', burst: 5 } }, '100/s, evenly spaced, 5 more wait'],
    [{ fixed_window: { limit: 5000, calendar: 'day', time_zone: 'Europe/Berlin' } }, '5,000 each day (Europe/Berlin)'],
    [{ sliding_log: { limit: 5, window: '10m' } }, '5 in any 10 min'],
    [{ sliding_counter: { limit: 5, window: '60s' } }, 'about 5 in any minute'],
    [{ concurrency: { limit: 2, ttl: '30s' } }, '2 at a time'],
    [{ token_bucket: { rate: 'soon' } }, 'soon, up to ? at once'],
  ])('%j is %s', (rule: Json, words) => {
    expect(describeLimits({ rules: [rule] }, english)).toBe(words);
  });

  test('have a message for every algorithm', () => {
    for (const document of vectorDocuments()) {
      for (const translator of [english, chinese]) {
        expect(describeLimits(document, translator)).not.toMatch(/no message|\{|undefined|–/);
      }
    }
  });
});

describe('edits', () => {
  test('keep unknown fields and the order of fields', () => {
    const document = {
      zeta: [1, { x: null }],
      rules: [{ token_bucket: { burst: 5, new_field: 'kept', rate: '1/s' } }],
      name: 'p',
      alpha: {},
    };
    const next = edited(document, ['rules', 0, 'token_bucket', 'rate'], '2/s');
    expect(JSON.stringify(next)).toBe(JSON.stringify(document).replace('1/s', '2/s'));
  });

  test('there and back give the same document, whatever the field', () => {
    for (const document of vectorDocuments()) {
      const rules = document.rules as JsonObject[];
      rules.forEach((rule, index) => {
        const algorithm = ALGORITHM_NAMES.find((name) => name in rule)!;
        for (const { name } of paramsOf(algorithm)) {
          const path = ['rules', index, algorithm, name];
          const was = (rule[algorithm] as JsonObject)[name];
          expect(same(edited(edited(document, path, 'other'), path, was), document)).toBe(true);
        }
      });
    }
  });

  test('put a new field where people expect it', () => {
    const next = edited(ORDERS, ['match', 'path'], { prefix: '/orders' }) as JsonObject;
    expect(Object.keys(next)).toEqual(['name', 'match', 'key', 'rules', 'overrides']);
  });

  test('name the rule that was alone when a second one comes', () => {
    const next = withRule({ name: 'p', rules: [{ sliding_log: { limit: 5, window: '1m' } }] }, ['rules']) as JsonObject;
    expect(next.rules).toMatchObject([{ name: 'sliding_log' }, { name: 'limit' }]);
  });

  test('remove a list with its last item, and move rules', () => {
    expect(without({ name: 'p', key: ['path'] }, ['key', 0])).toEqual({ name: 'p' });
    expect(appended({ name: 'p' }, ['key'], 'path')).toEqual({ name: 'p', key: ['path'] });
    const swapped = moved(ORDERS, ['rules'], 1, -1) as JsonObject;
    expect((swapped.rules as JsonObject[]).map((rule) => rule.name)).toEqual(['hourly', 'burst']);
  });

  test('change the algorithm and keep what both have', () => {
    const rule = { name: 'a', token_bucket: { rate: '5/200ms', burst: 9 }, note: 1 };
    expect(withAlgorithm(rule, 'leaky_bucket')).toEqual({
      name: 'a',
      leaky_bucket: { rate: '5/200ms', burst: 9 },
      note: 1,
    });
    expect(withAlgorithm(rule, 'sliding_log')).toEqual({
      name: 'a',
      sliding_log: { limit: 9, window: '200ms' },
      note: 1,
    });
    const back = withAlgorithm({ sliding_log: { limit: 5, window: '1h' } }, 'token_bucket');
    expect(parseRate((back.token_bucket as JsonObject).rate)).toMatchObject({ permits: 5, periodUs: 3.6e9 });
  });
});

describe('differences', () => {
  const words = (before: Json, after: Json) =>
    differences(before, after).map((one) => describeDifference(one, english));

  test('are two lines, not two hundred', () => {
    const after = edited(
      edited(ORDERS, ['rules', 0, 'token_bucket', 'rate'], '150/s'),
      ['rules', 0, 'token_bucket', 'burst'],
      400,
    );
    expect(words(ORDERS, after)).toEqual([
      'rule burst · Rate: 100/s → 150/s',
      'rule burst · Burst (at once): 200 → 400',
    ]);
    const overrides = Array.from({ length: 200 }, (_, n) => ({ key: `k${n}`, rules: ORDERS.rules! }));
    expect(words(ORDERS, { ...ORDERS, overrides })).toEqual(
      ['own limits for 200 keys added', 'key 203.0.113.7 removed: 1000/s'].map((line) =>
        line.replace('1000/s', '1,000/s, up to 2,000 at once'),
      ),
    );
  });

  test('know rules by their names, not by their places', () => {
    const first = { name: 'daily', fixed_window: { limit: 9, calendar: 'day' } };
    const after = { ...ORDERS, rules: [first, ...(ORDERS.rules as Json[])] };
    expect(words(ORDERS, after)).toEqual(['rule daily added: 9 each day (UTC)']);
  });

  test('are none where the meaning is the same', () => {
    const a = { name: 'p', apps: ['a', 'b'], rules: [{ token_bucket: { rate: '60/m' } }] };
    const b = {
      carry: 'usage',
      overflow: 'reject',
      rules: [{ name: 'token_bucket', token_bucket: { rate: '60/60s' } }],
      apps: ['b', 'a'],
      name: 'p',
    };
    expect(words(a, b)).toEqual([]);
    expect(words(ORDERS, arranged(ORDERS))).toEqual([]);
  });

  test('are found in every field', () => {
    expect(
      words(ORDERS, { ...ORDERS, key: ['remote_ip', 'path'], carry: 'reset', match: { method: ['GET'] } }),
    ).toEqual(['key: remote_ip → remote_ip, path', 'carry: usage → reset', 'requests added: { method: [GET] }']);
    expect(words(ORDERS, moved(ORDERS, ['rules'], 0, 1))).toEqual(['rules: burst, hourly → hourly, burst']);
  });
});

describe('carry', () => {
  test('is three numbers', () => {
    const after = edited(ORDERS, ['rules', 0, 'token_bucket', 'burst'], 400);
    expect(carried(ORDERS, after)).toEqual([
      { rule: 'burst', used: 180, before: 200, after: 400, left: { usage: 220, proportional: 40, reset: 400 } },
    ]);
    expect(carried(ORDERS, edited(ORDERS, ['rules', 0, 'token_bucket', 'rate'], '1/s'))).toEqual([]);
  });

  test('never leaves less than nothing', () => {
    const [only] = carried(ORDERS, edited(ORDERS, ['rules', 0, 'token_bucket', 'burst'], 7));
    expect(only!.left).toEqual({ usage: 0, proportional: 0, reset: 7 });
  });
});

describe('merge', () => {
  const rate = (value: string) => edited(ORDERS, ['rules', 0, 'token_bucket', 'rate'], value);

  test('keeps what both changed in different places', () => {
    const theirs = withRule(edited(ORDERS, ['rules', 0, 'token_bucket', 'burst'], 300), ['rules']);
    const { document, conflicts } = merge(ORDERS, theirs, moved(rate('150/s'), ['rules'], 0, 1));
    expect(conflicts).toEqual([]);
    expect((document as JsonObject).rules).toMatchObject([
      { name: 'burst', token_bucket: { rate: '150/s', burst: 300 } },
      { name: 'hourly' },
      { name: 'limit' },
    ]);
  });

  test('takes mine where both changed the same, and says so', () => {
    const { document, conflicts } = merge(ORDERS, rate('1/s'), rate('2/s'));
    expect(document).toEqual(rate('2/s'));
    expect(conflicts).toEqual([{ rule: 'burst', field: 'rate' }]);
  });

  test('removes what one removed and the other left alone', () => {
    const theirs = without(ORDERS, ['overrides', 0]);
    expect(merge(ORDERS, theirs, rate('2/s')).document).toEqual(without(rate('2/s'), ['overrides', 0]));
  });
});

describe('the order of fields in a text', () => {
  test.each([
    [
      'rules:\n  - token_bucket: { burst: 200, rate: 100/s }\n    name: burst\nname: orders',
      ['rules', 'name'],
      ['token_bucket', 'name'],
      ['burst', 'rate'],
    ],
    [
      'name: a # rules: none\nrules: [{ name: x, token_bucket: { rate: 1/s, burst: 2 } }]',
      ['name', 'rules'],
      ['name', 'token_bucket'],
      ['rate', 'burst'],
    ],
    [
      'name: "rules: x"\nrules:\n- {token_bucket: {burst: 2,\n    rate: 1/s}, name: n}',
      ['name', 'rules'],
      ['token_bucket', 'name'],
      ['burst', 'rate'],
    ],
  ])('%j', (text, fields, ofRule, params) => {
    const sorted = { name: 'n', rules: [{ name: 'x', token_bucket: { burst: 2, rate: '1/s' } }] };
    const ordered = orderedAs(text, sorted) as { rules: [{ token_bucket: JsonObject }] };
    expect(same(ordered as Json, sorted)).toBe(true);
    expect(Object.keys(ordered)).toEqual(fields);
    expect(Object.keys(ordered.rules[0])).toEqual(ofRule);
    expect(Object.keys(ordered.rules[0].token_bucket)).toEqual(params);
  });

  test('is found again in what was printed', () => {
    const printed = printYaml(arranged(ORDERS));
    const sortAll = (value: Json): Json => {
      if (Array.isArray(value)) return value.map(sortAll);
      if (typeof value !== 'object' || value === null) return value;
      return Object.fromEntries(
        Object.keys(value)
          .sort()
          .map((name) => [name, sortAll(value[name]!)]),
      );
    };
    expect(printYaml(orderedAs(printed, sortAll(ORDERS)))).toBe(printed);
  });
});

describe('YAML', () => {
  test('reads like what people write', () => {
    expect(printYaml(arranged(ORDERS))).toBe(`name: orders.create
key: [remote_ip]
rules:
  - name: burst
    token_bucket: { rate: 100/s, burst: 200 }
  - name: hourly
    sliding_window: { limit: 5000, window: 1h, buckets: 60 }
overrides:
  - key: "203.0.113.7"
    rules:
      - name: burst
        token_bucket: { rate: 1000/s, burst: 2000 }
`);
  });

  // tests/policy.spec.ts compares it with the document of the server.
  test.skipIf(!BINARY)('can be read by the server', () => {
    const next = random(20_261_124);
    const policies = [
      ORDERS,
      ...vectorDocuments(),
      ...Array.from({ length: 300 }, (_, n) => randomDocument(next, `random-${n}`)),
    ];
    const check = { input: printYaml({ policies }), stdio: 'pipe' } as const;
    expect(() => execFileSync(BINARY!, ['policies', 'check', '-'], check)).not.toThrow();
  });
});

describe('the table of algorithms', () => {
  test.skipIf(!BINARY)('is that of the schema', () => {
    const schema = JSON.parse(execFileSync(BINARY!, ['policies', 'schema']).toString());
    const { name: _, ...algorithms } = schema.$defs.rule.properties as Record<string, JsonObject>;
    expect(Object.keys(ALGORITHMS).sort()).toEqual(Object.keys(algorithms).sort());
    for (const algorithm of ALGORITHM_NAMES) {
      const { properties, required } = algorithms[algorithm] as {
        properties: Record<string, JsonObject>;
        required: string[];
      };
      const params = paramsOf(algorithm);
      expect(params.map((param) => param.name).sort()).toEqual(Object.keys(properties).sort());
      expect(
        params
          .filter((param) => param.required)
          .map((param) => param.name)
          .sort(),
      ).toEqual([...required].sort());
      for (const { name, kind } of params) {
        const of = properties[name]!;
        if (kind.type === 'permits') expect(of).toMatchObject({ minimum: kind.min, maximum: kind.max });
        if (kind.type === 'word') expect(of.enum).toEqual(kind.words);
      }
    }
  });
});

describe('leases', () => {
  const policy = (rule: Json, more: object = {}): Json => ({ name: 'p', rules: [rule], ...more });
  const concurrency = { name: 'slots', concurrency: { limit: 5, ttl: '1s' } };

  test.each<[Json, string, string]>([
    [
      policy(concurrency),
      'Never leased: any node can release the permits of rule slots.',
      '从不租用：规则 slots 的许可可由任意节点释放。',
    ],
    [
      policy({ smooth_bursty: { rate: '5/s' } }),
      'Never leased: rule smooth_bursty books permits in advance.',
      '从不租用：规则 smooth_bursty 会预占许可。',
    ],
    [
      policy({ leaky_bucket: { rate: '5/s' } }),
      'Never leased: the delay of rule leaky_bucket is not “none”.',
      '从不租用：规则 leaky_bucket 的延迟方式不是“none”。',
    ],
    [
      policy({ sliding_log: { limit: 5, window: '9999ms' } }),
      'Never leased: the window of rule sliding_log is shorter than 10 s.',
      '从不租用：规则 sliding_log 的窗口短于 10 秒。',
    ],
    [
      policy({ fixed_window: { limit: 5, window: '999ms' } }),
      'Never leased: the window of rule fixed_window is shorter than 1 s.',
      '从不租用：规则 fixed_window 的窗口短于 1 秒。',
    ],
    [
      policy({ token_bucket: { rate: '5/s' } }, { overrides: [{ key: 'acme', rules: [concurrency] }] }),
      'Never leased: any node can release the permits of key acme · rule slots.',
      '从不租用：键 acme · 规则 slots 的许可可由任意节点释放。',
    ],
    [
      policy({ token_bucket: { rate: '5/s' } }, { overflow: { queue: { max_wait: '1s' } } }),
      'Never leased: requests that wait book permits in advance.',
      '从不租用：排队的请求会预占许可。',
    ],
  ])('%j is never leased', (document, words, wordsZh) => {
    expect(neverLeased(document, english)).toBe(words);
    expect(neverLeased(document, chinese)).toBe(wordsZh);
  });

  test.each<[Json, string | undefined]>([
    [policy({ token_bucket: { rate: '160/s' } }), undefined],
    [policy({ token_bucket: { rate: '1000/s', burst: 159 } }), 'Not leased: the limit 159 is below 160.'],
    [
      policy({ token_bucket: { rate: '79/s' } }, { leases: { max_share: '10%' } }),
      'Not leased: the limit 79 is below 80.',
    ],
    [policy({ token_bucket: { rate: '16/s' } }, { leases: { max_share: '50%' } }), undefined],
    [
      policy({ token_bucket: { rate: '266/s' } }, { leases: { max_share: '3%' } }),
      'Not leased: the limit 266 is below 267.',
    ],
    [policy({ token_bucket: { rate: '1/s' } }, { leases: { max_share: 'all' } }), undefined],
    [policy({ token_bucket: { rate: 'soon' } }), undefined],
  ])('whether the limit of %j is too small', (document, words) => {
    expect(tooSmall(document, english)).toBe(words);
  });

  test('each choice there and back gives the same document, with its fields in the same order', () => {
    const next = random(20_261_125);
    for (let count = 0; count < 300; count += 1) {
      const document = randomDocument(next, 'p');
      const was = document.leases;
      for (const choice of LEASES) {
        const chosen = edited(document, ['leases'], LEASES_STARTS[choice]);
        expect(leasesOf(chosen)).toBe(choice);
        expect(without(chosen, ['leases'])).toEqual(without(document, ['leases']));
        if (was !== undefined && choice === 'auto') continue;
        expect(JSON.stringify(edited(chosen, ['leases'], was))).toBe(JSON.stringify(document));
      }
      for (const [bound, other] of [
        ['max_share', 'term'],
        ['term', 'max_share'],
      ]) {
        const within = edited(document, ['leases'], { max_share: '7%', term: '1s' });
        const emptied = edited(within, ['leases', bound!], undefined);
        expect(Object.keys(get(emptied, ['leases'])!)).toEqual([other]);
        const bounds = get(within, ['leases', bound!]);
        expect(JSON.stringify(edited(emptied, ['leases', bound!], bounds))).toBe(JSON.stringify(within));
        expect(leasesOf(edited(emptied, ['leases', other!], undefined))).toBe('within');
      }
    }
  });

  test.skipIf(!BINARY)('bounds are offered exactly where the server takes them', () => {
    const next = random(20_261_126);
    const several = Array.from({ length: 300 }, (_, n) => randomDocument(next, `random-${n}`));
    const policies = [...vectorDocuments(), ...several].map((document) => ({ ...document, leases: {} }));
    // A check names at most a hundred errors.
    const refused = new Set<JsonObject>();
    for (let start = 0; start < policies.length; start += 100) {
      const some = policies.slice(start, start + 100);
      const { stdout, stderr } = spawnSync(BINARY!, ['policies', 'check', '-'], {
        input: printYaml({ policies: some }),
      });
      const found = `${stdout}${stderr}`.matchAll(/policies\[(\d+)\] \(.*\)\.leases: /g);
      for (const [, place] of found) refused.add(some[Number(place)]!);
    }
    expect(refused.size).toBeGreaterThan(100);
    expect(policies.length - refused.size).toBeGreaterThan(100);
    const wrong = policies.filter(
      (document) => refused.has(document) === (neverLeased(document, english) === undefined),
    );
    expect(wrong).toEqual([]);
  });
});

test('rates are read as the server reads them', () => {
  const read = (text: string) => {
    const rate = parseRate(text);
    return rate && `${rate.permits}/${durationText(rate.periodUs)}`;
  };
  const wholes = { '2.5/s': '5/2s', '0.001/s': '1/1000s', '2.0/s': '2/1s', '1.5MiB/s': '1572864/1s', '60r/m': '60/1m' };
  for (const [text, whole] of Object.entries(wholes)) expect(read(text)).toBe(whole);
  for (const text of ['0/s', '0.0/s', '.5/s', '5./s', '1.0000001/s', '2.5/366d', '4294967296.5/s', '1.5/1.5s']) {
    expect(read(text)).toBeUndefined();
  }
});

describe('what-if', () => {
  const document: Json = {
    name: 'site',
    rules: [
      { name: 'burst', token_bucket: { rate: '20/s', burst: 40 } },
      { name: 'bytes', leaky_bucket: { rate: '5MiB/2m' } },
      { name: 'hourly', sliding_window: { limit: 5000, window: '1h' } },
      { name: 'daily', fixed_window: { limit: 9, calendar: 'day', timezone: 'UTC' } },
      { name: 'open', concurrency: { limit: 2, ttl: '30s' } },
    ],
  };

  test('each rule with a number for a time can be turned, and nothing else changes', () => {
    expect(dialsOf(document).map(({ rule, permits, periodUs }) => [rule, permits, periodUs])).toEqual([
      ['burst', 20, 1e6],
      ['bytes', 5, 120e6],
      ['hourly', 5000, 3600e6],
      ['daily', 9, 86_400e6],
    ]);
    for (const dial of dialsOf(document)) {
      const next = turned(document, dial, 7);
      expect(dialsOf(next).find(({ index }) => index === dial.index)?.permits).toBe(7);
      expect(same(turned(next, dial, dial.permits), document)).toBe(true);
    }
    expect(get(turned(document, dialsOf(document)[1]!, 7), ['rules', 1, 'leaky_bucket', 'rate'])).toBe('7MiB/2m');
    const fraction: Json = { rules: [{ token_bucket: { rate: '2.5/s', burst: 3 } }] };
    const [dial] = dialsOf(fraction);
    expect([dial?.permits, dial?.periodUs]).toEqual([5, 2e6]);
    expect(get(turned(fraction, dial!, 7), ['rules', 0, 'token_bucket', 'rate'])).toBe('7/2s');
    expect(dialsOf(null)).toEqual([]);
  });

  test('a step is a twentieth, and stays in the range', () => {
    expect([
      stepped(10, 1, 100),
      stepped(10, -1, 100),
      stepped(400, 1, 1000),
      stepped(1, -10, 9),
      stepped(8, 10, 9),
    ]).toEqual([11, 9, 420, 1, 9]);
  });

  test('a policy without a match guards every line', () => {
    expect(firstLine({ name: 'site', draft: document })).toEqual({
      policies: { name: 'site', document },
      policy: 'site',
    });
    const matching = { ...(document as object), match: { path: { prefix: '/' } } } as Json;
    const line = { policies: { name: 'site', document: matching }, key: ['path'] };
    expect(firstLine({ name: 'site', draft: matching, attribute: 'path' })).toEqual(line);
  });
});

describe('held permits', () => {
  const rule = {
    rule: 'slots',
    decides: true,
    allowed: true,
    limit: 5,
    remaining: 1,
    reset_after_us: 0,
    retry_after_us: null,
  };

  test('are listed for a policy with a rule that hands them out, while the store answers', () => {
    expect(holdsPermits({ rules: [{ ...rule, algorithm: 'concurrency' }] })).toBe(true);
    expect(holdsPermits({ rules: [{ ...rule, algorithm: 'token_bucket' }] })).toBe(false);
    expect(holdsPermits({ rules: null })).toBe(false);
    expect(holdsPermits({})).toBe(false);
  });

  test('show the beginning of their ids, and how many are not listed', () => {
    expect(shortId('6c62272e07bb014262b821756295c58d')).toBe('6c62272e…');
    const item = { permit: '6c62272e07bb014262b821756295c58d', cost: 2, lapses_after_us: 1 };
    expect(unlisted({ items: [item], total: 101 })).toBe(100);
    expect(unlisted({ items: [item], total: 1 })).toBe(0);
  });
});
