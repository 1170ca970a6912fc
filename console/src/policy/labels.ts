/** Names of algorithms and fields for people. */

import type { Schema } from '../lib/api.ts';
import type { Key } from '../lib/i18n/index.svelte.ts';
import type { AlgorithmName } from './algorithms.ts';

export const ALGORITHM_LABELS: Record<AlgorithmName, Key> = {
  token_bucket: 'policy.algorithm.token_bucket',
  sliding_window: 'policy.algorithm.sliding_window',
  sliding_counter: 'policy.algorithm.sliding_counter',
  sliding_log: 'policy.algorithm.sliding_log',
  fixed_window: 'policy.algorithm.fixed_window',
  leaky_bucket: 'policy.algorithm.leaky_bucket',
  smooth_bursty: 'policy.algorithm.smooth_bursty',
  smooth_warmup: 'policy.algorithm.smooth_warmup',
  concurrency: 'policy.algorithm.concurrency',
};

export const PARAM_LABELS: Record<string, Key> = {
  rate: 'policy.param.rate',
  burst: 'policy.param.burst',
  initial: 'policy.param.initial',
  refill: 'policy.param.refill',
  limit: 'policy.param.limit',
  window: 'policy.param.window',
  buckets: 'policy.param.buckets',
  align: 'policy.param.align',
  calendar: 'policy.param.calendar',
  time_zone: 'policy.param.time_zone',
  delay: 'policy.param.delay',
  max_burst: 'policy.param.max_burst',
  warmup: 'policy.param.warmup',
  cold_factor: 'policy.param.cold_factor',
  ttl: 'policy.param.ttl',
  queue: 'policy.param.queue',
};

export const OVERFLOWS = ['reject', 'queue', 'degrade', 'divert', 'shadow'] as const;
export type Overflow = (typeof OVERFLOWS)[number];

export const OVERFLOW_LABELS: Record<Overflow, Key> = {
  reject: 'policy.overflow.reject',
  queue: 'policy.overflow.queue',
  degrade: 'policy.overflow.degrade',
  divert: 'policy.overflow.divert',
  shadow: 'policy.overflow.shadow',
};

export const FAILURES = ['local', 'allow', 'deny'] as const;
export const FAILURE_LABELS: Record<(typeof FAILURES)[number], Key> = {
  local: 'policy.failure.local',
  allow: 'policy.failure.allow',
  deny: 'policy.failure.deny',
};

export const OUTCOMES: Record<Schema['KeyOutlook'], Key> = {
  passes: 'policy.keys.passes',
  shadowed: 'policy.keys.shadowed',
  held: 'policy.keys.held',
  degraded: 'policy.keys.degraded',
  diverted: 'policy.keys.diverted',
  refused: 'policy.keys.refused',
};
