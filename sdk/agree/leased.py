#!/usr/bin/env python3
"""Programs and servers that share a Redis keep to the limits of keys that servers lease.

    leased.py SERVER PROGRAM...

SERVER is the program `sluicegate`; two of them lease, and publish the policies below. A PROGRAM is a command line, as for
agree.py. All ask for one key of each policy as fast as they can, until nobody is allowed any more or the time is over. All together may never
pass the limit, and of a quota at least 98 % must pass; servers must have decided from leases, and each program must have been allowed something.
"""
import http.client
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time

from agree import free_port, run, until
from outage import published, start_redis

SERVERS, THREADS = 2, 2
# Time for which all ask for what comes back, and at least for a quota: until nobody has been allowed for a second, or longer than it takes.
SPAN_S, QUOTA_SPAN_S = 5, 60
RATE, BURST = 400, 600
# A quota that does not come back while this runs, or what comes back in it.
QUOTA = 5_000
POLICIES = {
    "day": {"fixed_window": {"limit": QUOTA, "window": "1d"}},
    "any-day": {"sliding_window": {"limit": QUOTA, "window": "1d"}},
    "exact-day": {"sliding_log": {"limit": 2_500, "window": "1d"}},
    "bucket": {"token_bucket": {"rate": f"{RATE}/s", "burst": BURST}},
    "meter": {"leaky_bucket": {"rate": f"{RATE}/s", "burst": BURST - 1, "delay": "none"}},
}


def limit_of(policy):
    """The limit of a quota; None of what comes back."""
    rule, = POLICIES[policy].values()
    return rule.get("limit")


class Count:
    """Requests of all for one policy."""

    def __init__(self, policy):
        self.policy, self.begin, self.lock = policy, time.monotonic(), threading.Lock()
        self.passed, self.last, self.modes, self.failed = {}, self.begin, {}, []

    def goes_on(self):
        now = time.monotonic()
        if now - self.begin < SPAN_S or limit_of(self.policy) is None:
            return now - self.begin < SPAN_S
        return now - self.last < 1 and now - self.begin < QUOTA_SPAN_S

    def ask(self, name, decide):
        """Asks until the time is over."""
        try:
            while self.goes_on():
                answer = decide()
                with self.lock:
                    mode = answer.get("mode", "store")
                    self.modes[mode] = self.modes.get(mode, 0) + 1
                    if answer["allowed"]:
                        self.passed[name] = self.passed.get(name, 0) + 1
                        self.last = time.monotonic()
        except Exception as problem:  # A thread that fails must fail the test.
            self.failed.append(f"{name}: {problem!r}")


def server(program, redis, file):
    """A server with leases, and the address of its HTTP."""
    off = {f"SLUICEGATE__{wire}__LISTEN": "off" for wire in ("RESP", "RLS", "ADMIN")}
    options = {"SLUICEGATE__STORE__URL": f"redis://127.0.0.1:{redis}?deadline_ms=1000"}
    command = [program, "serve", "--policies", file, "--listen", "127.0.0.1:0"]
    env = {**os.environ, **off, **options}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline().rsplit("/", 1)[1].strip()


def over_http(address, policy):
    connection = http.client.HTTPConnection(address, timeout=10)
    body = json.dumps({"policy": policy, "key": "hot"})

    def decide():
        connection.request("POST", "/v1/check", body, {"content-type": "application/json"})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {answer}")
        return answer
    return decide


class Program:
    """A program that decides in Redis itself."""

    def __init__(self, command, redis):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = {"redis": f"127.0.0.1:{redis}", "now_us": time.time_ns() // 1000, "deadline_ms": 1000}
        assert self.exchange(first) == {}, command

    def exchange(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def check(self, policy):
        now_us = time.time_ns() // 1000
        answer = self.exchange({"now_us": now_us, "op": "check", "policy": policy, "key": "hot", "cost": 1})
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def played(policy, addresses, programs):
    """What all did with one policy."""
    count = Count(policy)
    threads = [threading.Thread(target=count.ask, args=(f"server {number}", over_http(address, policy)))
               for number, address in enumerate(addresses) for _ in range(THREADS)]
    threads += [threading.Thread(target=count.ask, args=(command, lambda made=made: made.check(policy)))
                for command, made in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count


def findings(count, programs):
    """What is wrong with it."""
    quota = limit_of(count.policy)
    most = quota or BURST + RATE * (count.last - count.begin)
    passed = sum(count.passed.values())
    print(f"{count.policy}: {passed} of {most:.0f} passed, of {sum(count.modes.values())}: {count.modes}, {count.passed}", flush=True)
    wrong = list(count.failed)
    if passed > most:
        wrong.append(f"{count.policy}: {passed} passed, {most:.0f} may")
    if quota and passed < 0.98 * quota:
        wrong.append(f"{count.policy}: {passed} passed of {quota}: too few")
    if count.modes.get("leased", 0) < passed // 20:
        wrong.append(f"{count.policy}: servers leased next to nothing: {count.modes}")
    return wrong + [f"{count.policy}: {command} was allowed nothing" for command, _ in programs if command not in count.passed]


def main():
    program, commands = sys.argv[1], sys.argv[2:]
    running, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        redis, file = free_port(), os.path.join(folder, "policies.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump({"policies": [{"name": name, "rules": [rule]} for name, rule in POLICIES.items()]}, out)
        try:
            running.append(start_redis(folder, redis))
            servers = []
            for _ in range(SERVERS):
                process, address = server(program, redis, file)
                running.append(process)
                servers.append(address)
            until(lambda: published(redis, len(POLICIES)))
            programs = [(command, run(running, Program(command, redis))) for command in commands]
            for policy in POLICIES:
                wrong += findings(played(policy, servers, programs), programs)
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(POLICIES)} leased policies, {SERVERS} servers and {len(commands)} programs: never above the limit")


if __name__ == "__main__":
    main()
