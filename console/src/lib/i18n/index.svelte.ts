import type en from './en.json';
import type policy from './policy.en.json';

type Messages = Record<string, string>;
type Base<K> = K extends `${infer B}_one` ? B : K extends `${infer B}_other` ? B : K;
/** Keys of messages. `key_one` and `key_other` are the forms of `key` for its parameter `count`. */
export type Key = Base<keyof typeof en | keyof typeof policy>;

const LANGUAGES = ['en', 'zh'] as const;
export type Language = (typeof LANGUAGES)[number];
export const LANGUAGE_NAMES: Record<Language, string> = { en: 'English', zh: '中文' };

/** Messages by the part of the program that needs them; `main` is always there. */
const PARTS = {
  main: { en: () => import('./en.json'), zh: () => import('./zh.json') },
  policy: { en: () => import('./policy.en.json'), zh: () => import('./policy.zh.json') },
} satisfies Record<string, Record<Language, () => Promise<{ default: Messages }>>>;
type Part = keyof typeof PARTS;
/** The parts that pages need, and when each of them is there. */
const needed = new Map<Part, Promise<void>>([['main', Promise.resolve()]]);

/** The errors and warnings of the server in other languages, by their codes. Its own texts are English. */
const LOAD_FINDINGS: Record<Language, () => Promise<{ default: Messages }>> = {
  en: async () => ({ default: {} }),
  zh: () => import('./findings.zh.json'),
};

let current: { language: Language; messages: Messages; findings: Messages } = $state.raw({
  language: 'en',
  messages: {},
  findings: {},
});

export const language = (): Language => current.language;

export async function startI18n(): Promise<void> {
  const kept = LANGUAGES.find((name) => name === localStorage.getItem('sluicegate.language'));
  await load(kept ?? preferred(navigator.languages));
}

export async function setLanguage(language: Language): Promise<void> {
  localStorage.setItem('sluicegate.language', language);
  await load(language);
}

export function preferred(wanted: readonly string[]): Language {
  for (const tag of wanted) {
    const found = LANGUAGES.find((name) => tag.toLowerCase().split('-')[0] === name);
    if (found) return found;
  }
  return 'en';
}

/** Loads the messages of a part, which a page needs before it is shown. */
export function need(part: Part): Promise<void> {
  const known = needed.get(part);
  if (known) return known;
  needed.set(part, latest);
  const loading = load(wanted);
  needed.set(part, loading);
  loading.catch(() => needed.delete(part));
  return loading;
}

/** The language that was chosen last, and the loading of its messages. */
let wanted: Language = 'en';
let latest: Promise<void> = Promise.resolve();
let turn = 0;

function load(language: Language): Promise<void> {
  wanted = language;
  return (latest = read(language));
}

async function read(language: Language): Promise<void> {
  const mine = ++turn;
  const parts = Promise.all([...needed.keys()].map((part) => PARTS[part][language]()));
  const [loaded, { default: findings }] = await Promise.all([parts, LOAD_FINDINGS[language]()]);
  // A later call has the language that was chosen since then, and the parts that pages need.
  if (mine !== turn) return latest;
  const messages: Messages = Object.assign({}, ...loaded.map((part) => part.default));
  current = { language, messages, findings };
  document.documentElement.lang = locale();
}

const locale = (): string => (current.language === 'zh' ? 'zh-CN' : 'en-GB');

/** Returns whether there is a message for a word of the server. */
export function has(key: string): key is Key {
  return key in current.messages;
}

/** A message in the current language; numbers in `params` are formatted. */
export function t(key: Key, params: Record<string, string | number> = {}): string {
  const { messages } = current;
  let text = messages[key];
  if (typeof params.count === 'number') {
    const form = new Intl.PluralRules(locale()).select(params.count);
    text = messages[`${key}_${form}`] ?? messages[`${key}_other`] ?? text;
  }
  return (text ?? key).replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = params[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? number(value) : value;
  });
}

/** A sentence of the server in the current language, by its code; `detail` is the server's own. */
export function finding(code: string | undefined, params: Record<string, string> | undefined, detail: string): string {
  const text = current.findings[code ?? ''];
  return text
    ? text.replace(/(`?)\{(\w+)\}/g, (whole, tick: string, name: string) => {
        const value = params?.[name];
        return value === undefined ? whole : tick + (tick ? value : inChinese(value));
      })
    : detail;
}

const SPANS: Record<string, string> = { us: '微秒', ms: '毫秒', s: '秒', m: '分钟', h: '小时', d: '天' };

/** A list that the server has joined in English, `a, b or c`, or a span, `60s`, which is not a code. */
function inChinese(text: string): string {
  const [, count, unit] = /^(\d+)(us|ms|s|m|h|d)$/.exec(text) ?? [];
  if (count && unit) return `${count} ${SPANS[unit]}`;
  return /^`[^`]+`(, `[^`]+`)* or `[^`]+`$/.test(text) ? text.replaceAll(', ', '、').replace(' or ', ' 或 ') : text;
}

export function number(value: number, options: Intl.NumberFormatOptions = {}): string {
  return new Intl.NumberFormat(locale(), options).format(value);
}

/** `8.64M`: in British English it would be `8.64m`, which could be a minute. */
export function compact(value: number): string {
  const words = current.language === 'en' ? 'en-US' : locale();
  return new Intl.NumberFormat(words, { notation: 'compact', maximumSignificantDigits: 3 }).format(value);
}

/** With one decimal. Nothing and all are exact: a little more than nothing is `<0.1%`. */
export function percent(ratio: number): string {
  const words = (value: number, digits: number) =>
    number(value, { style: 'percent', minimumFractionDigits: digits, maximumFractionDigits: digits });
  if (ratio === 0 || ratio === 1) return words(ratio, 0);
  if (ratio > 0 && ratio < 0.001) return `<${words(0.001, 1)}`;
  if (ratio > 0.999 && ratio < 1) return `>${words(0.999, 1)}`;
  return words(ratio, 1);
}

/** Date and time, to the second; with `time`, without the date. */
export function dateTime(ms: number, part?: 'time'): string {
  return new Intl.DateTimeFormat(locale(), { timeStyle: 'medium', ...(!part && { dateStyle: 'medium' }) }).format(ms);
}

/** Hours and minutes; with the date if that differs from the date of `beside`. */
export function clock(ms: number, beside = Date.now()): string {
  const isSameDay = date(ms) === date(beside);
  return new Intl.DateTimeFormat(locale(), { timeStyle: 'short', ...(!isSameDay && { dateStyle: 'medium' }) }).format(
    ms,
  );
}

export function date(ms: number): string {
  return new Intl.DateTimeFormat(locale(), { dateStyle: 'medium' }).format(ms);
}

/** Words in a list: `bea, cho and dan`. */
export function list(words: string[]): string {
  const text = new Intl.ListFormat(locale(), { type: 'conjunction' }).format(words);
  // Spaces as around all other words of the Latin alphabet in Chinese text.
  return text.replace(/(\w)和/g, '$1 和').replace(/和(?=\w)/g, '和 ');
}

// Months begin late: `in 2 months` is too coarse for a token that ends in 89 days.
const UNITS = [
  ['year', 31_536_000, 31_536_000],
  ['month', 2_592_000, 10_368_000],
  ['day', 86_400, 86_400],
  ['hour', 3_600, 3_600],
  ['minute', 60, 60],
] as const;

/**
 * The distance from now: `5 min ago`, `in 3 days`. The clock of a server may be ahead of that of the browser: a time to
 * come shows as now if it is not `due`, as it has happened, or if it is less than a minute away.
 */
export function relative(ms: number, isDue = false, now = Date.now()): string {
  const seconds = Math.round((ms - now) / 1000);
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: 'auto', style: 'short' });
  if (seconds > 0 && (!isDue || seconds < 60)) return format.format(0, 'second');
  const unit = UNITS.find(([, , from]) => Math.abs(seconds) >= from);
  const text = unit ? format.format(Math.trunc(seconds / unit[1]), unit[0]) : format.format(seconds, 'second');
  // Units as everywhere else, and figures as in all Chinese text.
  return text
    .replace(/ hrs?\b/, ' h')
    .replace(/ secs?\b/, ' s')
    .replace(/(\d)(?=\p{sc=Han})/u, '$1 ');
}
