"""Runs the vectors and the wire entries beside this folder through the reference client: `python3 test_direct.py`."""

import collections
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True  # The folder stays as it is.
import direct
import keys
import record
import share
from rules import YEAR_2026_MS, Rules, blob, compile_rules, fnv1a, in_short, split, window_around

SPEC = pathlib.Path(__file__).parent.parent
UNIT_US = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
port = None


def rule(name, algorithm, **params):
    """A rule in the form of the vectors."""
    return {"name": name, "algorithm": algorithm, "params": params}


def fixed(limit, name="minute", window_us=60_000_000):
    return rule(name, "fixed_window", limit=limit, window_us=window_us)


def record_of(*rules, overrides=(), apps=("shop",), carry="usage", **more):
    """The text of a record of app `shop`."""
    own = [{"key": key, **until, **compile_rules(rules, carry)} for key, until, rules in overrides]
    return json.dumps({"record": 1, "version": 1, "app": "shop", "apps": list(apps), "on_store_failure": "local",
                       "overflow": {"kind": "reject"}, **compile_rules(rules or [fixed(10)], carry),
                       **({"overrides": own} if own else {}), **more})


def span_us(text):
    """The time that a text such as `10s` is."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(number or "1") * UNIT_US[text[len(number):]]


def of_limits(one):
    """A rule of `limits.json` in the form of the vectors."""
    (algorithm, given), = ((name, value) for name, value in one.items() if name != "name")
    params = {}
    for name, value in given.items():
        if name == "rate":
            permits, _, span = value.partition("/")
            permits = permits.replace("MiB", "")
            scale = 2**20 if "MiB" in value else 1
            params[name] = {"permits": int(permits) * scale, "period_us": span_us(span)}
        elif name in ("window", "max_burst", "warmup", "ttl"):
            params[f"{name}_us"] = span_us(value)
        else:
            params[name] = value
    return rule(one.get("name", algorithm), algorithm, **params)


def setUpModule():
    """Starts a Redis of its own on a free port."""
    global port
    program = shutil.which(os.environ.get("SLUICEGATE_REDIS_SERVER", "redis-server"))
    if program is None:
        if os.environ.get("CI") == "true":
            raise RuntimeError("redis-server is not installed")
        return print("The tests that need Redis are skipped: redis-server is not installed.")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder.name]
    server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
    unittest.addModuleCleanup(server.wait)
    unittest.addModuleCleanup(server.terminate)
    for _ in range(100):
        try:
            return direct.Redis("127.0.0.1", port).socket.close()
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError("redis-server did not start")


def read(file):
    return json.loads((SPEC / file).read_text())


class Wire(unittest.TestCase):
    """README.md, On the wire. `headers.json` is left out: what it follows is not on the pages of this folder."""

    def compare(self, file, check):
        """Checks all entries of a file, and prints how many of them were right."""
        entries, wrong = read(f"wire/{file}")["entries"], []
        for number, entry in enumerate(entries):
            try:
                check(entry)
            except Exception as problem:
                wrong.append(f"entry {number}: {type(problem).__name__}: {problem}")
        print(f"wire/{file}: {len(entries) - len(wrong)} of {len(entries)} entries")
        self.assertEqual([], wrong[:10])

    def test_keys(self):
        def check(entry):
            if "state_key" in entry:
                key = bytes.fromhex(entry["key_hex"])
                self.assertEqual(entry["state_key"], direct.state_key(entry["policy"], key))
            elif "rules_key" in entry:
                generation = bytes.fromhex(entry["generation"])
                self.assertEqual(entry["rules_key"], direct.rules_key(entry["policy"], generation))
            else:
                permit = fnv1a(entry["permit_id"].encode()).to_bytes(16, "big")
                self.assertEqual(entry["permit_hex"], permit.hex())
        self.compare("keys.json", check)

    def test_records(self):
        costly = []

        def check(entry):
            if "later" in entry:
                with self.assertRaises(record.Later if entry["later"] else record.Damaged):
                    record.read(entry["record"])
                return
            try:
                rules = Rules(record.read(entry["record"]), entry["since_us"] // 1000)
            except record.Damaged as problem:
                # Servers with another store than Redis may have such rules.
                self.assertEqual("blob: one decision could take Redis too long", str(problem))
                costly.append(entry["name"])
                return
            self.assertEqual(entry["blob_hex"], blob(rules.data, rules.head).hex())
            self.assertEqual(entry["generation"], rules.generation.hex())
        self.compare("records.json", check)
        self.assertLess(len(costly), 50, costly)

    def test_limits(self):
        def check(entry):
            document = entry["document"]
            rules = compile_rules([of_limits(one) for one in document["rules"]], document.get("carry", "usage"))
            data = Rules(rules, 0).data
            self.assertEqual(entry["head_hex"], in_short(data).hex())
            self.assertEqual(entry["blob_hex"], blob(data, in_short(data), telling=0).hex())
        self.compare("limits.json", check)

    def test_requests(self):
        def check(entry):
            before = {"unsaid": b"", "lost": b"\2"}.get(str(entry["before"]))
            if before is None:
                before = b"\1" + bytes.fromhex(entry["before"]["blob_hex"])
            windows = [window for window in entry["windows"] if window]
            wait_us = entry.get("max_wait_us")
            self.assertEqual(entry["request_hex"], direct.request(
                entry["verb"], entry.get("cost", 1), direct.UNLIMITED if wait_us is None else wait_us,
                entry.get("id", "").encode(), entry["clock"], entry["at_us"], windows, before).hex())
        self.compare("requests.json", check)

    def test_replies(self):
        entries = [entry for entry in read("wire/records.json")["entries"] if "later" not in entry]
        policies = {entry["name"]: Rules(json.loads(entry["record"]), 0) for entry in entries}

        def check(entry):
            rules = policies[entry["policy"]]
            try:
                means = direct.read_reply(bytes.fromhex(entry["reply_hex"]), entry["verb"], rules.data, rules.names)
                means = {"unknown": means.hex()} if isinstance(means, bytes) else means
            except direct.Problem as problem:
                word, malformed, part = str(problem).partition("malformed ")
                means = {"malformed": part} if malformed else word
            self.assertEqual(entry["means"], means)
        self.compare("replies.json", check)

    def test_replies_above_a_lowered_limit(self):
        """redis.md, A reply: what is left is below 0."""
        def in_use(rules, *left):
            numbers = (left[0], 60_000_000, *(left if len(left) > 1 else ()))
            reply = bytes(6) + b"".join(one.to_bytes(7, "little", signed=True) for one in (1, *numbers))
            answer = direct.read_reply(reply, "check", rules.data, rules.names)
            self.assertEqual((False, 0), (answer["allowed"], answer["remaining"]))
            return answer["in_use"]
        one, two = (Rules(compile_rules(rules, "usage"), 0) for rules in ([fixed(50)], [fixed(50), fixed(9, "hour")]))
        self.assertEqual({"minute": 3000}, in_use(one, -2950))
        self.assertEqual({"minute": 50 + 2**53}, in_use(one, -2**53))
        self.assertEqual({"minute": 3000, "hour": 0}, in_use(two, -2950, 10))
        self.assertEqual({"minute": 51, "hour": 10}, in_use(two, -1, -1))

    def test_calendars(self):
        def check(entry):
            window = window_around(entry["unit"], entry["zone"], entry["now_us"])
            self.assertEqual((entry["start_us"], entry["end_us"]), window)
        self.compare("calendars.json", check)

    def test_attribute_keys(self):
        """The values are joined as they are: the paths of these entries are not in the spelling of a gateway."""
        def check(entry):
            values = {f"header:{name.lower()}": value for name, value in entry["request"]["headers"].items()}
            values |= entry["request"]
            key = keys.join_key([values.get(name, "") for name in entry["key"]])
            self.assertEqual(entry["made"].encode(), key)
        self.compare("attribute-keys.json", check)

    def test_values_of_attributes(self):
        """document.md, Keys made of attributes, and what it says below the table."""
        for address, value in {"203.0.113.7": "203.0.113.7", "::ffff:203.0.113.7": "203.0.113.7", "::1": "::/64",
                               "64:ff9b::cb00:7107": "203.0.113.7",
                               "2001:DB8:0:1:aaaa::1": "2001:db8:0:1::/64"}.items():
            self.assertEqual(value, keys.one_address(address))
        self.assertEqual("shop.example", keys.one_host("Shop.Example.:8443"))
        for path, value in {"/a|b": "/a|b", "/x/../a%7Cb?c=1": "/a|b", "http://host/path#f": "/path", "/a/..": "/",
                            "//a/./b/.": "/a/b/", "/%c3%bc%ff%3f%2fa": "/ü%FF%3F/a"}.items():
            self.assertEqual(value, keys.one_path(path))
        for path in ["a", "", "/%2", "/a/%2e.", "/a/..%2f", "/a%2F..", "/a//.."]:
            with self.subTest(path=path), self.assertRaises(ValueError):
                keys.one_path(path)
        self.assertEqual("ff96bba144f512f610a1026c2595a697c8d53e2b72a7f40b2d59b37bf9aaaa9c90",
                         keys.join_key(["/" + "x" * 1024]).hex())
        self.assertEqual(b"|", keys.join_key(["", ""]))

    def test_a_huge_record(self):
        """record.md, Records that a program does not read."""
        text = record_of(note="x" * record.BYTES_MAX)
        with self.assertRaises(record.Damaged):
            record.read(text)
        self.assertEqual(1, record.read(record_of(note="x" * 1_000_000))["version"])

    def test_the_example(self):
        """redis-protocol.md, Deciding."""
        rules = Rules(compile_rules([fixed(10)], "usage"), YEAR_2026_MS + 60_000)
        self.assertEqual("sg:{WYSeHag-hqRckSRns0jV-w}", direct.state_key("orders", b"alice"))
        self.assertEqual("060b0002000105050128cdd20eaf134a050000000000002440000000000000000000000000389c8c41"
                         "000000000000000000000000000000009e5667e13a8860ea000000", blob(rules.data, rules.head).hex())
        self.assertEqual("sg:rules:amVe8lwjHh50SFePmz7I3w:9e5667e13a88", direct.rules_key("orders", rules.generation))
        self.assertEqual("010001000000", direct.request("check").hex())


class InRedis(unittest.TestCase):
    """What needs a Redis."""

    def setUp(self):
        if port is None:
            self.skipTest("redis-server is not installed")
        self.redis = self.connect()
        self.redis.command("FLUSHALL")

    def connect(self):
        redis = direct.Redis("127.0.0.1", port)
        self.addCleanup(redis.socket.close)
        return redis

    def program(self, *rules, since=0, app="shop", **more):
        """A program that took the policy `p` over so many ms after 2026 began."""
        program = direct.Program(self.redis, app)
        program.policies["p"] = direct.Policy(record_of(*rules, **more).encode(), YEAR_2026_MS + since)
        return program

    def test_a_policy_has_the_instant_of_its_version_and_one_after_that_of_the_version_before(self):
        """redis.md, Other rules than those that wrote the state."""
        def instant(since_ms, after_ms=-1):
            more = {} if since_ms is None else {"since_ms": since_ms}
            policy = direct.Policy(record_of(**more).encode(), YEAR_2026_MS + 9, after_ms)
            return int.from_bytes(policy.rules.head[6:], "little")

        self.assertEqual([instant(None), instant(YEAR_2026_MS + 5), instant(0)], [9, 5, 0])
        self.assertEqual([instant("5"), instant(-1), instant(1 << 53)], [9, 9, 9])
        self.assertEqual(instant(YEAR_2026_MS + 5, YEAR_2026_MS + 7), 8)
        self.assertEqual(instant((1 << 53) - 1), (1 << 40) - 1)

    def live(self, life):
        """One key's life, the time given: README.md, The vectors."""
        program = self.program()
        program.policies["p"].rules = Rules(compile_rules(life["rules"], "usage"), YEAR_2026_MS)
        for number, step in enumerate(life["steps"]):
            if step["op"] == "configure":
                compiled = compile_rules(step["rules"], step.get("carry", "usage"))
                program.policies["p"].rules = Rules(compiled, YEAR_2026_MS + 1 + number)
                continue
            try:
                answer = program.decide("p", step["op"], cost=step.get("cost", 1), at_us=step["at_us"],
                                        max_wait_us=step.get("max_wait_us", direct.UNLIMITED),
                                        permit=step.get("id", "").encode())
            except direct.Problem as problem:
                answer = {"error": str(problem)}
            self.assertEqual(step["expect"], answer, f"step {number}")

    def test_vectors(self):
        for folder in sorted(path for path in (SPEC / "vectors").iterdir() if path.is_dir()):
            files, wrong, steps = sorted(folder.glob("*.json")), [], 0
            for file in files:
                self.redis.command("FLUSHDB")
                life = json.loads(file.read_text())
                try:
                    self.live(life)
                    steps += len(life["steps"])
                except Exception as problem:
                    wrong.append(f"{file.name}: {type(problem).__name__}: {problem}")
            print(f"vectors/{folder.name}: {len(files) - len(wrong)} of {len(files)} lives, {steps} steps")
            with self.subTest(folder=folder.name):
                self.assertEqual([], wrong)

    def test_versions(self):
        """Programs with two versions in turn, and states that nobody wrote: wire/versions.json."""
        entries = read("wire/versions.json")["entries"]
        for entry in entries:
            self.redis.command("FLUSHALL")
            state = direct.state_key("p", b"k")
            if "state_hex" in entry:
                self.redis.command("SET", state, bytes.fromhex(entry["state_hex"]))
            programs = []
            for one in entry["records"]:
                program = direct.Program(self.redis, "shop")
                program.policies["p"] = direct.Policy(one.encode(), 0)
                programs.append(program)
            for step in entry["steps"]:
                asked = {"cost": step["cost"], "at_us": step["at_us"]}
                answer = programs[step["by"]].decide("p", step["op"], b"k", **asked)
                stored = self.redis.command("GET", state)
                self.assertEqual(step["expect"], answer, step)
                self.assertEqual(step["stored_hex"], stored and stored.hex(), step)
        print(f"wire/versions.json: {len(entries)} of {len(entries)} entries")

    def test_policies(self):
        """redis-protocol.md, Vectors: what a program holds. What servers write is put there."""
        steps, right = collections.Counter(), collections.Counter()
        for life in read("vectors/redis-policies.json"):
            self.redis.command("FLUSHDB")
            program = direct.Program(self.redis, "checkout")
            for number, step in enumerate(life["steps"]):
                if step["op"] in ("found", "publish"):
                    self.redis.command("DEL", "sg:{policies}")
                    for field, value in step["hash"].items():
                        text = value if field.startswith("#") else json.dumps(value)
                        self.redis.command("HSET", "sg:{policies}", field, text)
                    continue
                if step["op"] == "look":
                    program.look()
                else:
                    program.hear(step["message"].encode())
                steps[step["op"]] += 1
                holds = {} if program.revision is None else {"revision": program.revision}
                holds["policies"] = {name: policy.version for name, policy in program.policies.items()}
                with self.subTest(life=life["name"], step=number):
                    self.assertEqual(step["holds"], holds)
                    right[step["op"]] += 1
        for op in steps:
            print(f"vectors/redis-policies.json: {right[op]} of {steps[op]} steps `{op}`")

    def refused(self, word, *asked, program, **more):
        with self.assertRaises(direct.Problem) as raised:
            program.decide(*asked, **more)
        self.assertEqual(word, str(raised.exception))

    def test_a_published_record(self):
        """redis-protocol.md, Reading; and the script is loaded where it is not known."""
        self.redis.command("SCRIPT", "FLUSH")
        self.redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "0", "orders", record_of())
        program = direct.Program(self.redis, "shop")
        program.look()
        answer = program.decide("orders", "check", key=b"alice", cost=4)
        self.assertEqual((True, 6, "minute"), (answer["allowed"], answer["remaining"], answer["rule"]))
        rules = program.policies["orders"].rules
        place = direct.rules_key("orders", rules.generation)
        self.assertEqual(rules.data, self.redis.command("GET", place))
        self.assertAlmostEqual(60_001 + 20 * 60_000, self.redis.command("PTTL", place), delta=1000)

    def test_the_clock_of_callers(self):
        program = self.program()
        program.clock = "client"
        answer = program.decide("p", "check")
        self.assertEqual(9, answer["remaining"])
        self.assertLessEqual(answer["reset_after_us"], 60_000_000)

    def test_overrides(self):
        ends = {"until_ms": time.time_ns() // 1_000_000 - 1}
        program = self.program(overrides=[("late", ends, [fixed(50)]), ("vip", {}, [fixed(50)])])
        limits = [program.decide("p", "peek", key=key)["limit"] for key in (b"vip", b"bob", b"late")]
        self.assertEqual([50, 10, 10], limits)

    def test_permits(self):
        program = self.program(rule("jobs", "concurrency", limit=1, ttl_us=60_000_000))
        self.assertTrue(program.decide("p", "acquire", permit=b"a")["allowed"])
        self.assertFalse(program.decide("p", "acquire", permit=b"b")["allowed"])
        self.assertTrue(program.decide("p", "renew", permit=b"a")["allowed"])
        self.assertTrue(program.decide("p", "release", permit=b"a")["allowed"])
        self.refused("unsupported", "p", "check", program=program)
        self.refused("range", "p", "acquire", permit=b"", program=program)

    def test_who_may(self):
        """redis-protocol.md, What is where."""
        anybody, named = self.program(app="mail", apps=["*"]), self.program(app="mail", apps=["mail"])
        self.assertTrue(anybody.decide("p", "check")["allowed"])
        self.refused("unconfigured", "p", "reset", program=anybody)
        self.assertTrue(named.decide("p", "reset")["allowed"])
        self.refused("unconfigured", "p", "check", program=self.program(app="mail"))

    def test_the_later_version_decides(self):
        """redis.md, Other rules than those that wrote the state."""
        log = rule("other", "sliding_log", limit=5, window_us=1_000_000)
        old, new = self.program(since=1), self.program(log, fixed(20), since=2)
        self.assertEqual(7, old.decide("p", "check", cost=3)["remaining"])
        self.assertEqual(4, new.decide("p", "check")["remaining"])  # Of the log: the window has 16 left.
        for program in (old, new, old):
            answer = program.decide("p", "peek", cost=6)
            self.assertEqual((5, "minute" if program is old else "other"), (answer["limit"], answer["rule"]))
        state = self.redis.command("GET", direct.state_key("p", b""))
        self.assertTrue(state.startswith(new.policies["p"].rules.head))

    def test_a_limit_that_is_lowered_for_a_while(self):
        """failure.md, Where it begins: what is in use above the limit is known."""
        day, now = {"name": "day", "window_us": 86_400_000_000}, YEAR_2026_MS * 1000
        self.program(fixed(4000, **day), since=1).decide("p", "check", cost=3000, at_us=now)
        program = self.program(fixed(50, **day), since=2)
        answer = program.decide("p", "check", at_us=now)
        self.assertEqual((False, 50, 0), (answer["allowed"], answer["limit"], answer["remaining"]))
        rules, asked = program.policies["p"].rules, direct.request("peek", clock="given", now_us=now)
        reply = program.call(direct.state_key("p", b""), blob(rules.data, rules.head), asked)
        in_use = direct.read_reply(reply, "peek", rules.data, rules.names)["in_use"]
        self.assertEqual({"day": 3000}, in_use)
        [(_, _, _, numbers)] = split(Rules(compile_rules([fixed(4000, **day)], "usage"), 0).data)
        raised = share.primitive("fixed_window", numbers)
        raised.said(now, in_use["day"])
        self.assertEqual(1000, share.decide(raised, "at_most", now, 4000)["granted"])

    def test_equal_instants(self):
        programs = [self.program(), self.program(fixed(20))]
        programs.sort(key=lambda program: program.policies["p"].rules.generation)
        programs[0].decide("p", "check")
        programs[1].decide("p", "check")
        self.assertEqual(programs[1].decide("p", "peek")["limit"], programs[0].decide("p", "peek")["limit"])

    def test_rules_that_are_lost(self):
        self.program(since=2).decide("p", "check")
        self.redis.command("DEL", *self.redis.command("KEYS", "sg:rules:*"))
        answer = self.program(fixed(20), since=1).decide("p", "check")
        self.assertEqual((False, 20, 0), (answer["allowed"], answer["limit"], answer["remaining"]))

    def test_calendars_of_later_rules(self):
        day = {"limit": 7, "calendar": "day", "time_zone": "Europe/Berlin"}
        hour = fixed(100, "hour", 3_600_000_000)
        self.program(rule("minute", "fixed_window", **day), since=2).decide("p", "check")
        program = self.program(hour, rule("day", "fixed_window", **day), since=1)
        self.assertEqual(5, program.decide("p", "check")["remaining"])
        self.refused("malformed state", "p", "check", program=self.program(since=1))

    def test_rules_that_take_too_long(self):
        """redis.md, What it costs."""
        for algorithm, most in {"sliding_log": 2500, "concurrency": 1000}.items():
            span = {"sliding_log": "window_us", "concurrency": "ttl_us"}[algorithm]
            self.program(rule("r", algorithm, limit=most, **{span: 60_000_000}))
            with self.assertRaises(record.Damaged):
                self.program(rule("r", algorithm, limit=most + 1, **{span: 60_000_000}))

    def test_errors_of_redis(self):
        self.redis.command("HSET", direct.state_key("p", b"hash"), "a", "b")
        with self.assertRaisesRegex(direct.RedisError, "WRONGTYPE"):
            self.program().decide("p", "check", key=b"hash")
        self.assertEqual(9, self.program().decide("p", "check", key=b"other")["remaining"])

    def test_messages(self):
        """redis-protocol.md, Reading: what is told on the channel is heard."""
        class Heard(Exception):
            pass

        def hear(message):
            raise Heard(message)
        program, speaker = self.program(), self.connect()
        program.hear = hear
        timer = threading.Timer(0.2, lambda: speaker.command("PUBLISH", "sg:policies", "7"))
        timer.start()
        with self.assertRaisesRegex(Heard, "b'7'"):
            program.follow(self.connect())
        timer.join()


if __name__ == "__main__":
    unittest.main()
