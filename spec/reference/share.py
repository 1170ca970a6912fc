"""Decides without Redis: failure.md, Three primitives. With the standard library only."""

import math

from rules import CODES, limit_of

EXACT_MAX = 2**53
SPAN_MAX_US = EXACT_MAX - 1
SLOTS = 11
SMOOTH_TICKS = 1024
HOUR_US = 3_600_000_000
LONGEST_US = [25 * HOUR_US, (7 * 24 + 1) * HOUR_US, (31 * 24 + 1) * HOUR_US, (366 * 24 + 1) * HOUR_US]


class Level:
    """Units in use as of an instant, which drain at a steady rate: failure.md, A level."""

    def __init__(self, code, numbers):
        self.most = limit_of(code, numbers)
        self.fresh, self.free, self.afterwards, self.stepped = 0, None, code in (2, 3), False
        if code in (1, 4):
            self.tick_us, self.brings, self.weighs, self.depth = map(int, numbers[:4])
            self.stepped = code == 1 and numbers[6] == 1
            if code == 1:
                self.fresh = int(numbers[5])
            else:
                self.free = int(numbers[7]) if numbers[5] else self.depth
        elif code == 2:
            self.tick_us, self.brings, self.weighs = 1, int(numbers[0]), int(numbers[1])
            self.depth = self.fresh = min(int(numbers[2] * numbers[1]), 2**52)
        else:
            self.tick_us, self.brings, self.depth = 1, SMOOTH_TICKS, 0
            self.weighs = max(min(math.ceil(numbers[0] * SMOOTH_TICKS), 2**52), 1)
        self.state = None

    def in_use(self, now):
        """Units in use at `now`, and since when the running tick runs."""
        if self.state is None:
            return self.fresh, now
        used, at = self.state
        ticks = max(now - at, 0) // self.tick_us
        left = used - ticks * self.brings
        return (left, at + ticks * self.tick_us) if left > 0 else (0, now)

    def until(self, units, at, now):
        """The µs until so many units have drained."""
        if units <= 0:
            return 0
        ticks = -(-units // self.brings)
        return min(max(ticks * self.tick_us - max(now - at, 0), 0), SPAN_MAX_US)

    def check(self, now, cost, max_wait):
        """(passes, wait, retry); `max_wait` None: the verb has none, retry None: never."""
        if cost > self.most and not self.afterwards:
            return False, 0, None
        used, at = self.in_use(now)
        units = cost * self.weighs
        retry = self.until(used + units - EXACT_MAX, at, now)
        if self.free is not None:
            wait = self.until(used - self.free, at, now)
            retry = max(retry, self.until(used + units - self.depth, at, now))
            if max_wait is not None:
                retry = max(retry, wait - max_wait)
        else:
            wait = self.until(used - self.depth + (0 if self.afterwards else units), at, now)
            retry = max(retry, wait - (max_wait or 0))
        return retry <= 0, wait, retry

    def charge(self, now, cost):
        """Has a cost in use that passes."""
        used, at = self.in_use(now)
        if self.tick_us > 1 and not self.stepped and used < self.brings:
            at = max(at, now - used * self.tick_us // self.brings)
        self.state = min(used + cost * self.weighs, EXACT_MAX), at

    def available(self, now):
        """The largest cost that passes now."""
        used, _ = self.in_use(now)
        if self.afterwards and used <= self.depth:
            return EXACT_MAX
        return max(self.depth - used, 0) // self.weighs

    def status(self, now):
        """(remaining, µs until nothing is in use)"""
        used, at = self.in_use(now)
        return max(self.depth - used, 0) // self.weighs, self.until(used, at, now)

    def refund(self, now, cost):
        """Gives permits back. Returns how many."""
        used, at = self.in_use(now)
        back = min(cost * self.weighs, used)
        self.state = used - back, at
        return -(-back // self.weighs)

    def rewind(self, now):
        """Makes a state of later than `now` one of now."""
        self.state = self.state[0], min(self.state[1], now)

    def said(self, now, used):
        """Has so many permits in use, as Redis says."""
        self.state = min(used * self.weighs, EXACT_MAX), now

    def begin(self, now):
        """A key whose first request is refused begins to fill."""
        if self.fresh and not self.afterwards:
            self.state = self.fresh, now

    def used(self, now):
        """Permits in use, rounded up."""
        return -(-self.in_use(now)[0] // self.weighs)


class Window:
    """Ten buckets of a window and one more: failure.md, A window."""

    def __init__(self, code, numbers):
        self.most, self.kind = int(numbers[0]), None
        self.span_us = int(numbers[1])
        if code == 5:
            self.kind = int(numbers[1])
            self.span_us = LONGEST_US[int(numbers[3])] if self.kind == 2 else int(numbers[2])
        self.bucket_us = -(-self.span_us // (SLOTS - 1))
        self.state = None

    def counts(self, now):
        """Pairs of an end and a count, of what counts at `now`: what Redis said first, then buckets in order."""
        if self.state is None:
            return []
        _, buckets, said, till = self.state
        oldest = max(now + 1 - self.span_us, 0) // self.bucket_us
        ends = [((bucket + 1) * self.bucket_us + self.span_us - 1, count)
                for bucket, count in sorted(buckets.items()) if bucket >= oldest and count > 0]
        return ([(till, said)] if now < till and said > 0 else []) + ends

    def used(self, now):
        """Permits in use."""
        return sum(count for _, count in self.counts(now))

    def check(self, now, cost, max_wait):
        """As of a level; nothing waits."""
        del max_wait
        if cost > self.most:
            return False, 0, None
        over, retry = self.used(now) + cost - self.most, 0
        for end, count in sorted(self.counts(now), key=lambda pair: pair[0]):
            if over <= 0:
                break
            over, retry = over - count, end - now
        return retry == 0, 0, retry

    def charge(self, now, cost):
        """Has a cost in use that passes."""
        newest, buckets, said, till = self.state or (0, {}, 0, 0)
        newest = max(newest, now // self.bucket_us)
        buckets = {bucket: count for bucket, count in buckets.items() if bucket > newest - SLOTS}
        buckets[newest] = buckets.get(newest, 0) + cost
        self.state = newest, buckets, said, till

    def available(self, now):
        """The largest cost that passes now."""
        return max(self.most - self.used(now), 0)

    def status(self, now):
        """(remaining, µs until nothing is in use)"""
        return self.available(now), max([end - now for end, _ in self.counts(now)], default=0)

    def refund(self, now, cost):
        """Gives permits back, what counts the longest first. Returns how many."""
        newest, buckets, said, till = self.state
        left, oldest = cost, max(now + 1 - self.span_us, 0) // self.bucket_us
        for bucket in sorted(buckets, reverse=True):
            if bucket >= oldest:
                back = min(left, buckets[bucket])
                buckets[bucket], left = buckets[bucket] - back, left - back
        back = min(left, said if now < till else 0)
        self.state = newest, buckets, said - back, till
        return cost - left + back

    def rewind(self, now):
        """Makes a state of later than `now` one of now: no bucket ends sooner than it did."""
        newest, buckets, said, till = self.state
        till, bucket = min(till, now + self.span_us), now // self.bucket_us
        if bucket < newest:
            back, earlier = newest - bucket - 1, {}
            for old, count in buckets.items():
                at = min(max(old - back, 0), bucket)
                earlier[at] = earlier.get(at, 0) + count
            newest, buckets = bucket, earlier
        self.state = newest, buckets, said, till

    def said(self, now, used):
        """Has so many permits in use, as Redis says: until the window ends that it speaks of, if there is one."""
        newest = now // self.bucket_us
        if self.kind is None:
            self.state = newest, {newest: used}, 0, 0
        elif self.kind == 1:
            self.state = newest, {}, used, now + self.span_us
        else:
            self.state = newest, {}, used, now - now % self.span_us + self.span_us

    def begin(self, now):
        """Nothing is remembered of a refused key."""


class Holders:
    """Permits with ids, each held for its time: the algorithm `concurrency` itself."""

    def __init__(self, numbers):
        self.most, self.span_us = int(numbers[0]), int(numbers[1])
        self.state = None  # Triples of an end, an id and a cost.

    def held(self, now):
        """The permits that are held at `now`, the first to end first."""
        return sorted((permit for permit in self.state or [] if permit[0] > now), key=lambda permit: permit[0])

    def is_held(self, now, permit):
        return any(held == permit for _, held, _ in self.held(now))

    def check(self, now, cost, max_wait):
        """As of a level; nothing waits."""
        del max_wait
        if cost > self.most:
            return False, 0, None
        over, retry = cost - self.available(now), 0
        for end, _, held in self.held(now):
            if over <= 0:
                break
            over, retry = over - held, end - now
        return retry == 0, 0, retry

    def charge(self, now, cost, permit=None):
        """Has a permit held that passes, from now on."""
        self.state = [*self.held(now), (now + self.span_us, permit, cost)]

    def end(self, now, permit):
        """Gives a permit back that is held. Returns its cost."""
        cost = sum(held for _, name, held in self.held(now) if name == permit)
        self.state = [other for other in self.held(now) if other[1] != permit]
        return cost

    def available(self, now):
        """The largest cost that passes now."""
        return max(self.most - sum(cost for _, _, cost in self.held(now)), 0)

    def status(self, now):
        """(remaining, µs until nothing is held)"""
        return self.available(now), max([end - now for end, _, _ in self.held(now)], default=0)

    def refund(self, now, cost):
        """Gives nothing back: that is done by a release, by the id."""
        del now, cost
        return 0

    def rewind(self, now):
        """Has no permit held for longer than its time from `now`."""
        self.state = [(min(end, now + self.span_us), permit, cost) for end, permit, cost in self.state]

    def begin(self, now):
        """Nothing is remembered of a refused key."""


def primitive(algorithm, numbers):
    """The primitive that decides a rule without Redis."""
    code = CODES[algorithm]
    if code == CODES["concurrency"]:
        return Holders(numbers)
    return Level(code, numbers) if code <= 4 else Window(code, numbers)


def on_permit(rule, verb, now, cost, permit):
    """The verbs of permits with ids, of `Holders`: (passes, granted, retry)."""
    if (verb == "acquire") == rule.is_held(now, permit):
        return False, 0, None
    if verb == "acquire":
        passes, _, retry = rule.check(now, cost, None)
        if passes:
            rule.charge(now, cost, permit)
        return passes, cost, retry
    cost = rule.end(now, permit)
    if verb == "renew":
        rule.charge(now, cost, permit)
    return True, cost, 0


def decide(rule, verb, now, cost, max_wait=None, permit=None):
    """The decision model (README.md) with one rule: the answer's fields."""
    before = rule.state
    if before is not None:
        rule.rewind(now)
    granted, passes, wait, retry = cost, True, 0, 0
    if verb == "refund":
        granted = rule.refund(now, cost) if rule.state is not None else 0
    elif verb in ("acquire", "release", "renew"):
        passes, granted, retry = on_permit(rule, verb, now, cost, permit)
    else:
        if verb == "at_most":
            granted = max(min(cost, rule.available(now)), 1)
        passes, wait, retry = rule.check(now, granted, max_wait)
        if verb != "peek" and passes:
            rule.charge(now, granted)
        elif verb != "peek" and rule.state is None:
            rule.begin(now)
    remaining, reset = rule.status(now)
    if verb == "peek":
        rule.state = before
    return {"allowed": passes, "granted": granted if passes else 0, "wait_us": wait if passes else 0,
            "remaining": remaining, "retry_after_us": 0 if passes else retry, "reset_after_us": reset}
