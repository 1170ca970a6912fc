#!/usr/bin/env python3
"""Programs and servers that share a Redis agree: the same steps, in turn by a server and by the programs on one
Redis, and by a server alone on another. Every answer must be equal, and so must every byte that is stored. The
clocks of the Redises and the servers stand still, and are moved by this test (clock.c).

    agree.py SERVER [--steps N] [--seed N] PROGRAM...

SERVER is the program `sluicegate`. A PROGRAM is a command line, or the word `server` for another server. It reads a
JSON object a line and writes one: first {"redis": "HOST:PORT", "now_us": N}, which it answers with {} once it
holds the policies that are published there; then steps such as
{"now_us": N, "op": "check", "policy": "p", "key": "k", "cost": 1}, with `max_wait_us` (reserve) and `id` (acquire,
renew, release), which it answers with the fields of a decision as spec/vectors has them, or {"error": NAME}. It goes
by the clock of the Redis; for its own (what it remembers, calendars) `now_us` is the time.
"""
import argparse
import http.client
import json
import mmap
import os
import random
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = ["allowed", "granted", "wait_us", "limit", "remaining", "retry_after_us", "reset_after_us", "rule"]
KEYS = ["a", "b", "c", "\u00fc"]
START_US = 1_774_745_000_000_000  # an hour before clocks in Europe skip one
# A server remembers what Redis refused for at most a second, also if somebody else gives it back.
REMEMBERED_US = 1_000_001


class Clock:
    """The clock that Redises and servers read."""

    def __init__(self, folder):
        self.path, self.library = os.path.join(folder, "now"), os.path.join(folder, "clock.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", self.library, os.path.join(HERE, "clock.c")], check=True)
        with open(self.path, "wb") as file:
            file.write(bytes(8))
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 8)
        self.move_to(START_US)

    def move_to(self, now_us):
        self.now_us = now_us
        self.page[:8] = struct.pack("<Q", now_us)

    def env(self, **more):
        return dict(os.environ, LD_PRELOAD=self.library, SLUICEGATE_CLOCK=self.path, **more)


class Redis:
    """A Redis, and a connection to it."""

    def __init__(self, clock, folder):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        command = [os.environ.get("SLUICEGATE_REDIS_SERVER", "redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        self.process = subprocess.Popen(command, env=clock.env(), stdout=subprocess.DEVNULL)
        self.stream = until(lambda: socket.create_connection(("127.0.0.1", self.port))).makefile("rwb")
        # A server whose notes there have aged since the last one believes that Redis has lost data, and puts back
        # what it knows. No notes, no belief: here time passes in leaps.
        self.call("LPUSH", "sg:{fleet}", "no notes")

    def call(self, *words):
        words = [word if isinstance(word, bytes) else word.encode() for word in words]
        self.stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        self.stream.flush()
        return self.read()

    def read(self):
        kind, rest = (line := self.stream.readline())[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest

    def states(self):
        """What is stored of every key, with the time that is left to it."""
        keys = [key for key in self.call("KEYS", "sg:{*") if key != b"sg:{policies}" and not key.startswith(b"sg:{fleet}")]
        return {key: (self.call("GET", key), self.call("PTTL", key)) for key in keys}


class Server:
    """A server on a Redis, asked over HTTP."""

    def __init__(self, program, clock, redis):
        off = {f"SLUICEGATE__{wire}__LISTEN": "off" for wire in ("RESP", "RLS", "ADMIN")}
        # What is left at a server with a lease is not what Redis would answer at that instant.
        options = {"SLUICEGATE__STORE__LEASES": "false", "SLUICEGATE__STORE__URL": f"redis://{redis.address}?deadline_ms=5000"}
        command = [program, "serve", "--policies", os.path.join(HERE, "policies.json"), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, env=clock.env(**off, **options), stdout=subprocess.PIPE, text=True)
        address = self.process.stdout.readline().rsplit("/", 1)[1].strip()
        self.http = http.client.HTTPConnection(address, timeout=10)

    def ask(self, step):
        body = {name: step[name] for name in ("policy", "key", "cost", "id") if name in step}
        path = "/v1/check" if step["op"] == "reserve" else "/v1/" + step["op"]
        if "max_wait_us" in step:
            body["max_wait_ms"] = step["max_wait_us"] // 1000
        self.http.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = self.http.getresponse()
        answer = json.loads(reply.read())
        if reply.status == 400 and answer["detail"].startswith("op: "):
            return {"error": "unsupported_verb"}
        if reply.status != 200 or "mode" in answer:
            raise RuntimeError(f"{step}: {reply.status} {answer}")
        return {name: answer[name] for name in FIELDS}


class Program:
    """A program that decides in Redis itself."""

    def __init__(self, command, clock, redis):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.exchange({"redis": redis.address, "now_us": clock.now_us})
        if said != {}:
            raise RuntimeError(f"{command}: {said}")
        self.clock = clock

    def exchange(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, step):
        answer = self.exchange({"now_us": self.clock.now_us, **step})
        return {name: answer[name] for name in (["error"] if "error" in answer else FIELDS)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(attempt, seconds=20):
    """What `attempt` returns, once it raises nothing and returns something."""
    end = time.monotonic() + seconds
    while True:
        try:
            if done := attempt():
                return done
        except OSError:
            pass
        if time.monotonic() > end:
            raise TimeoutError(attempt)
        time.sleep(0.02)


def step_of(rng, policies):
    """A step that makes sense for most policies."""
    policy = rng.choice(policies)
    step = {"policy": policy["name"], "key": rng.choice(KEYS)}
    holds = any("concurrency" in rule for rule in policy["rules"])
    ops = ["check"] * 8 + ["reserve"] * 3 + ["at_most"] * 3 + ["peek"] * 2 + ["refund", "reset"]
    if holds:
        ops = ["acquire"] * 8 + ["release"] * 4 + ["renew"] * 2 + ["peek"] * 2 + ["reset", "check"]
    step["op"] = op = rng.choice(ops)
    if op in ("check", "reserve", "at_most", "peek", "refund", "acquire"):
        step["cost"] = rng.choice([1, 1, 1, 1, 2, 3, 5, 50])
    if op == "reserve":
        step["max_wait_us"] = 1000 * rng.choice([0, 50, 500, 5000])
    if op in ("acquire", "release", "renew"):
        step["id"] = f"id-{rng.randrange(8)}"
    return step


def pause_of(rng):
    """How far the clock moves before a step, in us."""
    return rng.choice([0, 0, 0, 1, 999, rng.randrange(50_000), rng.randrange(2_000_000), rng.randrange(30_000_000)] + [rng.randrange(3600 * 10**6)] * (rng.random() < 0.05))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with open(os.path.join(HERE, "policies.json"), encoding="utf-8") as file:
        policies = json.load(file)["policies"]
    running = []
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(folder)
        try:
            shared, alone = (run(running, Redis(clock, folder)) for _ in range(2))
            writers = [("server", run(running, Server(args.server, clock, shared)))]
            reference = run(running, Server(args.server, clock, alone))
            until(lambda: shared.call("HGET", "sg:{policies}", "bucket"))
            for command in args.program:
                made = Server(args.server, clock, shared) if command == "server" else Program(command, clock, shared)
                writers.append((command, run(running, made)))
            for number in range(args.steps):
                clock.move_to(clock.now_us + pause_of(rng))
                step = step_of(rng, policies)
                name, writer = rng.choice(writers)
                answers = writer.ask(step), reference.ask(step)
                at = f"seed {args.seed}, step {number} at {clock.now_us}: {step} by {name}"
                if answers[0] != answers[1]:
                    sys.exit(f"{at}\n  answers {answers[0]}\n  where a server alone answers {answers[1]}")
                if step["op"] in ("refund", "reset", "release"):
                    clock.move_to(clock.now_us + REMEMBERED_US)
                if number % 50 == 0 and shared.states() != alone.states():
                    sys.exit(f"{at}: what is stored differs\n  {differing(shared.states(), alone.states())}")
            if shared.states() != alone.states():
                sys.exit(f"seed {args.seed}: what is stored differs at the end")
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()
    print(f"{args.steps} steps by a server and {', '.join(args.program)}: 0 differ (seed {args.seed})")


def run(running, made):
    running.append(made.process)
    return made


def differing(one, other):
    return {key: (one.get(key), other.get(key)) for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


if __name__ == "__main__":
    main()
