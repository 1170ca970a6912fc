import { has, t } from './i18n/index.svelte.ts';
import { visible } from './text.ts';

/** An actor of the audit as people call it: `account:bea` is bea. */
export function actorName(actor: string): string {
  if (actor.startsWith('account:')) return visible(actor.slice('account:'.length));
  const token = /^token:([^/]+)\/([^#]+)/.exec(actor);
  if (token) return t('actor.token', { name: token[2]! });
  const key = `actor.${actor}`;
  return has(key) ? t(key) : visible(actor);
}
