"""The reference client of Sluicegate: it follows the policies in Redis, and has the script there decide.

It is written from the pages beside this folder alone, with the standard library of Python 3.11 and the time zones of
the system: redis-protocol.md and the call of redis.md are here, the rules and calendars of redis.md in `rules.py`,
record.md in `record.py`. It leaves out what failure.md describes: without an answer of Redis it raises what the
socket raised, and what becomes of a refusal (`Policy.overflow`) is up to the caller.

    program = Program(Redis("127.0.0.1", 6379), app="shop")
    program.look()
    program.decide("orders", "check", key=b"alice")
"""

import base64
import hashlib
import pathlib
import random
import select
import socket
import time

import record
from rules import DAY_MS, Rules, blob, fnv1a, limit_of, split, takes_too_long, window_around

SCRIPT = (pathlib.Path(__file__).parent / "../redis/decide.lua").read_bytes()
SHA1 = hashlib.sha1(SCRIPT).hexdigest()
VERBS = {"check": 1, "reserve": 2, "at_most": 3, "peek": 4, "refund": 5, "reset": 6,
         "acquire": 7, "release": 8, "renew": 9}
BY_NAME, BY_NUMBER = ("acquire", "release", "renew"), ("check", "reserve", "at_most")
CLOCKS = ["server", "given", "client"]
UNLIMITED = 2**53 - 1


class Problem(Exception):
    """There is no decision: `unconfigured`, `unsupported`, `range`, `foreign`, `malformed ..`, or `given up`."""


class RedisError(Exception):
    """An error that Redis answered, such as `WRONGTYPE ..`."""


class Redis:
    """A connection to Redis, protocol RESP2. After an OSError it is of no use, and no call is repeated."""

    def __init__(self, host, port):
        self.socket, self.buffer = socket.create_connection((host, port), timeout=5), b""

    def command(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self.read()

    def take(self, length):
        while len(self.buffer) < length:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("Redis closed the connection")
            self.buffer += more
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def read(self):
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.take(1)
        kind, line = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(line.decode(errors="replace"))
        if kind == b"$":
            return None if line == b"-1" else self.take(int(line) + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(line))]
        return int(line) if kind == b":" else line

    def waits(self, seconds):
        """Whether something comes within so many seconds."""
        return bool(self.buffer or select.select([self.socket], [], [], seconds)[0])


def hash_of(*texts):
    """22 characters of the hash of texts, each behind its length: redis.md, Keys."""
    joined = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    return base64.urlsafe_b64encode(hashlib.sha256(joined).digest()[:16])[:22].decode()


def state_key(policy, key):
    """Where the state of a key is: redis.md, Keys."""
    return f"sg:{{{hash_of(policy.encode(), key)}}}"


def rules_key(policy, generation):
    """Where *the rules* of a generation are: redis.md, Announcing rules."""
    return f"sg:rules:{hash_of(policy.encode())}:{generation.hex()}"


def request(verb, cost=1, max_wait_us=UNLIMITED, permit=b"", clock="server", now_us=0, windows=(), before=b""):
    """The bytes of a request: redis.md, A request. `before` is nothing, or 1 and a blob, or 2."""
    if verb in ("reset", "release", "renew"):
        cost = 1
    asked = bytes([VERBS[verb], CLOCKS.index(clock)]) + cost.to_bytes(4, "little")
    if verb == "reserve":
        asked += max_wait_us.to_bytes(7, "little")
    if verb in BY_NAME:
        asked += fnv1a(permit).to_bytes(16, "big")
    if clock != "server":
        asked += now_us.to_bytes(7, "little")
    for start_us, end_us in windows:
        asked += start_us.to_bytes(7, "little") + end_us.to_bytes(7, "little")
    return asked + before


def read_reply(reply, verb, data, names):
    """The decision of a reply, or how the state begins whose rules are unknown (bytes): redis.md, A reply."""
    rules = split(data)
    several = len(rules) if len(rules) > 1 else 0
    # Behind it may be requests that wait for a permit in servers, which see to them themselves.
    called = len(reply) - 27 - 7 * several
    if reply[:1] in (b"\0", b"\1") and called >= 0 and called % 24 == 0 and reply[1] < len(rules):
        code, _, name, numbers = rules[reply[1]]
        time_us, full_us = (int.from_bytes(reply[at:at + 7], "little") for at in (6, 20))
        places = range(27, 27 + 7 * several, 7) if several else [13]
        decided, *left = (int.from_bytes(reply[at:at + 7], "little", signed=True) for at in (13, *places))
        allowed = reply[0] == 1
        retry_us = 0 if allowed else None if time_us == 2**56 - 1 else time_us
        own_name = names.get(name) or next(iter(names.values()))
        limit = limit_of(code, numbers)
        in_use = {names[name]: max(limit_of(code, numbers) - left, 0)
                  for (code, _, name, numbers), left in zip(rules, left) if name in names}
        return {"allowed": allowed, "granted": int.from_bytes(reply[2:6], "little"),
                "wait_us": time_us if allowed else 0, "limit": limit, "remaining": max(decided, 0),
                "retry_after_us": retry_us, "reset_after_us": full_us, "rule": own_name,
                "in_use": in_use or {own_name: max(limit - decided, 0)}}
    by_name = any(flags & 2 for _, flags, _, _ in rules)
    if reply == b"\2" and verb in (BY_NUMBER if by_name else BY_NAME):
        raise Problem("unsupported")
    if reply[:1] == b"\3" and len(reply) > 1:
        return reply[1:]
    if reply[:1] == b"\4":
        raise Problem("malformed " + reply[1:].decode(errors="replace"))
    raise Problem("foreign")


class Policy:
    """A policy as a program holds it: record.md."""

    def __init__(self, text, now_ms, after_ms=-1):
        found = record.read(text)
        since_ms = found.get("since_ms")
        is_known = type(since_ms) is int and 0 <= since_ms < 1 << 53
        since_ms = max(since_ms if is_known else now_ms, after_ms + 1)
        self.text, self.since_ms, self.version, self.owner = text, since_ms, found["version"], found["app"]
        self.apps, self.overflow, self.rules = found["apps"], found["overflow"], Rules(found, since_ms)
        self.overrides = {}  # By key: the rules, when they end in ms, and the rules from then on.
        for one in found["overrides"]:
            until_ms = one.get("until_ms", float("inf"))
            after = Rules(found, max(since_ms, until_ms)) if "until_ms" in one else None
            self.overrides[one["key"].encode()] = Rules(one, since_ms), until_ms, after
        if any(takes_too_long(rules.data) for rules in [self.rules, *(own[0] for own in self.overrides.values())]):
            raise record.Damaged("rules that take Redis too long")

    def rules_of(self, key, now_us):
        """The rules of a key: redis-protocol.md, Deciding."""
        own, until_ms, after = self.overrides.get(key, (self.rules, float("inf"), None))
        return own if now_us // 1000 < until_ms else after

    def lets(self, app, verb):
        """Whether an app may ask this: redis-protocol.md, What is where."""
        named = app in self.apps or (verb in ("refund", "reset") and app == self.owner)
        return named or ("*" in self.apps and (verb not in ("refund", "reset") or self.owner == ""))


class Program:
    """A program that holds policies, and decides by them: redis-protocol.md, Reading and Deciding."""

    def __init__(self, redis, app):
        self.redis, self.app = redis, app
        self.policies, self.unread = {}, {}  # What is held, and what could not be read and why.
        self.used, self.announced = {}, {}  # By policy and generation: *the rules*, and when they were announced.
        self.revision, self.went_back, self.clock = None, False, "server"

    def find(self):
        """The published revision, None if there is none of format 1, and all fields: redis-protocol.md, Reading."""
        found = self.redis.command("HGETALL", "sg:{policies}")
        fields = dict(zip(found[::2], found[1::2]))
        revision = fields.get(b"#revision", b"")
        return (int(revision) if fields.get(b"#format") == b"1" and revision.isdigit() else None), fields

    def look(self):
        """Takes over what is later, and what is earlier at the second look: redis-protocol.md, Reading."""
        revision, fields = self.find()
        again, self.went_back = self.went_back, False
        if revision is None:
            return
        self.clock = "client" if fields.get(b"#clock") == b"client" else "server"
        if self.revision is None or revision > self.revision or (revision < self.revision and again):
            self.take_over(revision, fields)
        self.went_back = revision < self.revision

    def hear(self, message):
        """Takes over what is later, when a message says another number: redis-protocol.md, Reading."""
        if message.isdigit() and int(message) != self.revision:
            revision, fields = self.find()
            if revision is not None and (self.revision is None or revision > self.revision):
                self.take_over(revision, fields)

    def follow(self, listener):
        """Looks about every ten seconds, and hears on a second connection: redis-protocol.md, Reading."""
        listener.command("SUBSCRIBE", "sg:policies")
        while True:
            self.look()
            next_look = time.monotonic() + random.uniform(9, 11)
            while (seconds := next_look - time.monotonic()) > 0:
                if listener.waits(seconds):
                    self.hear(listener.read()[-1])

    def take_over(self, revision, fields):
        """Policies that changed: record.md, Records that a program does not read."""
        held, self.policies, self.unread, self.revision = self.policies, {}, {}, revision
        for field, text in fields.items():
            if field.startswith(b"#"):
                continue
            name = field.decode(errors="replace")
            policy = held.get(name)
            if policy is None or policy.text != text:
                try:
                    policy = Policy(text, time.time_ns() // 1_000_000, policy.since_ms if policy else -1)
                except (record.Damaged, record.Later) as problem:
                    self.unread[name] = str(problem)
                    policy = policy if isinstance(problem, record.Damaged) else None
            if policy:
                self.policies[name] = policy

    def announce(self, name, rules, clock):
        """Writes *the rules* for others to find, every ten minutes: redis.md, Announcing rules."""
        place, now = (name, rules.generation), time.monotonic()
        if place not in self.announced or now - self.announced[place] >= 600:
            end_ms = rules.life_ms + 20 * 60_000 + (0 if clock == "server" else DAY_MS)
            self.redis.command("SET", rules_key(*place), rules.data, "PX", end_ms)
            self.used[place], self.announced[place] = rules.data, now

    def rules_of(self, name, generation):
        """*The rules* of a generation, or None: redis.md, Announcing rules."""
        if (name, generation) not in self.used:
            data = self.redis.command("GET", rules_key(name, generation))
            if data is None or hashlib.sha256(data).digest()[:6] != generation:
                return None
            self.used[name, generation] = data
        return self.used[name, generation]

    def call(self, key, rules, asked):
        """One call of the script: redis.md, The call."""
        try:
            return self.redis.command("EVALSHA", SHA1, 1, key, rules, asked)
        except RedisError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
            self.redis.command("SCRIPT", "LOAD", SCRIPT)
            return self.redis.command("EVALSHA", SHA1, 1, key, rules, asked)

    def decide(self, name, verb, key=b"", cost=1, max_wait_us=UNLIMITED, permit=b"", at_us=None):
        """A decision, its fields as in README.md: redis-protocol.md, Deciding. With `at_us` the time is given."""
        policy = self.policies.get(name)
        if policy is None or not policy.lets(self.app, verb):
            raise Problem("unconfigured")
        if not 1 <= cost <= 2**31 or len(key) > 1024 or (verb in BY_NAME and not 1 <= len(permit) <= 1024):
            raise Problem("range")
        clock, now_us = (self.clock, time.time_ns() // 1000) if at_us is None else ("given", at_us)
        rules = policy.rules_of(key, now_us)
        self.announce(name, rules, clock)
        data, head, before = rules.data, rules.head, b""
        for _ in range(8):
            windows = self.windows(rules, data, now_us)
            asked = request(verb, cost, min(max_wait_us, UNLIMITED), permit, clock, now_us, windows, before)
            answer = read_reply(self.call(state_key(name, key), blob(data, head), asked), verb, data, rules.names)
            if isinstance(answer, dict):
                answer.pop("in_use")  # A local share begins with it (failure.md); this client has none.
                return answer
            data, head, before = self.in_turn(name, rules, answer[:11])
        raise Problem("given up")

    def windows(self, rules, data, now_us):
        """The windows that these data ask for: redis.md, Calendars, and Other rules than those that wrote the state."""
        asked = [(int(numbers[3]), int(numbers[4])) for _, flags, _, numbers in split(data) if flags & 4]
        if not set(asked) <= set(rules.calendars):
            raise Problem("malformed state")
        return [window_around(*rules.calendars[calendar], now_us) for calendar in asked]

    def in_turn(self, name, rules, head):
        """With what to call again: *the rules*, their head, and what wrote the state: redis.md, Other rules than ..."""
        data = self.rules_of(name, head[:6]) if len(head) == 11 else None
        if data is None:
            return rules.data, rules.head, b"\2"
        instant, own_instant = (int.from_bytes(one[6:], "little") for one in (head, rules.head))
        if (instant, head[:6]) > (own_instant, rules.generation):
            return data, head, b""
        return rules.data, rules.head, b"\1" + blob(data, head)
