"""Makes the rules that the script takes: redis.md, from Rules to Calendars. With the standard library only."""

import base64
import hashlib
import math
import struct
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

CODES = {"token_bucket": 1, "smooth_bursty": 2, "smooth_warmup": 3, "leaky_bucket": 4, "fixed_window": 5,
         "sliding_window": 6, "sliding_counter": 7, "sliding_log": 8, "concurrency": 9}
NUMBERS = {1: 9, 2: 3, 3: 5, 4: 10, 5: 5, 6: 4, 7: 4, 8: 2, 9: 3}  # How many a rule of each code has.
ZONES = {name.lower(): name for name in available_timezones() - {"localtime"}}
CARRIES = ["usage", "proportional", "reset"]
UNITS = ["day", "week", "month", "year"]
DAY_MS = 86_400_000
YEAR_2026_MS = 1_767_225_600_000


def fnv1a(text):
    """The 128-bit FNV-1a hash of bytes: of a permit's id (redis.md, A request), and of a zone's name."""
    value = 0x6C62272E07BB014262B821756295C58D
    for byte in text:
        value = (value ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return value


def zone_number(zone):
    """The number that stands for a time zone: redis.md, How the numbers are made, at its end."""
    return fnv1a(zone.encode()) % 2**48


def bucket(permits, period_us, depth):
    """Tick, units a tick and units a permit of a bucket: redis.md, How the numbers are made."""
    common = math.gcd(permits, period_us)
    tick_us, units_a_tick, units_a_permit = 1, permits // common, period_us // common
    heaviest = 2**52 // depth
    for factor in (2, 3, 5, 7):
        while units_a_permit > heaviest and units_a_permit % factor == 0:
            units_a_permit //= factor
            tick_us *= factor
    if units_a_permit > heaviest:
        tick_us, units_a_permit = tick_us * units_a_permit, 1
    return tick_us, units_a_tick, units_a_permit


def numbers_of(algorithm, given):
    """The numbers of a rule: redis.md, Rules, and How the numbers are made. Defaults: document.md, Algorithms."""
    limit, window_us = given.get("limit"), given.get("window_us")
    if "rate" in given:
        permits, period_us = given["rate"]["permits"], given["rate"]["period_us"]
    if algorithm == "token_bucket":
        burst = given.get("burst", permits)
        interval = given.get("refill") == "interval"
        tick, brings, weighs = (period_us, permits, 1) if interval else bucket(permits, period_us, burst)
        in_use = burst - given.get("initial", burst)
        return [tick, brings, weighs, burst * weighs, burst, in_use * weighs, int(interval), permits, period_us]
    if algorithm == "leaky_bucket":
        depth, delay = given.get("burst", 0) + 1, given.get("delay", "all")
        tick, brings, weighs = bucket(permits, period_us, depth)
        free = 0 if delay in ("all", "none") else delay * weighs
        return [tick, brings, weighs, depth * weighs, depth, int(delay != "none"), 0, free, permits, period_us]
    if algorithm == "smooth_bursty":
        return [permits, period_us, min(float(permits) * given.get("max_burst_us", 1_000_000) / period_us, 2.0**52)]
    if algorithm == "smooth_warmup":
        warmup_us = given["warmup_us"]
        stable = period_us / permits
        cold = stable * given.get("cold_factor", 3.0)
        threshold = 0.5 * warmup_us / stable
        max_stored = threshold + 2.0 * warmup_us / (stable + cold)
        return [stable, threshold, max_stored, (cold - stable) / (max_stored - threshold), warmup_us / max_stored]
    if algorithm == "fixed_window":
        if "calendar" in given:
            return [limit, 2, 0, UNITS.index(given["calendar"]), zone_number(given.get("time_zone", "UTC"))]
        return [limit, int(given.get("align") == "first"), window_us, 0, 0]
    if algorithm == "sliding_window":
        buckets = given.get("buckets", 10)
        return [limit, window_us, -(-window_us // buckets), buckets]
    if algorithm == "sliding_counter":
        step_us = -(-window_us // (2**51 // limit))
        return [limit, window_us, step_us, window_us // step_us]
    if algorithm == "sliding_log":
        return [limit, window_us]
    return [limit, given["ttl_us"], given.get("queue", 0)]


def limit_of(code, numbers):
    """The limit that answers report: redis.md, A reply, at its end."""
    if code in (2, 3):
        return max(1, min(int(numbers[2]), 2**52))
    return int(numbers[4] if code in (1, 4) else numbers[0])


def full_after_us(code, numbers):
    """The time from an empty to a full budget: redis.md, Announcing rules. A bucket takes whole ticks for it."""
    if code in (1, 4):
        return -(-numbers[3] // numbers[1]) * numbers[0]
    if code == 2:
        return math.ceil(numbers[2] * numbers[1] / numbers[0])
    if code == 3:
        return math.ceil(numbers[2] * numbers[4])
    if code == 5:
        return numbers[2] or 366 * DAY_MS * 1000
    if code == 6:
        return numbers[1] + numbers[2]
    return 2 * numbers[1] if code == 7 else numbers[1]


def window_of_headers(code, numbers):
    """The time in which the whole limit comes back, or None: record.md, Rules."""
    if code in (1, 4):
        return min(full_after_us(code, numbers), 2**53 - 1)
    if code == 2:
        return -(-limit_of(code, numbers) * numbers[1] // numbers[0])
    if code == 5:
        return numbers[2] or None
    return numbers[1] if code in (7, 8) else None


def compile_rules(rules, carry):
    """Rules as servers publish them: record.md, Rules; redis.md, Rules."""
    data, each = bytes([2, CARRIES.index(carry), len(rules)]), []
    full_us, full_is_new = 0, True
    for rule in rules:
        algorithm, given, name = rule["algorithm"], rule["params"], rule["name"]
        code, numbers = CODES[algorithm], numbers_of(algorithm, given)
        flags = 2 * (algorithm == "concurrency") + 4 * ("calendar" in given)
        if algorithm == "smooth_bursty" or (algorithm == "token_bucket" and numbers[5] > 0):
            full_is_new = False
        else:
            flags += 1
        data += bytes([code, len(numbers), flags]) + hashlib.sha256(name.encode()).digest()[:8]
        data += struct.pack(f"<{len(numbers)}d", *numbers)
        each.append({"name": name, "limit": limit_of(code, numbers)})
        window_us = window_of_headers(code, numbers)
        if window_us is not None:
            each[-1]["window_us"] = window_us
        if "calendar" in given:
            each[-1]["calendar"] = {"unit": given["calendar"], "zone": given.get("time_zone", "UTC")}
        full_us = max(full_us, full_after_us(code, numbers))
    life_ms = full_us // 1000 + 1 + (0 if full_is_new else 30 * DAY_MS)
    text = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    return {"blob": text, "life_ms": min(life_ms, 400 * DAY_MS), "each": each}


def split(data):
    """*The rules* taken apart: code, flags, first bytes of the name's hash, and numbers of each: redis.md, Rules."""
    rules, at = [], 3
    for _ in range(data[2]):
        code, count, flags = data[at:at + 3]
        rules.append((code, flags, data[at + 3:at + 11], struct.unpack_from(f"<{count}d", data, at + 11)))
        at += 11 + 8 * count
    return rules


def takes_too_long(data):
    """Whether one decision could take Redis more than 0.3 ms: redis.md, What it costs. Counted in ns."""
    ns = 10_000
    for code, _, _, numbers in split(data):
        ns += 5_000 + {6: 285 * numbers[-1], 8: 114 * numbers[0], 9: 285 * numbers[0]}.get(code, 0)
    return ns > 300_000


def blob(data, head, telling=6):
    """*The rules* and a head, of which the first bytes tell, or all if 0, as a call takes them: redis.md, Rules."""
    return bytes([telling]) + len(head).to_bytes(2, "little") + data + head


def in_short(data):
    """The head of *the rules* that a caller brings along: redis.md, Limits that callers bring along."""
    rules, carry = split(data), data[1]
    alone = carry == 0 and [name for _, _, name, _ in rules] == [hashlib.sha256(b"limit").digest()[:8]]
    head = b"" if alone else bytes([128 + 16 * carry + len(rules)])
    for code, flags, name, numbers in rules:
        head += bytes([16 * flags + code, len(numbers)]) + (b"" if alone else name)
        for number in numbers:
            head += short_number(number)
    return head


def short_number(number):
    """A number of a rule in short: redis.md, Limits that callers bring along."""
    if number != int(number):
        return b"\0" + struct.pack("<d", number)
    rest, short = int(number) + 1, b""
    while rest > 127:
        short += bytes([128 + rest % 128])
        rest //= 128
    return short + bytes([rest])


class Rules:
    """The rules of a policy or of an override, taken over at an instant: record.md, Rules."""

    def __init__(self, compiled, since_ms):
        self.data = base64.urlsafe_b64decode(compiled["blob"] + "==")
        self.generation = hashlib.sha256(self.data).digest()[:6]
        self.head = self.generation + min(max(0, since_ms - YEAR_2026_MS), (1 << 40) - 1).to_bytes(5, "little")
        self.life_ms = compiled["life_ms"]
        self.names = {hashlib.sha256(rule["name"].encode()).digest()[:8]: rule["name"] for rule in compiled["each"]}
        self.calendars = {}  # By the numbers that a rule has for its calendar.
        for calendar in [rule["calendar"] for rule in compiled["each"] if "calendar" in rule]:
            unit, zone = calendar["unit"], calendar["zone"]
            self.calendars[UNITS.index(unit), zone_number(zone)] = unit, zone


def begin_of(day, zone):
    """The first instant at which a zone has this date or a later one, in µs: redis.md, Calendars.

    That is what Python takes midnight for: the earlier one where it comes twice; and where clocks skip it, the instant
    at which they do. (No zone has skipped it since 1970 by a step that began before midnight.)
    """
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1_000_000


def window_around(unit, zone, now_us):
    """The calendar window around an instant, in µs: redis.md, Calendars."""
    zone = ZoneInfo(ZONES[zone.lower()])
    day = datetime.fromtimestamp(now_us // 1_000_000, zone).date()
    if begin_of(day + timedelta(1), zone) <= now_us:  # Clocks turned back across midnight: yesterday has ended.
        day += timedelta(1)
    if unit == "day":
        first, following = day, day + timedelta(1)
    elif unit == "week":
        first = day - timedelta(day.weekday())
        following = first + timedelta(7)
    elif unit == "month":
        first = day.replace(day=1)
        following = (first + timedelta(31)).replace(day=1)
    else:
        first = day.replace(month=1, day=1)
        following = first.replace(year=first.year + 1)
    return max(0, begin_of(first, zone)), begin_of(following, zone)
