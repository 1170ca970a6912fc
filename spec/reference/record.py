"""Reads the record of a policy: record.md, with the standard library of Python 3.11 only."""

import base64
import hashlib
import json
import math

from rules import CARRIES, NUMBERS, UNITS, ZONES, split

FORMAT = 1
BYTES_MAX = 8_388_608
# What a decision may take in Redis, and what it takes: redis.md, What it costs.
DECISION_NS_MAX = 300_000
CALL_NS, RULE_NS = 10_000, 5_000
# By code: ns, and the number of the rule that says how many times.
EACH_NS = {6: (285, 3), 8: (114, 0), 9: (285, 0)}
CALENDAR = 4


class Damaged(ValueError):
    """A text that is no record. It changes nothing: record.md, Records that a program does not read."""


class Later(ValueError):
    """A record of a later version. Nothing is decided by its policy: record.md, the same."""


def read(text):
    """The members of a record, checked: `overrides` and `key` are there."""
    found = parse(text)
    if whole(found, "record", low=None) != FORMAT:
        raise Later(f"record: {found['record']} is of a later version")
    whole(found, "version")
    of(found, "app", str)
    if not all(isinstance(app, str) for app in of(found, "apps", list)) or not found["apps"]:
        raise Damaged("apps: expected texts")
    word(found, "on_store_failure", ("local", "allow", "deny"))
    check_overflow(of(found, "overflow", dict))
    key = found.setdefault("key", [])
    if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
        raise Damaged("key: expected texts")
    found.setdefault("overrides", [])
    for one in of(found, "overrides", list):
        of(one, "key", str)
        if "until_ms" in one:
            whole(one, "until_ms")
        check_rules(one)
    check_rules(found)
    return found


def parse(text):
    """The JSON object of a text."""
    def constant(name):
        raise ValueError(f"{name} is no JSON")
    if len(text) > BYTES_MAX:
        raise Damaged("longer than 8 MiB")
    try:
        found = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as problem:
        raise Damaged(str(problem)) from None
    if not isinstance(found, dict):
        raise Damaged("expected an object")
    return found


def of(found, name, kind):
    """A member of that type."""
    if not isinstance(found, dict) or not isinstance(found.get(name), kind):
        raise Damaged(f"{name}: expected a {kind.__name__}")
    return found[name]


def whole(found, name, low=0):
    """A member that is an integer from `low`, which a double has exactly."""
    value = found.get(name)
    if type(value) is not int or (low is not None and value < low) or abs(value) >= 2**53:
        raise Damaged(f"{name}: expected an integer")
    return value


def word(found, name, words):
    """A member that is one of these words: another one is of a later version."""
    if of(found, name, str) not in words:
        raise Later(f"{name}: unknown word `{found[name]}`")
    return found[name]


def check_overflow(overflow):
    """record.md, Over the limit."""
    kind = word(overflow, "kind", ("reject", "shadow", "queue", "degrade", "divert"))
    if kind == "queue":
        whole(overflow, "max_wait_us", low=1)
    if kind == "divert":
        of(overflow, "target", str)
    if kind == "degrade" and "tag" in overflow:
        of(overflow, "tag", str)
    elif kind == "degrade":
        if "response" not in overflow:
            raise Later("overflow: neither `tag` nor `response`")
        response = of(overflow, "response", dict)
        if not 200 <= whole(response, "status") <= 599:
            raise Damaged("status: expected 200 to 599")
        of(response, "body", str)
        if not all(isinstance(value, str) for value in of(response, "headers", dict).values()):
            raise Damaged("headers: expected texts")


def check_rules(found):
    """record.md, Rules."""
    try:
        text = of(found, "blob", str)
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise Damaged("blob: expected base64url") from None
    each = of(found, "each", list)
    check_shape(data)
    whole(found, "life_ms")
    rules = split(data)
    if len(each) != len(rules):
        raise Damaged("each: expected one for each rule")
    if takes_ns(rules) > DECISION_NS_MAX:
        raise Damaged("blob: one decision could take Redis too long")
    for one, (code, flags, name, numbers) in zip(each, rules):
        if hashlib.sha256(of(one, "name", str).encode()).digest()[:8] != name:
            raise Damaged("name: expected that of the rule")
        whole(one, "limit", low=1)
        if "window_us" in one:
            whole(one, "window_us", low=1)
        check_numbers(code, numbers)
        if flags & CALENDAR:
            calendar = of(one, "calendar", dict)
            if UNITS.index(word(calendar, "unit", UNITS)) != numbers[3]:
                raise Damaged("unit: expected that of the rule")
            if of(calendar, "zone", str).lower() not in ZONES:
                raise Later(f"zone: unknown zone `{calendar['zone']}`")


def takes_ns(rules):
    """How long a decision by these rules may take in Redis."""
    total = CALL_NS
    for code, _, _, numbers in rules:
        each, place = EACH_NS.get(code, (0, 0))
        total += RULE_NS + each * numbers[place]
    return total


def check_shape(data):
    """Whether these bytes are whole rules: redis.md, Rules."""
    if len(data) < 3:
        raise Damaged("blob: cut")
    if data[0] != 2 or data[1] >= len(CARRIES):
        raise Later("blob: of another format")
    at = 3
    for _ in range(data[2]):
        if len(data) < at + 11:
            raise Damaged("blob: cut")
        code, count = data[at], data[at + 1]
        if code not in NUMBERS:
            raise Later(f"blob: unknown algorithm {code}")
        if count != NUMBERS[code]:
            raise Damaged("blob: another count of numbers")
        at += 11 + 8 * count
    if at != len(data) or not 1 <= data[2] <= 8:
        raise Damaged("blob: cut")


def check_numbers(code, numbers):
    """record.md, Rules: finite, and at least 1 what is a limit, a burst or a length of time."""
    positive = {1: 5, 2: 2, 4: 5}.get(code, 1)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise Damaged("blob: a number that no rule has")
    if code == 3 and not all(number > 0 for number in numbers[:3]):
        raise Damaged("blob: a number that no rule has")
    if code != 3 and any(number < 1 for number in numbers[:positive]):
        raise Damaged("blob: a number that no rule has")
    if code in (6, 7, 8, 9) and numbers[1] < 1:
        raise Damaged("blob: a number that no rule has")
