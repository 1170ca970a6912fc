/** The longest wait for an answer, ms: a request that was lost on its way ends no polling. */
const ANSWER_WAIT_MAX_MS = 30_000;

/**
 * Runs `load` now, then every `ms` while the page is visible, and when it becomes visible; not while an earlier one is under
 * way, so that a server that takes longer than `ms` is seen, too. Returns a function that stops this.
 */
export function poll(ms: number, load: () => Promise<unknown>): () => void {
  let begun: number | null = null;
  const start = () => {
    const at = performance.now();
    if (begun !== null && at - begun < ANSWER_WAIT_MAX_MS) return;
    begun = at;
    void load().finally(() => {
      if (begun === at) begun = null;
    });
  };
  const again = () => {
    if (!document.hidden) start();
  };
  start();
  const timer = setInterval(again, ms);
  document.addEventListener('visibilitychange', again);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', again);
  };
}
