import { createSubscriber } from 'svelte/reactivity';

const every = (ms: number) =>
  createSubscriber((update) => {
    const timer = setInterval(update, ms);
    return () => clearInterval(timer);
  });
const seconds = every(1_000);
const minutes = every(15_000);
const MINUTE_MS = 60_000;

/** The present, for words about `ms`: what reads it is read again, each second within a minute of it, else each quarter of a minute. */
export function nowFor(ms: number): number {
  const now = Date.now();
  if (Math.abs(now - ms) < MINUTE_MS) seconds();
  else minutes();
  return now;
}
