/** The algorithms and their parameters, as the policy schema has them; a test compares the two. */

export type Kind =
  | { type: 'rate' }
  | { type: 'duration' }
  | { type: 'permits'; min: number; max: number }
  | { type: 'word'; words: readonly string[] }
  | { type: 'word-or-permits'; words: readonly string[]; max: number }
  | { type: 'factor'; above: number; max: number }
  | { type: 'time-zone' };

export interface Param {
  name: string;
  kind: Kind;
  required?: true;
  /** Shown in an empty field. */
  default?: string;
}

const PERMITS_MAX = 2 ** 32;
const rate: Param = { name: 'rate', kind: { type: 'rate' }, required: true };
const window: Param = { name: 'window', kind: { type: 'duration' }, required: true };

function limit(max: number): Param {
  return { name: 'limit', kind: { type: 'permits', min: 1, max }, required: true };
}

function permits(name: string, min: number, max: number, otherwise?: string): Param {
  return { name, kind: { type: 'permits', min, max }, default: otherwise };
}

function word(name: string, words: readonly string[], otherwise?: string): Param {
  return { name, kind: { type: 'word', words }, default: otherwise };
}

export const ALGORITHMS = {
  token_bucket: [
    rate,
    permits('burst', 1, PERMITS_MAX),
    permits('initial', 0, PERMITS_MAX),
    word('refill', ['smooth', 'interval'], 'smooth'),
  ],
  sliding_window: [limit(PERMITS_MAX), window, permits('buckets', 1, 1000, '10')],
  sliding_counter: [limit(PERMITS_MAX - 1), window],
  sliding_log: [limit(10_000), window],
  fixed_window: [
    limit(PERMITS_MAX),
    { name: 'window', kind: { type: 'duration' } },
    word('align', ['epoch', 'first'], 'epoch'),
    word('calendar', ['day', 'week', 'month', 'year']),
    { name: 'time_zone', kind: { type: 'time-zone' }, default: 'UTC' },
  ],
  leaky_bucket: [
    rate,
    permits('burst', 0, PERMITS_MAX, '0'),
    {
      name: 'delay',
      kind: { type: 'word-or-permits', words: ['all', 'none'], max: PERMITS_MAX },
      default: 'all',
    },
  ],
  smooth_bursty: [rate, { name: 'max_burst', kind: { type: 'duration' }, default: '1s' }],
  smooth_warmup: [
    rate,
    { name: 'warmup', kind: { type: 'duration' }, required: true },
    { name: 'cold_factor', kind: { type: 'factor', above: 1, max: 1000 }, default: '3' },
  ],
  concurrency: [
    limit(10_000),
    { name: 'ttl', kind: { type: 'duration' }, required: true },
    permits('queue', 0, 10_000, '0'),
  ],
} satisfies Record<string, readonly Param[]>;

export type AlgorithmName = keyof typeof ALGORITHMS;

export const ALGORITHM_NAMES = Object.keys(ALGORITHMS) as AlgorithmName[];

export function paramsOf(algorithm: AlgorithmName): readonly Param[] {
  return ALGORITHMS[algorithm];
}
