import { list, t } from '../lib/i18n/index.svelte.ts';
import { session } from '../lib/session.svelte.ts';
import { ownersOf } from './requests.ts';

/** The right of the person to change the policies of an app, or the reason why it is missing. */
export class Rights {
  #owners: string[] | undefined = $state.raw();
  readonly why: string | undefined;

  constructor(app: () => string) {
    this.why = $derived.by(() => {
      if (session.canOwn(app())) return undefined;
      if (this.#owners?.length === 0) return t('role.why_nobody', { app: app() });
      return t('role.why', { app: app(), owners: this.#owners ? list(this.#owners) : '…' });
    });
    $effect(() => {
      this.#owners = undefined;
      if (app() && !session.canOwn(app()))
        void ownersOf(app()).then(
          (owners) => (this.#owners = owners),
          () => {},
        );
    });
  }
}
