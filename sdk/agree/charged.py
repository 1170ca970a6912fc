#!/usr/bin/env python3
"""What an SDK says of a request that failed is true: whether it was charged.

    charged.py SERVER NAME=PROGRAM...

SERVER is the program `sluicegate`. A PROGRAM is a command line, as for agree.py; its first line is {"server": URL,
"deadline_ms": N} instead. It answers a request with a decision or with {"error": NAME, "charged": "no", "yes" or
"unknown"}. A PROGRAM for RESP is named `NAME/resp`.

One proxy stands between program and server, one between server and Redis. Each fault meets each verb at each of
them, while another server says what is charged. Prints what was answered as a table.
"""
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from agree import free_port, run, until

POLICIES = {"policies": [
    {"name": "budget", "rules": [{"fixed_window": {"limit": 100, "window": "1d"}}]},
    {"name": "jobs", "rules": [{"concurrency": {"limit": 10, "ttl": "5m"}}]},
]}
VERBS = ("check", "refund", "settle", "release")
FAULTS = {
    "lost": "the reply is not passed on",
    "closed": "the connection closes in place of the reply",
    "late": "the reply comes after the deadline",
    "unsent": "the connection closes before the request is passed on",
    "gone": "nothing listens",
}
# Of a server, and of a program: one that waits less would not hear that the store of the server does not answer.
STORE_MS, PROGRAM_MS = 200, 800
SETTLED_S = 20


class Proxy:
    """Passes bytes on between connections, or spoils them."""

    def __init__(self, target):
        self.target, self.fault, self.port, self.open = target, None, free_port(), []
        self.lock, self.listener = threading.Lock(), None
        self.listen()

    def listen(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            with self.lock:
                self.open += [client, server]
            for way in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.carry, args=way, daemon=True).start()

    def carry(self, source, sink, is_reply):
        try:
            while data := source.recv(1 << 16):
                fault = self.fault
                if fault == "closed" and is_reply or fault == "unsent" and not is_reply:
                    break
                if fault == "late" and is_reply:
                    until(lambda: self.fault != "late", SETTLED_S)
                if fault != "lost" or not is_reply:
                    sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            shut(each)

    def spoil(self, fault):
        self.fault = fault
        if fault == "gone":
            shut(self.listener)
            self.listener.close()
            self.close()

    def heal(self):
        if self.fault == "gone":
            self.listen()
        elif self.fault == "lost":
            # What was kept back must not be read as the reply to another request.
            self.close()
        self.fault = None

    def close(self):
        with self.lock:
            for each in self.open:
                shut(each)
            self.open = []


def shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Server:
    """A server on a Redis, whose addresses are `http` and `resp`."""

    def __init__(self, program, folder, redis, deadline_ms):
        self.http, self.resp = free_port(), free_port()
        url = f"redis://127.0.0.1:{redis}?deadline_ms={deadline_ms}"
        more = {"STORE__URL": url, "STORE__LEASES": "false", "STORE__PUBLISH": "false", "RLS__LISTEN": "off", "ADMIN__LISTEN": "off"}
        env = dict(os.environ, **{f"SLUICEGATE__{name}": value for name, value in more.items()}, SLUICEGATE__RESP__LISTEN=f"127.0.0.1:{self.resp}")
        file = os.path.join(folder, "policies.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(POLICIES, out)
        command = [program, "serve", "--policies", file, "--listen", f"127.0.0.1:{self.http}"]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.ask("peek", "budget", "first"))

    def ask(self, verb, policy, key, **more):
        body = json.dumps({"policy": policy, "key": key, **more}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/v1/{verb}", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)


class Program:
    """A program that asks a server."""

    def __init__(self, command, url):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.exchange({"server": url, "deadline_ms": PROGRAM_MS}) == {}, command

    def exchange(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def meet(program, near, server, truth, place, fault, verb, key):
    """Has the fault meet a verb. Returns what the program answers, and whether the request took effect."""
    policy = "jobs" if verb == "release" else "budget"
    step = {"op": verb, "policy": policy, "key": key, "cost": 2}
    if verb == "release":
        truth.ask("acquire", policy, key, id="a")
        step["id"] = "a"
    else:
        truth.ask("check", policy, key, cost=10)
    if verb == "settle":
        step.update(id=key, charged=10)
    # The server has met both rules, and holds its store for well.
    until(lambda: all("mode" not in server.ask("peek", each["name"], key) for each in POLICIES["policies"]), SETTLED_S)
    until(lambda: "allowed" in program.exchange({"op": "check", "policy": "budget", "key": "well", "cost": 1}), SETTLED_S)
    before = truth.ask("peek", policy, key)["remaining"]
    place.spoil(fault)
    answer = program.exchange(step)
    if fault == "gone" and answer.get("charged") == "unknown":
        # A connection that was open may have carried it. Now none is.
        answer = program.exchange(step)
    place.heal()
    # What is still under way arrives.
    time.sleep(0.1)
    after = truth.ask("peek", policy, key)["remaining"]
    return answer, before != after


def judge(answer, is_charged, fault, is_near):
    """What is wrong about an answer; empty if nothing."""
    charged = answer.get("charged")
    if charged is None:
        # A server decides without its store, and charges that later.
        return "" if not is_near and "allowed" in answer else f"no error: {answer}"
    if charged == "no" and is_charged or charged == "yes" and not is_charged:
        return f"says `{charged}` where is_charged={is_charged}: {answer}"
    if fault == "gone" and charged != "no":
        return f"nobody heard the request, and it says `{charged}`: {answer}"
    names = {"no": "not_charged", "unknown": "perhaps_charged"}
    return "" if answer["error"] == names.get(charged) else f"the name does not go with `{charged}`: {answer}"


def main():
    server_program, programs = sys.argv[1], [word.split("=", 1) for word in sys.argv[2:]]
    running, wrong, cells = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            redis = free_port()
            command = [os.environ.get("SLUICEGATE_REDIS_SERVER", "redis-server"), "--port", str(redis)]
            command += ["--bind", "127.0.0.1", "--save", "", "--dir", folder]
            running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            until(lambda: socket.create_connection(("127.0.0.1", redis)))
            behind = Proxy(redis)
            truth = run(running, Server(server_program, folder, redis, 5000))
            server = run(running, Server(server_program, folder, behind.port, STORE_MS))
            near = {"http": Proxy(server.http), "resp": Proxy(server.resp)}
            print(f"{'':18}{'fault':10}" + "".join(f"{verb:22}" for verb in VERBS))
            for name, command in programs:
                wire = "resp" if name.endswith("/resp") else "http"
                program = run(running, Program(command, f"{wire}://127.0.0.1:{near[wire].port}"))
                for where, place in (("near", near[wire]), ("behind", behind)):
                    for fault in FAULTS:
                        row = []
                        for verb in VERBS:
                            if verb == "settle" and wire == "resp":
                                row.append("-")
                                continue
                            answer, is_charged = meet(program, near[wire], server, truth, place, fault, verb, f"{name} {where} {fault} {verb}")
                            problem = judge(answer, is_charged, fault, place is not behind)
                            cells += 1
                            if problem:
                                wrong += 1
                                print(f"WRONG {name}, {where}, {fault}, {verb}: {problem}")
                            row.append(f"{answer.get('charged', 'decided')}, {'executed' if is_charged else 'not'}")
                        print(f"{name:10}{where:8}{fault:10}" + "".join(f"{cell:22}" for cell in row), flush=True)
        finally:
            for process in reversed(running):
                process.kill()
                process.wait()
    print(f"{cells} failures, {wrong} of which a program says something false")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
