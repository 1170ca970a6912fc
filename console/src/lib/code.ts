/** Lines that do what a page does, and work with what their reader has: an account, or a token of the app. */

import { fleet } from './fleet.svelte.ts';
import { session } from './session.svelte.ts';
import { json, quote } from './text.ts';

export interface Block {
  label: string;
  text: string;
}

const name = () => session.me?.name ?? '';

/** A command for an account: it signs in first. Commands use the login of the address that the variable names. */
export function command(...words: string[]): Block {
  const text = [
    `export SLUICEGATE_ADMIN_URL=${quote(location.origin)}`,
    `sluicegate login --name ${quote(name())}`,
    `sluicegate ${words.map(quote).join(' ')}`,
  ].join('\n');
  return { label: 'sluicegate', text };
}

/** A request for an account that no command makes: curl signs in first, and keeps the session in a file. */
export function request(method: 'GET' | 'POST', path: string, body?: unknown): Block {
  const type = `-H 'content-type: application/json'`;
  const signIn = `{"account":${json(name())},"password":"PASSWORD"}`;
  const sent = body === undefined ? '' : ` ${type} -d ${quote(json(body))}`;
  const text = [
    `curl -c session.txt ${type} -d ${quote(signIn)} ${quote(`${location.origin}/v1/admin/session`)}`,
    `curl -b session.txt${method === 'GET' || body !== undefined ? '' : ` -X ${method}`}${sent} ${quote(location.origin + path)}`,
  ].join('\n');
  return { label: 'curl', text };
}

/** Returns the address at which the node that serves the console takes requests for permits by `wire`, if it does. */
export function decidesAt(wire: 'http' | 'resp'): URL | undefined {
  const schemes = { http: ['http:', 'https:'], resp: ['resp:', 'rediss:'] }[wire];
  const urls = (fleet.state.value?.listen ?? []).flatMap((text) => (URL.canParse(text) ? [new URL(text)] : []));
  const found = urls.find(({ protocol, host }) => schemes.includes(protocol) && host !== '');
  // All addresses of the machine: that of the console in the browser is one of them.
  const isAll = found && ['0.0.0.0', '[::]', '[::0]'].includes(found.hostname);
  return isAll ? new URL(`${found.protocol}//${location.hostname}:${found.port}`) : found;
}

/** Returns the `http` address for lines of code; without one, a placeholder that the reader replaces. */
export const httpAt = (): string => decidesAt('http')?.href.replace(/\/$/, '') ?? 'http://HOST:8080';
