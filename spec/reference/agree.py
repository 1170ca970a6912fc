"""The reference client as a program of sdk/agree: reads steps, a JSON object a line, and writes decisions."""
import json
import sys
from types import SimpleNamespace

import direct

FIELDS = {"policy": "name", "op": "verb", "cost": "cost", "max_wait_us": "max_wait_us"}


class Clock:
    """The time that the steps say, in place of the machine's."""

    now_us = 0

    def time_ns(self):
        return self.now_us * 1000

    def monotonic(self):
        return self.now_us / 1_000_000


def main():
    clock, program = Clock(), None
    direct.time = SimpleNamespace(time_ns=clock.time_ns, monotonic=clock.monotonic)
    for line in sys.stdin:
        step = json.loads(line)
        clock.now_us = step["now_us"]
        if program is None:
            host, port = step["redis"].rsplit(":", 1)
            program = direct.Program(direct.Redis(host, int(port)), "agree")
            program.look()
            answer = {}
        else:
            asked = {to: step[name] for name, to in FIELDS.items() if name in step}
            try:
                answer = program.decide(key=step["key"].encode(), permit=step.get("id", "").encode(), **asked)
            except direct.Problem as problem:
                answer = {"error": "unsupported_verb" if str(problem) == "unsupported" else str(problem)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
