import { expect, test } from 'vitest';
import { columns, groups, latest, sum, totals } from './columns.ts';
import { scaleOf } from './scale.ts';

const NONE = {
  allowed: [],
  held: [],
  shadowed: [],
  degraded: [],
  diverted: [],
  refused: [],
  error: [],
  without_store: [],
  shed: [],
};

test('steps are added up in the columns that have them, and none is lost', () => {
  const series = [
    { ...NONE, policy: 'a', allowed: [1, 2, 3, 4], refused: [0, 0, 0, 5], shed: [0, 0, 1], without_store: [1, 1] },
    { ...NONE, policy: 'b', allowed: [10], degraded: [0, 1], diverted: [0, 1] },
  ];
  const all = columns({ step_ms: 10, from: 100, nodes: [{ through: 140 }], series }, 139, 20, 3);
  expect(all.map(({ at }) => at)).toEqual([80, 100, 120]);
  expect(all.map(sum)).toEqual([0, 15, 13]);
  expect(all[1]?.counts.other).toBe(2);
  expect(totals(all), 'overload is no refusal, and what was decided without the store counts once').toEqual({
    decided: 28,
    refused: 5,
    shadowed: 0,
    shed: 1,
    withoutStore: 2,
  });
});

test('what a node has not reported is not zero', () => {
  const nodes = [{ through: 120 }, { through: 140 }, { through: 150 }];
  const all = columns({ step_ms: 10, from: 100, nodes, series: [] }, 175, 20, 4);
  expect(all.map(({ at, known }) => [at, known])).toEqual([
    [100, 'whole'],
    [120, 'part'],
    [140, 'part'],
    [160, 'none'],
  ]);
  const silent = columns({ step_ms: 10, from: 100, nodes: [{ through: null }], series: [] }, 115, 20, 1);
  expect(silent[0]?.known).toBe('none');
});

test('the report of a node that does not count overload is read', () => {
  const { shed: _, ...old } = NONE;
  const all = columns(
    { step_ms: 10, from: 100, nodes: [{ through: 120 }], series: [{ ...old, policy: 'a', allowed: [3] }] },
    115,
    20,
    1,
  );
  expect(totals(all)).toEqual({ decided: 3, refused: 0, shadowed: 0, shed: 0, withoutStore: 0 });
});

test('axes begin at zero, have round steps, and end near what they show', () => {
  const words = (most: number) => {
    const { per, ticks } = scaleOf(most);
    return `${ticks.join(' ')} /${per}`;
  };
  expect(words(22)).toBe('0 10 20 30 /1');
  expect(words(11)).toBe('0 5 10 15 /1');
  expect(words(1)).toBe('0 0.5 1 /1');
  expect(words(50)).toBe('0 20 40 60 /1');
  expect(words(0)).toBe('0 0.5 1 /1');
  expect(words(0.1)).toBe('0 2 4 6 /60');
  expect(words(1 / 300)).toBe('0 5 10 15 /3600');
  for (const most of [0.0001, 0.3, 3, 7.7, 8.33, 999, 1001, 123_456]) {
    const { top, ticks } = scaleOf(most);
    expect(top, String(most)).toBeGreaterThanOrEqual(most * (1 - 1e-9));
    expect(top, String(most)).toBeLessThanOrEqual(most * 2);
    expect(ticks.length).toBeLessThanOrEqual(5);
  }
});

test('the newest column is of the clock that is ahead', () => {
  const minute = 60_000;
  const now = 100 * minute;
  const answer = { step_ms: minute, from: now - 10 * minute, nodes: [{ through: now - minute }], series: [] };
  expect(latest(now, answer), 'a node that is behind').toBe(now);
  const ahead = {
    ...answer,
    nodes: [{ through: now + 5 * minute }],
    series: [{ ...NONE, policy: 'a', allowed: Array(15).fill(1) }],
  };
  const all = columns(ahead, latest(now, ahead), minute, 15);
  expect(all.at(-1)?.at).toBe(now + 4 * minute);
  expect(totals(all).decided, 'all that the node has counted is shown').toBe(15);
  expect(latest(now, { ...answer, marks: [{ at: now + 3 }] }), 'a change that is ahead').toBe(now + 3);
});

test('marks that would lie on each other are one', () => {
  const x = (at: number) => at;
  expect(groups([90, 0, 20, 27, 30, 50], x, 28)).toEqual([[0, 20, 27], [30, 50], [90]]);
  expect(groups([], x, 28)).toEqual([]);
});
