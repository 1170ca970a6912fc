"""The promise of the three primitives, and the vectors of `spec/wire/shares.json`: `python3 test_share.py`.

`SLUICEGATE_WRITE=1` writes the vectors anew.
"""

import json
import os
import pathlib
import random
import sys
import unittest

sys.dont_write_bytecode = True  # The folder stays as it is.
from rules import numbers_of
from share import Level, decide, primitive

FILE = pathlib.Path(__file__).parent.parent / "wire/shares.json"
ABOUT = "Steps of one rule without Redis: see the page of failures, Three primitives."
START_US = 1_774_745_000_000_000
SECOND_US, DAY_US = 10**6, 86_400 * 10**6
RULES = [
    ("token_bucket", {"rate": {"permits": 10, "period_us": SECOND_US}, "burst": 20}),
    ("token_bucket", {"rate": {"permits": 7, "period_us": 3 * SECOND_US}, "burst": 9, "initial": 2}),
    ("token_bucket", {"rate": {"permits": 7, "period_us": 3 * SECOND_US}, "burst": 9, "refill": "interval"}),
    ("token_bucket", {"rate": {"permits": 1000, "period_us": DAY_US}, "burst": 1000}),
    # A bucket so large that its permits weigh one unit, and come three at a tick of two seconds.
    ("token_bucket", {"rate": {"permits": 3, "period_us": 2_000_003}, "burst": 2**32}),
    ("leaky_bucket", {"rate": {"permits": 5, "period_us": SECOND_US}, "burst": 10}),
    ("leaky_bucket", {"rate": {"permits": 5, "period_us": SECOND_US}, "burst": 10, "delay": 4}),
    ("leaky_bucket", {"rate": {"permits": 5, "period_us": SECOND_US}, "burst": 10, "delay": "none"}),
    ("smooth_bursty", {"rate": {"permits": 7, "period_us": SECOND_US}, "max_burst_us": 2 * SECOND_US}),
    ("smooth_warmup", {"rate": {"permits": 7, "period_us": SECOND_US}, "warmup_us": 3 * SECOND_US}),
    ("fixed_window", {"limit": 12, "window_us": 7 * SECOND_US}),
    ("fixed_window", {"limit": 12, "window_us": 90 * SECOND_US, "align": "first"}),
    ("sliding_window", {"limit": 15, "window_us": 13 * SECOND_US, "buckets": 6}),
    ("sliding_counter", {"limit": 100, "window_us": 11 * SECOND_US}),
    ("sliding_log", {"limit": 9, "window_us": 20 * SECOND_US}),
    ("sliding_log", {"limit": 3, "window_us": 7}),
]
VERBS = ["check"] * 6 + ["reserve", "reserve", "at_most", "at_most", "peek", "refund", "said"]


def life(rng, algorithm, params, count):
    """Random steps of a rule, with their answers."""
    rule, now, steps = primitive(algorithm, numbers_of(algorithm, params)), START_US, []
    most = 3 if getattr(rule, "tick_us", 1) > 1 else min(rule.most, 1000)
    if isinstance(rule, Level):
        span = max(rule.until(min(max(rule.depth, rule.weighs * 10), rule.weighs * most), 0, 0), 1)
    else:
        span = rule.span_us
    for _ in range(count):
        # A clock that goes back stays within a bucket, or goes over some, or over more than a window.
        back = -rng.choice([rng.randrange(span // 100 + 2), rng.randrange(span // 4 + 1), rng.randrange(3 * span)]) if rng.random() < 0.8 else 0
        ticks = rng.randrange(2 * getattr(rule, "tick_us", 1) + 1)
        now += rng.choice([0, ticks, rng.randrange(span // 20 + 2), rng.randrange(span // 3 + 2), back])
        # Nothing is put down of what Redis reports of a rule that warms up.
        step = {"at_us": now, "op": rng.choice(VERBS[:-1] if algorithm == "smooth_warmup" else VERBS), "cost": rng.choice([1, 1, 1, 2, 3, rng.randrange(1, most + 2)])}
        if step["op"] == "said":
            if rule.state is not None:
                rule.rewind(now)
            step["cost"] = rng.randrange(most + 1)
            rule.said(now, step["cost"])
        else:
            if step["op"] == "reserve":
                step["max_wait_us"] = rng.choice([0, span // 10, span])
            step["expect"] = decide(rule, step["op"], now, step["cost"], step.get("max_wait_us"))
        steps.append(step)
    return {"algorithm": algorithm, "params": params, "steps": steps}


def permits(rng, params, count):
    """Random steps of permits that are held, of which many lapse, with their answers."""
    rule, now, steps = primitive("concurrency", numbers_of("concurrency", params)), START_US, []
    span = params["ttl_us"]
    for _ in range(count):
        back = -rng.randrange(span // 5) if rng.random() < 0.5 else 0
        now += rng.choice([0, rng.randrange(span // 9), rng.randrange(span // 3), rng.randrange(span // 2), back, rng.randrange(2 * span)])
        op = rng.choice(["acquire"] * 8 + ["renew", "renew", "release", "peek", "peek", "refund"])
        step = {"at_us": now, "op": op, "cost": rng.choice([1, 1, 1, 2, 2, params["limit"], params["limit"] + 1])}
        if op in ("acquire", "renew", "release"):
            held = [permit for _, permit, _ in rule.held(now)]
            step["id"] = rng.choice(held if held and op != "acquire" and rng.random() < 0.8 else "abcdef")
        step["expect"] = decide(rule, op, now, step["cost"], None, step.get("id"))
        steps.append(step)
    return {"algorithm": "concurrency", "params": params, "steps": steps}


def chosen(algorithm, params, steps):
    """Steps that random ones seldom make, with their answers: (µs after the start, op, cost)."""
    rule, made = primitive(algorithm, numbers_of(algorithm, params)), []
    for after_us, op, cost in steps:
        step = {"at_us": START_US + after_us, "op": op, "cost": cost}
        if op == "said":
            rule.said(step["at_us"], cost)
        else:
            step["expect"] = decide(rule, op, step["at_us"], cost)
        made.append(step)
    return {"algorithm": algorithm, "params": params, "steps": made}


def vectors():
    rng = random.Random(42)
    lives = [life(rng, algorithm, params, 60 if params.get("burst") != 2**32 else 400) for algorithm, params in RULES]
    lives += [permits(rng, {"limit": limit, "ttl_us": ttl_us}, 150) for limit, ttl_us in [(2, 10 * SECOND_US), (5, 2_000_003)]]
    # The clock goes back within the bucket in which Redis reported a full window: the report ends a window from now.
    minute = {"limit": 5, "window_us": 60 * SECOND_US, "align": "first"}
    lives.append(chosen("fixed_window", minute, [(50_000, "said", 5), (0, "check", 1), (59_999_999, "check", 1), (60_000_000, "check", 1)]))
    # A refused first request leaves what the bucket started with.
    started = {"rate": {"permits": 10, "period_us": SECOND_US}, "burst": 20, "initial": 15}
    lives.append(chosen("token_bucket", started, [(0, "check", 16), (0, "check", 15), (0, "check", 1)]))
    # After a pause no bucket of before counts, whatever place it had.
    counter = {"limit": 10, "window_us": 10 * SECOND_US}
    for gap in range(11, 24):
        steps = [(place * SECOND_US, "check", 1) for place in range(10)] + [((9 + gap) * SECOND_US, "check", 1)] * 2
        lives.append(chosen("sliding_counter", counter, [*steps, ((9 + gap) * SECOND_US, "at_most", 9)]))
    # Redis reports more than a limit that was lowered.
    for algorithm, params in RULES:
        if algorithm != "smooth_warmup" and params.get("burst") != 2**32:
            lives.append(above(algorithm, params))
    return lives


def above(algorithm, params):
    """A report above the limit, refunds, and what passes as it flows out."""
    rule = primitive(algorithm, numbers_of(algorithm, params))
    full_us = rule.until(rule.weighs * rule.most, 0, 0) if isinstance(rule, Level) else rule.span_us
    steps = [(0, "said", 3 * rule.most), (0, "check", 1), (0, "at_most", 1), (0, "refund", rule.most), (0, "peek", 1)]
    for tenth in range(1, 31):
        steps.append((tenth * full_us // 10, "check", 1))
    return chosen(algorithm, params, steps)


def bound(rule, span):
    """The most that a rule's algorithm lets pass in an interval of so many µs: what a new or full budget has, and what flows."""
    if not isinstance(rule, Level):
        return rule.most * (span // rule.span_us + 1)
    # What is paid afterwards may be one request more.
    return (rule.depth + (span // rule.tick_us + 1) * rule.brings) // rule.weighs


class Shares(unittest.TestCase):
    def test_the_vectors_are_what_the_reference_decides(self):
        entries = vectors()
        if os.environ.get("SLUICEGATE_WRITE") == "1":
            lines = ",\n".join(f"    {json.dumps(entry, separators=(',', ':'))}" for entry in entries)
            FILE.write_text(f'{{\n  "about": "{ABOUT}",\n  "entries": [\n{lines}\n  ]\n}}\n')
        self.assertEqual(json.loads(FILE.read_text())["entries"], json.loads(json.dumps(entries)))

    def test_no_interval_has_more_than_the_share(self):
        """Checks of random costs, clocks that go forward, and reports of Redis, from any start."""
        for seed in range(20):
            rng = random.Random(seed)
            for algorithm, params in RULES:
                rule, now, passed = primitive(algorithm, numbers_of(algorithm, params)), START_US, []
                span = rule.span_us if not isinstance(rule, Level) else max(rule.until(rule.weighs * rule.most, 0, 0), 1)
                largest = 0
                for _ in range(120):
                    now += rng.choice([0, 1, rng.randrange(span // 30 + 2), rng.randrange(span // 2 + 2)])
                    # Of a fixed window, a report ends with that window: see below.
                    if rng.random() < 0.05 and getattr(rule, "kind", None) is None and algorithm != "smooth_warmup":
                        rule.said(now, max(rng.randrange(2 * rule.most + 1), rule.used(now)))
                        continue
                    cost = rng.choice([1, 1, 2, rng.randrange(1, rule.most + 1)])
                    answer = decide(rule, "check", now, cost)
                    if answer["allowed"]:
                        passed.append((now, cost))
                        largest = max(largest, cost) if isinstance(rule, Level) and rule.afterwards else 0
                for first in range(len(passed)):
                    total = 0
                    for at, cost in passed[first:]:
                        total += cost
                        length = at - passed[first][0]
                        limit = rule.most if not isinstance(rule, Level) and length < rule.span_us else bound(rule, length) + largest
                        self.assertLessEqual(total, limit, (seed, algorithm, params, passed[first][0], at))

    def test_no_fixed_window_has_more_than_the_share_after_reports(self):
        for seed in range(60):
            rng = random.Random(seed)
            rule, now, passed = primitive("fixed_window", [12, 0, 7 * SECOND_US, 0, 0]), START_US, {}
            for _ in range(120):
                now += rng.choice([0, 1, rng.randrange(SECOND_US), rng.randrange(4 * SECOND_US)])
                window = now // rule.span_us
                if rng.random() < 0.2:
                    # As Redis would say it: what passed in this window, and what others took.
                    passed[window] = rng.randrange(passed.get(window, 0), rule.most + 1)
                    rule.said(now, passed[window])
                    continue
                cost = rng.choice([1, 2, 5])
                if decide(rule, "check", now, cost)["allowed"]:
                    passed[window] = passed.get(window, 0) + cost
            self.assertLessEqual(max(passed.values()), rule.most, seed)

    def test_half_of_the_share_of_an_unused_key_is_usable_at_once(self):
        for algorithm, params in RULES:
            rule, got = primitive(algorithm, numbers_of(algorithm, params)), 0
            begun = rule.fresh // rule.weighs if isinstance(rule, Level) and not rule.afterwards else 0
            while decide(rule, "check", START_US, 1)["allowed"] and 2 * got < rule.most:
                got += 1 + decide(rule, "at_most", START_US, rule.most // 4 or 1)["granted"]
            share = 1 if isinstance(rule, Level) and rule.afterwards else rule.most - begun
            self.assertGreaterEqual(2 * got, share, (algorithm, params))

    def test_what_is_refused_passes_after_its_retry(self):
        for seed in range(20):
            rng = random.Random(seed)
            for algorithm, params in RULES:
                rule, now = primitive(algorithm, numbers_of(algorithm, params)), START_US
                for _ in range(60):
                    now += rng.randrange(1000)
                    cost = rng.randrange(1, rule.most + 1)
                    answer = decide(rule, "check", now, cost)
                    if not answer["allowed"]:
                        now += answer["retry_after_us"]
                        self.assertTrue(decide(rule, "peek", now, cost)["allowed"], (seed, algorithm, params))

    def test_holders_are_the_algorithm_of_the_decision_model(self):
        """The lives of `spec/vectors/concurrency`, up to where rules change or a key is reset."""
        files = sorted((FILE.parent.parent / "vectors/concurrency").glob("*.json"))
        played = 0
        for vector in (json.loads(file.read_text()) for file in files):
            rule = primitive("concurrency", numbers_of("concurrency", vector["rules"][0]["params"]))
            for step in vector["steps"]:
                if step["op"] in ("configure", "reset"):
                    break
                if "error" in step["expect"]:
                    continue
                answer = decide(rule, step["op"], step["at_us"], step.get("cost", 1), None, step.get("id"))
                self.assertEqual(answer, {name: step["expect"][name] for name in answer}, (vector["name"], step))
                played += 1
        self.assertGreaterEqual(played, 30)

    def test_a_window_that_redis_spoke_of_ends_when_it_ends(self):
        rule = primitive("fixed_window", [100, 0, 10 * SECOND_US, 0, 0])
        rule.said(START_US + 9 * SECOND_US, 100)
        self.assertFalse(decide(rule, "check", START_US + 9_999_999, 1)["allowed"])
        self.assertTrue(decide(rule, "check", START_US + 10 * SECOND_US, 100)["allowed"])
        self.assertFalse(decide(rule, "check", START_US + 20 * SECOND_US, 1)["allowed"], "what passed here slides")


if __name__ == "__main__":
    unittest.main()
