/** The columns of a chart of traffic: they are of equal length, and each has its requests by result. */

export const KINDS = ['allowed', 'held', 'other', 'shadowed', 'shed', 'refused', 'error'] as const;
export type Kind = (typeof KINDS)[number];

export interface Column {
  /** Begin, in milliseconds since 1970. */
  at: number;
  counts: Record<Kind, number>;
  /** Decided without the store; each is in `counts` as well. */
  withoutStore: number;
  /** `whole`: all nodes have reported it; `part`: some have; `none`: it is not known yet. */
  known: 'whole' | 'part' | 'none';
}

/** The part of an answer that is drawn. */
export interface Counted {
  step_ms: number;
  from: number;
  nodes: { through?: number | null }[];
  series: ({ policy: string } & Record<string, number[] | string>)[];
  marks?: { at: number }[];
}

const PARTS: Record<Kind, string[]> = {
  allowed: ['allowed'],
  held: ['held'],
  other: ['degraded', 'diverted'],
  shadowed: ['shadowed'],
  refused: ['refused'],
  shed: ['shed'],
  error: ['error'],
};

/** The time of the last column: clocks of nodes may be ahead of the browser's, and their counts are shown, too. */
export function latest(now: number, ...answers: Counted[]): number {
  const ends = answers.flatMap(({ from, step_ms, nodes, series, marks = [] }) => [
    ...nodes.map(({ through }) => (through ?? 0) - 1),
    ...series.map(({ allowed }) => from + (allowed?.length ?? 0) * step_ms - 1),
    ...marks.map(({ at }) => at),
  ]);
  return Math.max(now, ...ends);
}

/** `count` columns of `length` ms, the last of which has `now`. */
export function columns(counted: Counted, now: number, length: number, count: number): Column[] {
  const end = (Math.floor(now / length) + 1) * length;
  const throughs = counted.nodes.map((node) => node.through ?? 0);
  const least = Math.min(...throughs);
  const most = Math.max(...throughs, 0);
  const all = Array.from({ length: count }, (_, place): Column => {
    const at = end - (count - place) * length;
    const known = at + length <= least ? 'whole' : at < most ? 'part' : 'none';
    return {
      at,
      counts: { allowed: 0, held: 0, other: 0, shadowed: 0, shed: 0, refused: 0, error: 0 },
      withoutStore: 0,
      known,
    };
  });
  const first = end - count * length;
  for (const one of counted.series) {
    const visit = (name: string, add: (column: Column, value: number) => void) =>
      (one[name] as number[] | undefined)?.forEach((value, place) => {
        const column = all[Math.floor((counted.from + place * counted.step_ms - first) / length)];
        if (column) add(column, value);
      });
    for (const kind of KINDS) {
      for (const name of PARTS[kind]) visit(name, (column, value) => (column.counts[kind] += value));
    }
    visit('without_store', (column, value) => (column.withoutStore += value));
  }
  return all;
}

export const sum = (column: Column): number => KINDS.reduce((total, kind) => total + column.counts[kind], 0);

/** Numbers of requests by their result. Overload and decisions without the store are independent of a limit. */
export interface Totals {
  decided: number;
  /** Refused by a limit, or by `on_store_failure`. */
  refused: number;
  /** Over the limit in shadow. */
  shadowed: number;
  /** Met an overload of the store. */
  shed: number;
  /** In another count as well. */
  withoutStore: number;
}

/** The sum of all columns. */
export function totals(all: Column[]): Totals {
  const add = (of: (column: Column) => number) => all.reduce((total, column) => total + of(column), 0);
  return {
    decided: add(sum),
    refused: add(({ counts }) => counts.refused),
    shadowed: add(({ counts }) => counts.shadowed),
    shed: add(({ counts }) => counts.shed),
    withoutStore: add(({ withoutStore }) => withoutStore),
  };
}

/** Neighbours in one group: a group begins where something is at least `apart` from the first of the last group. */
export function groups<T>(items: T[], x: (item: T) => number, apart: number): T[][] {
  const found: T[][] = [];
  for (const item of items.toSorted((one, other) => x(one) - x(other))) {
    const last = found.at(-1);
    if (last && x(item) - x(last[0]!) < apart) last.push(item);
    else found.push([item]);
  }
  return found;
}
