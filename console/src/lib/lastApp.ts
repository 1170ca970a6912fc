/** The app that was looked at last in this tab: pages that need one begin with it. */

const LAST = 'sluicegate.app';

export function keepApp(app: string): void {
  sessionStorage.setItem(LAST, app);
}

/** `wanted` if it is one of `names`, else the last one that was looked at, else the first; empty: there is none. */
export function appOf(names: string[], wanted: string): string {
  const found = [wanted, sessionStorage.getItem(LAST) ?? ''].find((name) => names.includes(name));
  return found ?? names[0] ?? '';
}
