/** Changes that can be taken back: a toast for each, with a button that undoes it. */

import { fleet } from '../lib/fleet.svelte.ts';
import { number, t } from '../lib/i18n/index.svelte.ts';
import { appPath, navigate, policyPath } from '../lib/router.svelte.ts';
import { retext, toast } from '../lib/ui/toast.svelte.ts';
import { changes } from '../lib/changes.svelte.ts';
import { type Live, type Policy, policyOf, remove, restore, rollBack, setState } from './requests.ts';

// The person chose to undo when the change was shown, so warnings do not stop it.
const undoing = () => ({ reason: t('policy.undo.reason'), force: true });

const FOLLOW_EVERY_MS = 400;
const FOLLOW_FOR_MS = 10_000;

/** Adds the number of nodes that use the change to a toast, until all of them do. */
async function follow(id: number, text: string, revision: number): Promise<void> {
  const start = Date.now();
  for (let passed = 0; passed < FOLLOW_FOR_MS; passed = Date.now() - start) {
    await fleet.load();
    const nodes = fleet.list.filter((node) => fleet.standing(node) !== 'silent');
    const current = nodes.filter((node) => node.revision >= revision).length;
    if (nodes.length === 0) return;
    // At least 0.1 s is shown.
    const seconds = number(Math.max(0.1, (Date.now() - start) / 1000), { maximumFractionDigits: 1 });
    const params = { text, current, count: nodes.length, seconds };
    if (current === nodes.length) return retext(id, t('policy.undo.in_force', params));
    retext(id, t('policy.undo.waiting', params));
    await new Promise((done) => setTimeout(done, FOLLOW_EVERY_MS));
  }
}

/** Shows that an edit was saved: `after` is the new version of `before`. */
export function toastEdit(before: Policy, after: Policy): void {
  const text = t('policy.undo.saved', { name: after.name, version: after.version });
  const id = toast(text, {
    undo: async () => {
      const back = await rollBack(after.app, after.name, after.version, before.version, undoing());
      if (back.state !== before.state) {
        await setState(back.app, back.name, back.version, before.state as Live, undoing());
      }
      toast(t('policy.undo.as_before', { name: after.name, version: before.version }));
      changes.count += 1;
    },
  });
  void follow(id, text, after.revision);
}

export function toastState(after: Policy): void {
  const isActive = after.state === 'active';
  const text = t(isActive ? 'policy.undo.activated' : 'policy.undo.shadowed', { name: after.name });
  const id = toast(text, {
    undo: async () => {
      await setState(after.app, after.name, after.version, isActive ? 'shadow' : 'active', undoing());
      toast(t(isActive ? 'policy.undo.shadowed' : 'policy.undo.activated', { name: after.name }));
      changes.count += 1;
    },
  });
  void follow(id, text, after.revision);
}

/** `after` is the version in which a key has higher limits. */
export function toastBoost(text: string, after: Policy): void {
  toast(text, {
    undo: async () => {
      await rollBack(after.app, after.name, after.version, after.version - 1, undoing());
      toast(t('policy.undo.as_before', { name: after.name, version: after.version - 1 }));
      changes.count += 1;
    },
  });
}

export function toastCreated(created: Policy): void {
  toast(t('policy.undo.created', { name: created.name }), {
    undo: async () => {
      const { version } = await policyOf(created.app, created.name);
      await remove(created.app, created.name, version, undoing());
      toast(t('policy.undo.deleted', { name: created.name }));
      navigate(appPath(created.app));
    },
  });
}

export function toastDeleted(deleted: Policy): void {
  toast(t('policy.undo.deleted', { name: deleted.name }), {
    undo: async () => {
      await restore(deleted.app, deleted.name, deleted.version, deleted.state as Live, undoing());
      toast(t('policy.undo.restored', { name: deleted.name }));
      navigate(policyPath(deleted.app, deleted.name));
    },
  });
}
