import { ApiFailure, failureText } from './api.ts';

/** Something that is read from the server: a value, a failure, or neither yet. */
export class Loaded<T> {
  value: T | null = $state.raw(null);
  failure: string = $state('');
  /** True if the server, or its catalog, did not answer; a later request may succeed. */
  isAway: boolean = $state(false);
  private turn = 0;

  /** Takes the answer to a change: that of a reading which is under way may be from before it. */
  set(value: T): void {
    this.turn += 1;
    this.value = value;
    this.failure = '';
    this.isAway = false;
  }

  /** Reads the value; the answer to an earlier, slower reading is dropped. */
  async load(read: () => Promise<T>): Promise<void> {
    const turn = ++this.turn;
    try {
      const value = await read();
      if (turn !== this.turn) return;
      this.value = value;
      this.failure = '';
      this.isAway = false;
    } catch (error) {
      if (turn !== this.turn) return;
      this.failure = failureText(error);
      this.isAway = error instanceof ApiFailure && (error.status === 0 || error.status >= 500);
    }
  }
}
