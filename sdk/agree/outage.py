#!/usr/bin/env python3
"""Programs that share a Redis keep to the limits while it is away, and use at least half of what is theirs.

    outage.py SERVER NAME=PROGRAM...

SERVER is the program `sluicegate`, which publishes a policy of each algorithm. A PROGRAM is a command line, as for
agree.py; its first line has `nodes`, among how many programs a limit is shared, and `deadline_ms`. Of each, three processes
decide; Redis is killed, and for ten seconds they are asked for keys that nobody has used. No interval may have more than
the limit, all three together, and of its share each must let half pass at once.
"""
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from agree import free_port, run, until

NODES, OUTAGE_S, LIMIT = 3, 10, 90
RATE = {"rate": "30/s"}
# What an algorithm lets pass in an interval of so many seconds.
ALGORITHMS = {
    "token_bucket": ({**RATE, "burst": LIMIT}, lambda s: LIMIT + 30 * s),
    "leaky_bucket": ({**RATE, "burst": LIMIT - 1}, lambda s: LIMIT + 30 * s),
    # What is stored, and the last request of each, which is paid afterwards.
    "smooth_bursty": ({**RATE, "max_burst": "1s"}, lambda s: 30 + 30 * s + NODES),
    "smooth_warmup": ({**RATE, "warmup": "2s"}, lambda s: 30 * s + NODES),
    "fixed_window": ({"limit": LIMIT, "window": "3s"}, lambda s: LIMIT * (s // 3 + 1)),
    "sliding_window": ({"limit": LIMIT, "window": "3s"}, lambda s: LIMIT * (s // 3 + 1)),
    "sliding_counter": ({"limit": LIMIT, "window": "3s"}, lambda s: LIMIT * (s // 3 + 1)),
    "sliding_log": ({"limit": LIMIT, "window": "3s"}, lambda s: LIMIT * (s // 3 + 1)),
    "concurrency": ({"limit": LIMIT, "ttl": "1m"}, lambda s: LIMIT),
}


class Program:
    """A program that decides in Redis, and without it by its share."""

    def __init__(self, command, redis, number):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.number, self.asked, self.passed = number, 0, {name: [] for name in ALGORITHMS}
        first = {"redis": f"127.0.0.1:{redis}", "now_us": now_us(), "nodes": NODES, "deadline_ms": 50}
        assert self.exchange(first) == {}, command

    def exchange(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, algorithm, key, at_us):
        """Whether a request passes. One that does not is held by nobody."""
        self.asked += 1
        op = {"op": "acquire", "id": f"{self.number}-{self.asked}"} if algorithm == "concurrency" else {"op": "check"}
        answer = self.exchange({"now_us": at_us, "policy": algorithm, "key": key, "cost": 1, **op})
        return answer["allowed"]

    def at_once(self, algorithm):
        """How many requests pass at one instant."""
        at_us, count = now_us(), 0
        while count <= LIMIT and self.ask(algorithm, "at once", at_us):
            count += 1
        return count

    def demand(self, until_us):
        """Asks for each algorithm in turn."""
        while now_us() < until_us:
            for algorithm in ALGORITHMS:
                at_us = now_us()
                if self.ask(algorithm, "demand", at_us):
                    self.passed[algorithm].append(at_us)


def now_us():
    return time.time_ns() // 1000


def most_over(times, bound):
    """The largest excess of an interval over its bound; at most 0 if there is none."""
    worst, times = -1, sorted(times)
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            worst = max(worst, last - first + 1 - bound((times[last] - begin) / 1e6))
    return worst


def start_redis(folder, port):
    command = [os.environ.get("SLUICEGATE_REDIS_SERVER", "redis-server"), "--port", str(port)]
    process = subprocess.Popen([*command, "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
    until(lambda: socket.create_connection(("127.0.0.1", port)))
    return process


def published(port, policies):
    """Whether so many policies are there for programs."""
    with socket.create_connection(("127.0.0.1", port)) as redis:
        redis.sendall(b"HLEN sg:{policies}\r\n")
        return int(redis.recv(100)[1:]) > policies


def outage(name, command, server_program, folder, running):
    """Has three processes of a program decide without Redis. Returns how many findings there were."""
    port, wrong = free_port(), 0
    redis = start_redis(folder, port)
    running.append(redis)
    file = os.path.join(folder, "policies.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"policies": [{"name": each, "rules": [{each: given}]} for each, (given, _) in ALGORITHMS.items()]}, out)
    env = dict(os.environ, SLUICEGATE__STORE__LEASES="false", SLUICEGATE__RESP__LISTEN="off",
               SLUICEGATE__RLS__LISTEN="off", SLUICEGATE__ADMIN__LISTEN="off", SLUICEGATE__STORE__URL=f"redis://127.0.0.1:{port}")
    server = subprocess.Popen([server_program, "serve", "--policies", file, "--listen", "127.0.0.1:0"], env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.append(server)
    until(lambda: published(port, len(ALGORITHMS)))
    programs = [run(running, Program(command, port, number)) for number in range(NODES)]
    server.send_signal(signal.SIGKILL)
    redis.send_signal(signal.SIGKILL)
    redis.wait()
    end_us = now_us() + OUTAGE_S * 1_000_000
    threads = [threading.Thread(target=program.demand, args=(end_us,)) for program in programs]
    # The first request may be refused: it was on its way when Redis went.
    for program in programs:
        until(lambda program=program: program.ask("token_bucket", "first", now_us()))
    at_once = {each: min(program.at_once(each) for program in programs) for each in ALGORITHMS}
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each, (_, bound) in ALGORITHMS.items():
        times = [at for program in programs for at in program.passed[each]]
        share = 1 if each.startswith("smooth_") else LIMIT // NODES
        over = most_over(times, bound)
        finding = "OVER" if over > 1e-6 else "TOO LITTLE" if 2 * at_once[each] < 0.9 * share else ""
        wrong += bool(finding)
        print(f"{name:6}{each:18}{len(times):6} passed, {at_once[each]:3} of {share:2} at once {finding}", flush=True)
    for process in [server, redis, *(program.process for program in programs)]:
        process.kill()
        process.wait()
    return wrong


def main():
    running, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, command in (word.split("=", 1) for word in sys.argv[2:]):
                wrong += outage(name, command, sys.argv[1], folder, running)
        finally:
            for process in running:
                process.kill()
    print(f"{OUTAGE_S} s without Redis, {NODES} processes each: {wrong} findings")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
