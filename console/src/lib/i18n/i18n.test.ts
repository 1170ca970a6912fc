import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, type AST } from 'svelte/compiler';
import { describe, expect, test } from 'vitest';
import findings from '../../../../docs/findings.json';
import findingsZh from './findings.zh.json';
import enMain from './en.json';
import enPolicy from './policy.en.json';
import zhMain from './zh.json';
import zhPolicy from './policy.zh.json';

const en = { ...enMain, ...enPolicy };
const zh = { ...zhMain, ...zhPolicy };

const SRC = join(import.meta.dirname, '../..');
const sources = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.(svelte|ts)$/.test(name) && !/\.test\.ts$|api-types/.test(name))
  .map((name) => ({ name, text: readFileSync(join(SRC, name), 'utf8') }));

/** Forms of a plural are one message. */
const base = (key: string) => key.replace(/_(one|other)$/, '');
const keys = (messages: Record<string, string>) => [...new Set(Object.keys(messages).map(base))].sort();
const names = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();

describe('messages', () => {
  test('both languages have the same ones', () => {
    expect(keys(zh)).toEqual(keys(en));
  });

  test('a message of both languages has the same parameters', () => {
    const ofZh: Record<string, string> = zh;
    for (const [key, text] of Object.entries(en)) {
      const other = ofZh[key] ?? ofZh[`${base(key)}_other`]!;
      expect(names(other), key).toEqual(names(text));
    }
  });

  test('none is empty, and none of the Chinese ones is the English one by mistake', () => {
    const ofZh: Record<string, string> = zh;
    expect(Object.values(en).filter((text) => !text.trim())).toEqual([]);
    const same = Object.entries(en).filter(
      ([key, text]) => ofZh[key] === text && /[a-z]{3}/.test(text.replace(/\{\w+\}/g, '')),
    );
    expect(same.map(([key]) => key).filter((key) => !SAME.includes(key))).toEqual([]);
  });

  test('every finding of the server has a Chinese sentence with the same parameters', () => {
    expect(Object.keys(findingsZh)).toEqual(Object.keys(findings));
    for (const [code, text] of Object.entries(findings)) {
      expect(names(findingsZh[code as keyof typeof findingsZh]), code).toEqual(names(text));
    }
  });

  test('each is used', () => {
    const all = sources.map(({ text }) => text).join('\n');
    // `t(`role.${role}`)` uses every message that begins with `role.`.
    const beginnings = [...all.matchAll(/[`'"]([a-z_]+(?:\.[a-z_]+)*[._])(?:\$\{|['"]\s*\+)/g)].map(
      ([, start]) => start!,
    );
    const isUsed = (key: string) =>
      all.includes(`'${key}'`) || all.includes(`"${key}"`) || beginnings.some((start) => key.startsWith(start));
    expect(keys(en).filter((key) => !isUsed(key))).toEqual([]);
  });

  test('templates have no text of their own', () => {
    const found = sources
      .filter(({ name }) => name.endsWith('.svelte'))
      .flatMap(({ name, text }) => literals(text).map((literal) => `${name}: ${literal}`));
    expect(found).toEqual([]);
  });

  test('no template inserts HTML or styles that the content security policy forbids', () => {
    const found = sources.filter(({ name, text }) => name.endsWith('.svelte') && /\{@html|\sstyle="/.test(text));
    expect(found.map(({ name }) => name)).toEqual([]);
  });
});

/** Words that are the same in both languages. */
const SAME = ['accounts.oidc'];
/** Names, examples of values and words of the protocol: the same in every language. */
const NAMES =
  /^((· )?Sluicegate|check|refund|policy:read|policy:write|curl|YAML|remote_ip|POST|shop\.example\.com|\/orders|5\/200ms|x-user: alice)$/;
const WORDS = /\p{L}{2,}/u;
const SHOWN = ['label', 'title', 'placeholder', 'aria-label', 'alt', 'hint', 'text'];

/** Text in a template that people read but that is no message. */
function literals(source: string): string[] {
  const found: string[] = [];
  const add = (text: string) => {
    const trimmed = text.trim();
    if (WORDS.test(trimmed) && !NAMES.test(trimmed)) found.push(trimmed);
  };
  const visit = (node: unknown, isShown = true): void => {
    if (Array.isArray(node)) return node.forEach((child) => visit(child, isShown));
    if (typeof node !== 'object' || node === null || !('type' in node)) return;
    const { type } = node as { type: string };
    if (type === 'Text' && isShown) add((node as AST.Text).data);
    if (type === 'Attribute') {
      const { name, value } = node as AST.Attribute;
      if (SHOWN.includes(name)) visit(Array.isArray(value) ? value : [], true);
      return;
    }
    if (type === 'StyleDirective') return;
    for (const [key, child] of Object.entries(node))
      if (key !== 'expression' && key !== 'parent') visit(child, isShown);
  };
  visit((parse(source, { modern: true }) as AST.Root).fragment);
  return found;
}
