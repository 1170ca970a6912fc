"""Reads a policy document, and makes keys of requests: document.md, with the standard library of Python 3.11 only.

`read` gives a document's rules in the form of the vectors: a name, an algorithm and its parameters in permits and
microseconds. `direct.py` makes of them what the script takes. Each reader below gets a value and its path.
"""

import hashlib
import ipaddress
import json
import re
import zoneinfo
from datetime import datetime, timezone

UNIT = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
for name, short in {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}.items():
    UNIT[name] = UNIT[short]
BYTES = {"": 1, "B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
LONGEST_US = 366 * UNIT["d"]
MOST = 2**32
ZONES = {name.lower(): name for name in zoneinfo.available_timezones() - {"localtime"}}
TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}"


class DocumentError(ValueError):
    """A document that cannot be read, and the path of what is wrong with it: document.md, What cannot be read."""

    def __init__(self, path, problem):
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path


def parse(text):
    """The JSON of a text, in which `-0` is no whole number and `1e+1` no number at all: document.md, Reading."""
    def constant(word):
        raise ValueError(f"{word} is no JSON")
    if len(text) > 8_388_608:
        raise DocumentError("", "is longer than 8 MiB")
    try:
        return json.loads(text, parse_constant=constant,
                          parse_int=lambda digits: float(digits) if digits.startswith("-") else int(digits),
                          parse_float=lambda digits: float("nan") if "+" in digits else float(digits))
    except (ValueError, RecursionError) as problem:
        raise DocumentError("", str(problem)) from None


# Values: document.md, Values. Each function gives a reader.

def whole(low, high):
    def read_whole(value, path):
        if type(value) is not int or not low <= value <= high:  # A bool is no number.
            raise DocumentError(path, f"expected a whole number from {low} to {high}")
        return value
    return read_whole


def text(low, high, pattern=r"[^\x00-\x1f\x7f-\x9f]*"):
    """A text of so many bytes of UTF-8, by default without control characters."""
    def read_text(value, path):
        try:
            if low <= len(value.encode()) <= high and re.fullmatch(pattern, value, re.DOTALL):
                return value
        except (AttributeError, UnicodeEncodeError):  # It is no text, or has half of a surrogate pair.
            pass
        raise DocumentError(path, f"expected a text of {low} to {high} bytes that matches {pattern}")
    return read_text


def word(*words):
    def read_word(value, path):
        if not isinstance(value, str) or value not in words:
            raise DocumentError(path, f"expected one of {words}")
        return value
    return read_word


def each(low, high, read_item, once=True):
    """A list of so many items, each of them once."""
    def read_list(value, path):
        if not isinstance(value, list) or not low <= len(value) <= high:
            raise DocumentError(path, f"expected a list of {low} to {high}")
        items = []
        for i, item in enumerate(value):
            items.append(read_item(item, f"{path}[{i}]"))
            if once and items[-1] in items[:-1]:
                raise DocumentError(f"{path}[{i}]", "is there twice")
        return items
    return read_list


def fields(readers, required=()):
    """An object of known fields, each with its reader."""
    def read_fields(value, path):
        if not isinstance(value, dict):
            raise DocumentError(path, f"expected an object of {list(readers)}")
        dot = path + "." if path else ""
        for field in [*value, *required]:
            if field not in readers or field not in value:
                raise DocumentError(dot + field, "is missing" if field in readers else "unknown field")
        return {field: readers[field](value[field], dot + field) for field in value}
    return read_fields


def one_of(readers, *words):
    """One of these words, or an object of exactly one of these fields."""
    def read_one(value, path):
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in readers:
            return fields(readers)(value, path)
        return word(*words)(value, path)
    return read_one


def duration(value, path):
    found = re.fullmatch(f"([1-9][0-9]{{0,18}})({'|'.join(UNIT)})", value) if isinstance(value, str) else None
    if not found or int(found[1]) * UNIT[found[2]] > LONGEST_US:
        raise DocumentError(path, "expected a duration from 1us to 366d")
    return int(found[1]) * UNIT[found[2]]


def instant(value, path):
    """A second of UTC, in ms since 1970."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", value):
        raise DocumentError(path, "expected an instant such as 2026-12-31T18:00:00Z")
    try:
        at = datetime.strptime(value[:-1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        raise DocumentError(path, "there is no such instant") from None
    if not 1970 <= at.year <= 2099 or value[17:19] > "59":
        raise DocumentError(path, "expected 1970 to 2099, without leap seconds")
    return int(at.timestamp()) * 1000


def rate(value, path):
    number = "[1-9][0-9]{0,18}"
    form = f"({number})({'|'.join(BYTES)})/({number})?({'|'.join(UNIT)})"
    found = re.fullmatch(form, value) if isinstance(value, str) else None
    if found:
        permits, period_us = int(found[1]) * BYTES[found[2]], int(found[3] or 1) * UNIT[found[4]]
        if permits <= MOST and period_us <= LONGEST_US:
            return {"permits": permits, "period_us": period_us}
    raise DocumentError(path, "expected a rate of 1 to 2^32 permits in 1us to 366d")


def factor(value, path):
    if type(value) not in (int, float) or not 1 < value <= 1000:
        raise DocumentError(path, "expected a number above 1, at most 1000")
    return float(value)


def delay(value, path):
    return whole(0, MOST)(value, path) if type(value) is int else word("all", "none")(value, path)


def time_zone(value, path):
    if not isinstance(value, str) or not value.isascii() or value.lower() not in ZONES:
        raise DocumentError(path, "expected the name of a time zone")
    return value


def attribute(value, path):
    """An attribute of a request; the name of a header becomes small letters: Keys made of attributes."""
    plain = "remote_ip|path|method|host|user_agent|status"
    return text(1, 135, f"{plain}|header:{TOKEN}")(value, path).lower()


def headers(value, path):
    """The headers of a `response`: document.md, Overflow."""
    if not isinstance(value, dict) or len(value) > 32:
        raise DocumentError(path, "expected an object of at most 32 fields")
    for field, content in value.items():
        text(1, 128, TOKEN)(field, f"{path}.{field}")
        text(1, 4096, r"[\x20-\x7e]*")(content, f"{path}.{field}")
    if len({field.lower() for field in value}) < len(value):
        raise DocumentError(path, "two fields have the same name")
    return {field.lower(): content for field, content in value.items()}


# Rules: document.md, Rules and Algorithms.

LIMIT, NAME = whole(1, MOST), text(1, 128, "[a-z0-9._-]*")
ALGORITHMS = {
    "token_bucket": fields({"rate": rate, "burst": LIMIT, "initial": whole(0, MOST),
                            "refill": word("smooth", "interval")}, ["rate"]),
    "leaky_bucket": fields({"rate": rate, "burst": whole(0, MOST), "delay": delay}, ["rate"]),
    "smooth_bursty": fields({"rate": rate, "max_burst": duration}, ["rate"]),
    "smooth_warmup": fields({"rate": rate, "warmup": duration, "cold_factor": factor}, ["rate", "warmup"]),
    "fixed_window": fields({"limit": LIMIT, "window": duration, "align": word("epoch", "first"), "time_zone": time_zone,
                            "calendar": word("day", "week", "month", "year")}, ["limit"]),
    "sliding_window": fields({"limit": LIMIT, "window": duration, "buckets": whole(1, 1000)}, ["limit", "window"]),
    "sliding_counter": fields({"limit": whole(1, MOST - 1), "window": duration}, ["limit", "window"]),
    "sliding_log": fields({"limit": whole(1, 10_000), "window": duration}, ["limit", "window"]),
    "concurrency": fields({"limit": whole(1, 10_000), "ttl": duration, "queue": whole(0, 0)}, ["limit", "ttl"]),
}


def parameters(algorithm, value, path):
    """The parameters of a rule, and the bounds that depend on another parameter: document.md, Algorithms."""
    read = ALGORITHMS[algorithm](value, path)
    wrong = None
    if algorithm == "token_bucket" and read.get("initial", 0) > read.get("burst", read["rate"]["permits"]):
        wrong = "initial"
    if algorithm == "leaky_bucket" and type(read.get("delay")) is int and read["delay"] > read.get("burst", 0):
        wrong = "delay"
    if algorithm == "sliding_window" and read["window"] < read.get("buckets", 10):
        wrong = "window"
    if algorithm == "fixed_window":
        if ("window" in read) == ("calendar" in read):
            wrong = "window"
        elif "calendar" in read and "align" in read:
            wrong = "align"
        elif "calendar" not in read and "time_zone" in read:
            wrong = "time_zone"
    if wrong:
        raise DocumentError(f"{path}.{wrong}", "does not go with the other parameters")
    spans = ("window", "ttl", "max_burst", "warmup")
    return {name + "_us" if name in spans else name: value for name, value in read.items()}


def rule(value, path):
    algorithms = [field for field in value if field in ALGORITHMS] if isinstance(value, dict) else []
    if len(algorithms) != 1:
        raise DocumentError(path, "expected an object with `name` and one algorithm")
    for field in value:
        if field not in ("name", *algorithms):
            raise DocumentError(f"{path}.{field}", "unknown field")
    algorithm = algorithms[0]
    name = NAME(value["name"], f"{path}.name") if "name" in value else None
    return {"name": name, "algorithm": algorithm,
            "params": parameters(algorithm, value[algorithm], f"{path}.{algorithm}")}


def rules(value, path):
    read = each(1, 8, rule, once=False)(value, path)
    if len(read) == 1:
        read[0]["name"] = read[0]["name"] or read[0]["algorithm"]
    names = [one["name"] for one in read]
    for i, name in enumerate(names):
        if name is None or name in names[:i]:
            raise DocumentError(f"{path}[{i}].name", "is missing" if name is None else "is there twice")
    return read


# A policy: document.md, A policy, Overrides, Overflow and Leases.

def overrides(value, path):
    override = fields({"key": text(1, 1024, ".*"), "until": instant, "rules": rules}, ["key", "rules"])
    read = each(0, 1000, override, once=False)(value, path)
    seen = set()
    for i, one in enumerate(read):
        if one["key"] in seen:
            raise DocumentError(f"{path}[{i}].key", "is there twice")
        seen.add(one["key"])
    return read


def on_overload(value, path):
    read = one_of({"wait": duration}, "refuse")(value, path)
    if read != "refuse" and read["wait"] > 10 * UNIT["s"]:
        raise DocumentError(f"{path}.wait", "is longer than 10s")
    return read


def leases(value, path):
    if not isinstance(value, dict):
        return word("auto", "off")(value, path)
    read = fields({"max_share": text(2, 3, "([1-9]|[1-4][0-9]|50)%"), "term": duration})(value, path)
    if not 100 * UNIT["ms"] <= read.get("term", 2 * UNIT["s"]) <= 2 * UNIT["s"]:
        raise DocumentError(f"{path}.term", "expected 100ms to 2s")
    return read


def is_leasable(rule):
    """Whether servers may hold permits of a rule in advance: Leases."""
    algorithm, params = rule["algorithm"], rule["params"]
    if algorithm == "leaky_bucket":
        return params.get("delay", "all") == "none"
    if algorithm in ("smooth_bursty", "smooth_warmup", "concurrency"):
        return False
    seconds = 1 if algorithm == "fixed_window" else 10
    return params.get("window_us", LONGEST_US) >= seconds * UNIT["s"]


def check_leases(policy):
    """Bounds of leases need rules that can be leased: Leases."""
    queues = isinstance(policy.get("overflow"), dict) and "queue" in policy["overflow"]
    lists = [policy["rules"], *(one["rules"] for one in policy.get("overrides", []))]
    if isinstance(policy.get("leases"), dict) and (queues or not all(is_leasable(rule) for each in lists for rule in each)):
        raise DocumentError("leases", "the permits cannot be leased; expected `auto` or `off`")


def check_permits(policy):
    """Rules that hand out permits have neither a queue nor a `match`: Rules."""
    lists = [policy["rules"], *(one["rules"] for one in policy.get("overrides", []))]
    if any(rule["algorithm"] == "concurrency" for each in lists for rule in each):
        if isinstance(policy.get("overflow"), dict) and "queue" in policy["overflow"]:
            raise DocumentError("overflow", "`acquire` does not wait; expected `reject`, `degrade`, `divert` or `shadow`")
        if "match" in policy:
            raise DocumentError("match", "gateways only check requests, and hold no permits")


def conditions(**more):
    """`host`, `path` and `method` of a request, at least one of all fields."""
    place = text(1, 4096, r"/[^\x00-\x1f\x7f-\x9f?#]*")
    method = text(1, 128, f"(?!.*[a-z]){TOKEN}")
    host = text(1, 253, r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
    known = {"host": each(1, 64, host), "path": one_of({"exact": place, "prefix": place, "starts_with": place}),
             "method": each(1, 40, method), **more}

    def read(value, path):
        found = fields(known)(value, path)
        if not found:
            raise DocumentError(path, "expected at least one field")
        return found
    return read


def match(value, path):
    case = conditions(**{"except": each(1, 256, conditions(), once=False)})
    return (each(1, 256, case, once=False) if isinstance(value, list) else case)(value, path)


RESPONSE = fields({"status": whole(200, 599), "body": text(0, 65536, ".*"), "headers": headers}, ["status", "body"])
OVERFLOW = one_of({"queue": fields({"max_wait": duration}, ["max_wait"]),
                   "degrade": one_of({"tag": NAME, "response": RESPONSE}),
                   "divert": fields({"target": text(1, 4096)}, ["target"])}, "reject", "shadow")
POLICY = fields({
    "name": NAME, "rules": rules, "apps": each(1, 1000, text(1, 128, r"[a-z0-9._-]*|\*")), "overrides": overrides,
    "carry": word("usage", "proportional", "reset"), "overflow": OVERFLOW, "on_overload": on_overload, "match": match,
    "on_store_failure": word("local", "allow", "deny"), "on_key_quota": word("share", "deny"),
    "leases": leases,
    "key": each(1, 8, attribute)}, ["name", "rules"])


def read(tree):
    """A document that was parsed, checked as a whole; what it leaves out is left out."""
    policy = POLICY(tree, "")
    check_leases(policy)
    check_permits(policy)
    return policy


# Keys: document.md, Keys made of attributes.

def one_path(path):
    """A path in one spelling. A ValueError says that the request is none that a gateway lets pass."""
    path = re.sub(rb"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", b"", path.encode("utf-8", "surrogateescape"))
    path = re.split(rb"[?#]", path)[0]
    if not path.startswith(b"/") or re.search(rb"%(?![0-9A-Fa-f]{2})", path):
        raise ValueError("no path")
    parts = re.split(rb"(/|%2[Ff])", path)[1:]  # Slash, segment, slash, segment, and so on.
    kept, decoded = [], None
    for slash, segment, after in zip(parts[::2], parts[1::2], [*parts[2::2], None]):
        before = decoded
        decoded = re.sub(rb"%(..)", lambda found: bytes.fromhex(found[1].decode()), segment)
        if decoded == b"..":
            if segment != b".." or slash != b"/" or after not in (b"/", None) or before == b"":
                raise ValueError("a hidden `..`")
            kept = kept[:-1]
        elif decoded not in (b"", b"."):
            kept.append(decoded)
    whole_path = b"/" + b"/".join(kept) + (b"/" if kept and decoded in (b"", b".", b"..") else b"")
    characters = whole_path.decode("utf-8", "surrogateescape")
    return re.sub("[%?#\x00-\x1f\x7f\udc80-\udcff]", lambda found: f"%{ord(found[0]) & 0xff:02X}", characters)


def one_address(address):
    """The address of a client: four decimal numbers, or the first 64 bits."""
    ip = ipaddress.ip_address(address)
    if ip.version == 6 and int(ip) >> 32 in (0xffff, 0x0064ff9b << 64):
        ip = ipaddress.IPv4Address(int(ip) & 0xffffffff)
    return str(ip) if ip.version == 4 else f"{ipaddress.IPv6Address(int(ip) >> 64 << 64)}/64"


def one_host(host):
    """A host in ASCII small letters, without port and without dots at its end."""
    return re.sub(":[0-9]*$", "", host).encode().lower().decode().rstrip(".")


def join_key(values):
    """The key that the values of a policy's attributes make, in its order, as bytes; empty: the shared budget."""
    if len(values) > 1:
        values = [re.sub(r"([\\|])", r"\\\1", value) for value in values]
    key = "|".join(values).encode()
    return key if len(key) <= 1024 else b"\xff" + hashlib.sha256(key).digest()
