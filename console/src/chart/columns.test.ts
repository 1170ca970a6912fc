import { expect, test } from 'vitest';
import { columns, groups, latest, roundUp, sum, totals } from './columns.ts';

const NONE = { allowed: [], held: [], shadowed: [], degraded: [], diverted: [], refused: [], error: [] };

test('steps are added up in the columns that have them, and none is lost', () => {
  const series = [
    { ...NONE, policy: 'a', allowed: [1, 2, 3, 4], refused: [0, 0, 0, 5] },
    { ...NONE, policy: 'b', allowed: [10], degraded: [0, 1], diverted: [0, 1] },
  ];
  const all = columns({ step_ms: 10, from: 100, nodes: [{ through: 140 }], series }, 139, 20, 3);
  expect(all.map(({ at }) => at)).toEqual([80, 100, 120]);
  expect(all.map(sum)).toEqual([0, 15, 12]);
  expect(all[1]?.counts.other).toBe(2);
  expect(totals(all)).toEqual({ decided: 27, refused: 5, shadowed: 0 });
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

test('axes end at round numbers', () => {
  expect([0, 1, 3, 12, 50, 51, 1234].map(roundUp)).toEqual([1, 1, 5, 20, 50, 100, 2000]);
});

test('the newest column is of the clock that is ahead', () => {
  const minute = 60_000;
  const now = 100 * minute;
  const answer = { step_ms: minute, from: now - 10 * minute, nodes: [{ through: now - minute }], series: [] };
  expect(latest(now, answer), 'a node that is behind').toBe(now);
  const ahead = { ...answer, nodes: [{ through: now + 5 * minute }], series: [{ ...NONE, policy: 'a', allowed: Array(15).fill(1) }] };
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
