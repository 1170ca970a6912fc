import type { Facts } from './facts.ts';
import type { Reading, Sentence, Shown } from './read.ts';
import { FREE, RULES } from './sentences.ts';
import { clock } from './words.ts';

/** The result of comparing the sentences of a page. */
export interface Compared {
  compared: number;
  /** The sentences that differ, each with the right one. */
  differ: string[];
}

/** Compares every sentence of a page with the facts. A sentence with a digit and without a rule differs. */
export function compare({ sentences, times }: Reading, facts: Facts): Compared {
  const rules = RULES[facts.page];
  const found = new Map<string, number>();
  const differ: string[] = [];
  let compared = 0;
  for (const sentence of sentences) {
    const { text, region } = sentence;
    const at = [region, sentence.row.split(' ')[0]].filter(Boolean).join(' › ');
    const rule = rules.find((one) => isIn(sentence, one.region) && one.is.test(text));
    if (rule) {
      const right = rule.right(facts, sentence, rule.is.exec(text)!);
      found.set(rule.name, (found.get(rule.name) ?? 0) + 1);
      compared += 1;
      if (right === undefined || !isSame(right, text))
        differ.push(`${rule.name} (${at}): shows “${text}”, but it is “${right ?? 'nothing of the kind'}”`);
    } else if (/\d/.test(text) && !FREE.some((one) => isIn(sentence, one.region) && one.is.test(text))) {
      differ.push(`not compared (${at}, ${sentence.kind}): “${text}”`);
    }
  }
  for (const rule of rules) {
    const [wanted, count] = [rule.times?.(facts), found.get(rule.name) ?? 0];
    if (wanted !== undefined && wanted !== count)
      differ.push(`${rule.name}: is there ${count} times, but should be ${wanted} times`);
  }
  for (const shown of times) {
    compared += 1;
    if (!isTime(shown))
      differ.push(
        `time: shows “${shown.words}” at ${new Date(shown.now).toISOString()}, but it is ${new Date(shown.ms).toISOString()}`,
      );
  }
  return { compared, differ };
}

const isIn = ({ region }: Sentence, wanted: string | RegExp | undefined): boolean =>
  wanted === undefined || (typeof wanted === 'string' ? region === wanted : wanted.test(region));

/** Spaces between words are not compared. */
const isSame = (one: string, other: string): boolean => one.replaceAll(' ', '') === other.replaceAll(' ', '');

const UNITS: Record<string, number> = { s: 1, min: 60, h: 3_600, day: 86_400, days: 86_400 };
/** Words without a number that name one. */
const NAMED: Record<string, string> = { tomorrow: 'in 1 day', yesterday: '1 day ago' };

/** A page renews words about times of a minute ago and more each 15 s. */
const RENEWED_S = 15;

/** Returns whether the words name this time, a unit more or less, when they were last renewed. */
function isTime({ words, ms, now }: Shown): boolean {
  const [, ahead, count = '', unit = '', ago] =
    /^(in )?(\d+) (s|min|h|days?)( ago)?$/.exec(NAMED[words] ?? words) ?? [];
  if (words === 'now') return Math.abs(ms - now) < 2_500;
  if (!unit || !(ahead || ago)) return words === clock(ms);
  const seconds = (ago ? now - ms : ms - now) / 1000;
  const least = Number(count) * UNITS[unit]!;
  const renewed = unit === 's' ? 0 : RENEWED_S;
  return (
    seconds >= least - 2 - (ahead ? renewed : 0) && seconds <= least + Math.max(2, UNITS[unit]!) + (ago ? renewed : 0)
  );
}
