/** Scales of rates: round steps from zero to the top of a picture. */

/** Seconds of the unit in which rates are written. */
export type Per = 1 | 60 | 3600;

export interface Scale {
  /** The rate at the top, in requests per second. */
  top: number;
  per: Per;
  /** Rates to write, from zero: in requests per `per` seconds. */
  ticks: number[];
}

/** More lines would be read as a table. */
const STEPS_MAX = 4;
const ROUND = [1, 2, 5, 10];

/** The lowest scale of at most four round steps that has room for `most` requests per second. */
export function scaleOf(most: number): Scale {
  const per = unitOf(most);
  const value = most > 0 ? most * per : 1;
  const power = 10 ** Math.floor(Math.log10(value / STEPS_MAX));
  // A bar that is exactly as high as a line does not need another.
  const factor = ROUND.find((factor) => Math.ceil((value / (factor * power)) * (1 - 1e-9)) <= STEPS_MAX) ?? 10;
  const steps = Math.max(1, Math.ceil((value / (factor * power)) * (1 - 1e-9)));
  // Tenths add up to sums such as 0.30000000000000004.
  const ticks = Array.from({ length: steps + 1 }, (_, place) => Number((place * factor * power).toPrecision(12)));
  return { top: ticks.at(-1)! / per, per, ticks };
}

/** Rates below one in a second are written by the minute, and those below one in a minute by the hour. */
export function unitOf(perSecond: number): Per {
  if (perSecond <= 0 || perSecond >= 1) return 1;
  return perSecond * 60 >= 1 ? 60 : 3600;
}
