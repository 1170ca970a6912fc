import { api, unwrap, PASSIVE, type Schema } from './api.ts';
import { Loaded } from './loaded.svelte.ts';
import { poll } from './poll.ts';

type Node = Schema['FleetNode'];
export type Standing = 'current' | 'behind' | 'silent';

const EVERY_MS = 5_000;
// Nodes report every 10 s; after three missed reports something is wrong.
const SILENT_MS = 30_000;

/** The servers of the catalog: the revision and the state of each. */
class Fleet {
  readonly state = new Loaded<Schema['Fleet']>();
  private now = $state(Date.now());

  get list(): Node[] {
    return this.state.value?.nodes ?? [];
  }

  get revision(): number {
    return this.state.value?.revision ?? 0;
  }

  standing(node: Node): Standing {
    if (node.seen_ms_ago > SILENT_MS) return 'silent';
    return node.revision < this.revision ? 'behind' : 'current';
  }

  /** The time of the last report of `node`, by the clock of the browser. */
  heardAt(node: Node): number {
    return this.now - node.seen_ms_ago;
  }

  get current(): number {
    return this.list.filter((node) => this.standing(node) === 'current').length;
  }

  /** Nodes that report, and decide without the store. */
  get withoutStore(): number {
    return this.list.filter((node) => this.standing(node) !== 'silent' && node.report?.mode === 'fallback').length;
  }

  load = async (): Promise<void> => {
    await this.state.load(() => unwrap(api.GET('/v1/admin/fleet', { headers: PASSIVE })));
    this.now = Date.now();
  };

  /** Reads the fleet now and every few seconds; returns a function that stops this. */
  watch(): () => void {
    return poll(EVERY_MS, this.load);
  }
}

export const fleet = new Fleet();
