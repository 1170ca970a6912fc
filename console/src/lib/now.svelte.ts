import { createSubscriber } from 'svelte/reactivity';

const every = (ms: number) =>
  createSubscriber((update) => {
    const timer = setInterval(update, ms);
    return () => clearInterval(timer);
  });
const seconds = every(1_000);
const minutes = every(15_000);
const MINUTE_MS = 60_000;

/** The present, for words about `ms`: its readers run again each second within a minute of `ms`, else every 15 s. */
export function nowFor(ms: number): number {
  const now = Date.now();
  if (Math.abs(now - ms) < MINUTE_MS) seconds();
  else minutes();
  return now;
}
