/** Runs `load` now and then every `ms`, while the page can be seen. Returns what ends that. */
export function poll(ms: number, load: () => unknown): () => void {
  void load();
  const timer = setInterval(() => {
    if (!document.hidden) void load();
  }, ms);
  return () => clearInterval(timer);
}
