/** Unsaved edits, kept until the session ends. They contain documents only, never secrets. */

import { DRAFT, session } from '../lib/session.svelte.ts';
import type { Json } from './json.ts';

export interface Draft {
  /** The version that was edited; 0 for a new policy. */
  version: number;
  base: Json;
  /** The last document of the form or of a valid text. */
  document: Json;
  text: string;
  /** The reason of the change, as far as it is written. */
  reason: string;
}

const REASONS_MAX = 5;

// Another person may sign in in this tab after a session has ended.
const own = () => `${DRAFT}${session.me?.name ?? ''}/`;
const reasonsKey = () => `${own()}reasons`;

// A new policy has no name yet; `new` with a slash is not a name.
const keyOf = (app: string, policy: string | undefined) => `${own()}${app}/${policy ?? '/new'}`;

export function saveDraft(app: string, policy: string | undefined, draft: Draft): void {
  sessionStorage.setItem(keyOf(app, policy), JSON.stringify(draft));
}

export function draftOf(app: string, policy: string | undefined): Draft | null {
  const saved = sessionStorage.getItem(keyOf(app, policy));
  return saved ? (JSON.parse(saved) as Draft) : null;
}

export function dropDraft(app: string, policy: string | undefined): void {
  sessionStorage.removeItem(keyOf(app, policy));
}

/** Reasons that were given in this session, the latest first. */
export function reasons(): string[] {
  return JSON.parse(sessionStorage.getItem(reasonsKey()) ?? '[]') as string[];
}

export function keepReason(reason: string): void {
  if (!reason) return;
  const recent = [reason, ...reasons().filter((other) => other !== reason)].slice(0, REASONS_MAX);
  sessionStorage.setItem(reasonsKey(), JSON.stringify(recent));
}
