/** Runs `load` now, and then every `ms` while the page can be seen, and when it is seen again. Returns what ends that. */
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
