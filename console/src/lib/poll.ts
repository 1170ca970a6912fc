/**
 * Runs `load` now, then every `ms` while the page is visible, and when it becomes visible. Returns a function that
 * stops this.
 */
export function poll(ms: number, load: () => unknown): () => void {
  void load();
  const again = () => {
    if (!document.hidden) void load();
  };
  const timer = setInterval(again, ms);
  document.addEventListener('visibilitychange', again);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', again);
  };
}
