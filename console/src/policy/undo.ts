/** Changes that can be taken back: each tells what was done, with a button that undoes it. */

import { t } from '../lib/i18n/index.svelte.ts';
import { toast } from '../lib/ui/toast.svelte.ts';
import { type Live, type Policy, policyOf, remove, restore, rollBack, setState } from './requests.ts';

// Undoing was decided when the change was shown, so that warnings do not stop it.
const undoing = () => ({ reason: t('policy.undo.reason'), force: true });

/** `after` is what the change made of `before`. `reload` shows the page anew after undoing. */
export function toastEdit(before: Policy, after: Policy, reload: () => void): void {
  toast(t('policy.undo.saved', { name: after.name, version: after.version }), {
    undo: async () => {
      const back = await rollBack(after.app, after.name, after.version, before.version, undoing());
      if (back.state !== before.state) {
        await setState(back.app, back.name, back.version, before.state as Live, undoing());
      }
      toast(t('policy.undo.as_before', { name: after.name, version: before.version }));
      reload();
    },
  });
}

export function toastState(after: Policy, reload: () => void): void {
  const isActive = after.state === 'active';
  toast(t(isActive ? 'policy.undo.activated' : 'policy.undo.shadowed', { name: after.name }), {
    undo: async () => {
      await setState(after.app, after.name, after.version, isActive ? 'shadow' : 'active', undoing());
      toast(t(isActive ? 'policy.undo.shadowed' : 'policy.undo.activated', { name: after.name }));
      reload();
    },
  });
}

export function toastCreated(made: Policy, reload: () => void): void {
  toast(t('policy.undo.created', { name: made.name }), {
    undo: async () => {
      const { version } = await policyOf(made.app, made.name);
      await remove(made.app, made.name, version, undoing());
      toast(t('policy.undo.deleted', { name: made.name }));
      reload();
    },
  });
}

export function toastDeleted(gone: Policy, reload: () => void): void {
  toast(t('policy.undo.deleted', { name: gone.name }), {
    undo: async () => {
      await restore(gone.app, gone.name, gone.version, gone.state as Live, undoing());
      toast(t('policy.undo.restored', { name: gone.name }));
      reload();
    },
  });
}
