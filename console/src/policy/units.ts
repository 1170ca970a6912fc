/** Rates and durations as documents write them (spec/document.md, Values). */

import type { Json } from './json.ts';

export const PERMITS_MAX = 2 ** 32;
const PERIOD_MAX_US = 366 * 86_400_000_000;

export type Unit = 'us' | 'ms' | 's' | 'm' | 'h' | 'd';

/** From the largest: a period is shown in the first that divides it. */
export const UNITS: readonly (readonly [Unit, number])[] = [
  ['d', 86_400_000_000],
  ['h', 3_600_000_000],
  ['m', 60_000_000],
  ['s', 1_000_000],
  ['ms', 1_000],
  ['us', 1],
];

const UNIT_US: Readonly<Record<string, number>> = {
  ...Object.fromEntries(UNITS),
  sec: 1_000_000,
  second: 1_000_000,
  min: 60_000_000,
  minute: 60_000_000,
  hour: 3_600_000_000,
  day: 86_400_000_000,
};

const BYTES: Readonly<Record<string, number>> = {
  '': 1,
  B: 1,
  kB: 1e3,
  KiB: 2 ** 10,
  MB: 1e6,
  MiB: 2 ** 20,
  GB: 1e9,
  GiB: 2 ** 30,
};

const RATE = /^(0|[1-9][0-9]*)(?:\.([0-9]{1,6}))?(r|B|kB|KiB|MB|MiB|GB|GiB)?\/([1-9][0-9]*)?([a-z]+)$/;
const DURATION = /^([1-9][0-9]*)([a-z]+)$/;

export interface Rate {
  /** The permits in the period, with the unit of bytes multiplied in: whole ones, 5 in 2 s for `2.5/s`. */
  permits: number;
  periodUs: number;
  /** The number and the period as written. */
  count: number;
  countUs: number;
  bytes: string;
}

export function parseRate(text: Json | undefined): Rate | undefined {
  const parts = typeof text === 'string' ? RATE.exec(text) : null;
  if (!parts) return undefined;
  const [, whole, decimals = '', unit = '', periods = '1', time] = parts;
  const bytes = unit === 'r' ? '' : unit;
  const countUs = micros(periods, time!);
  if (countUs === undefined) return undefined;
  const scaled = Number(whole + decimals) * BYTES[bytes]!;
  const common = gcd(scaled, 10 ** decimals.length);
  const [permits, periodUs] = [scaled / common, (countUs * 10 ** decimals.length) / common];
  if (permits < 1 || permits > PERMITS_MAX || periodUs > PERIOD_MAX_US) return undefined;
  return { permits, periodUs, count: Number(`${whole!}.${decimals}`), countUs, bytes };
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

export function parseDuration(text: Json | undefined): number | undefined {
  const parts = typeof text === 'string' ? DURATION.exec(text) : null;
  return parts ? micros(parts[1]!, parts[2]!) : undefined;
}

/** `us` in the largest unit that divides it. */
export function inUnits(us: number): [count: number, unit: Unit] {
  const [unit, size] = UNITS.find(([, size]) => us % size === 0) ?? ['us', 1];
  return [us / size, unit];
}

export function durationText(us: number): string {
  return inUnits(us).join('');
}

function micros(count: string, unit: string): number | undefined {
  const us = Number(count) * (Object.hasOwn(UNIT_US, unit) ? UNIT_US[unit]! : Infinity);
  return us <= PERIOD_MAX_US ? us : undefined;
}
