export interface Toast {
  id: number;
  text: string;
  tone: 'done' | 'failed';
  undo?: () => Promise<void> | void;
}

const SHOWN_MS = 10_000;
// More would cover the page; older ones go first.
const TOASTS_MAX = 3;

export const toasts: { list: Toast[] } = $state({ list: [] });
let next = 1;

/** Shows for ten seconds that something was done, with a way back. */
export function toast(text: string, options: { tone?: Toast['tone']; undo?: Toast['undo'] } = {}): number {
  const id = next++;
  const entry: Toast = { id, text, tone: options.tone ?? 'done' };
  if (options.undo) entry.undo = options.undo;
  toasts.list = [...toasts.list, entry].slice(-TOASTS_MAX);
  setTimeout(() => dismiss(id), SHOWN_MS);
  return id;
}

/** Replaces the text of a toast that is still shown. */
export function retext(id: number, text: string): void {
  const found = toasts.list.find((entry) => entry.id === id);
  if (found) found.text = text;
}

export function dismiss(id: number): void {
  toasts.list = toasts.list.filter((entry) => entry.id !== id);
}
