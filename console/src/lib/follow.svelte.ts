import { untrack } from 'svelte';
import { changes } from './changes.svelte.ts';
import { fleet } from './fleet.svelte.ts';

/**
 * Runs `load` while the component is there: now, and after each change of the catalog. The
 * revision of the fleet is read every few seconds, and at once when a stream reports a new one.
 */
export function follow(load: () => unknown): void {
  $effect(() => {
    void changes.count;
    void fleet.revision;
    untrack(() => void load());
  });
}
