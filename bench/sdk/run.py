#!/usr/bin/env python3
"""SDKs beside the limiters of their languages, on one Redis in one run.

    bench/sdk/run.py [go|java|php]... [--rounds 7] [--calls 20000] [--redis-server redis-server]

It starts a Redis for each language, has `bench/sdk/LANGUAGE/run` measure its cases in rounds that alternate, and prints
for each case the minimum over the rounds: CPU time of the client and of Redis for a decision, in microseconds. Time on
the wall is noise where two cores are shared; CPU time is what a program pays. The last column divides by the peer.
"""
import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
# Compiling a benchmark and all its rounds: no language may take longer.
SECONDS_MAX = 1800


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_redis(program, folder):
    port = free_port()
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return server, port
        except OSError:
            time.sleep(0.05)
    server.terminate()
    sys.exit(f"bench: {program} does not answer at port {port}")


def measure(language, options):
    """What `bench/sdk/LANGUAGE/run` measured: for each case the minimum of each figure over all rounds."""
    with tempfile.TemporaryDirectory() as folder:
        server, port = start_redis(options.redis_server, folder)
        try:
            command = [HERE / language / "run", "--rounds", options.rounds, "--calls", options.calls, "--redis", port]
            ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, timeout=SECONDS_MAX, check=True)
        finally:
            server.terminate()
            server.wait(10)
    cases = {}
    for line in ran.stdout.decode().splitlines():
        if not line.startswith("{"):
            continue
        measured = json.loads(line)
        best = cases.setdefault(measured["case"], measured)
        for figure in ("client_us", "redis_us", "allocs"):
            if measured.get(figure) is not None:
                best[figure] = min(measured[figure], best[figure])
        if measured.get("per_second") is not None:
            best["per_second"] = max(measured["per_second"], best["per_second"])
    return cases


def number(value, places=2):
    return "–" if value is None else f"{value:,.{places}f}"


def table(language, cases):
    ours = cases.get("sluicegate", {}).get("client_us")
    print(f"\n| {language} | client µs | Redis µs | allocations | decisions a second | client µs, ours / this |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, case in cases.items():
        ratio = ours / case["client_us"] if ours and case["client_us"] else None
        print(
            f"| {name} | {number(case['client_us'])} | {number(case.get('redis_us'))} | {number(case.get('allocs'), 0)}"
            f" | {number(case.get('per_second'), 0)} | {number(ratio)} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", default=["go", "java", "php"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--redis-server", default="redis-server")
    options = parser.parse_args()
    for language in options.languages:
        table(language, measure(language, options))


if __name__ == "__main__":
    main()
