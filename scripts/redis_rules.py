#!/usr/bin/env python3
"""Rules of managed and other Redis for scripts, which this one's Redis does not have: where ours break them.

    scripts/redis_rules.py            compares with spec/redis/elsewhere.tsv; what is not listed there fails
    scripts/redis_rules.py --shrink   removes from the list what no longer breaks a rule; nothing is ever added

>>> [rule for rule, _ in broken("redis.call('GET', KEYS[1])")]
[]
>>> [rule for rule, _ in broken("redis.pcall('SET', key, unpack(list))")]
['literal-keys', 'unpack']
>>> [rule for rule, _ in broken("local call = redis.call")]
['direct-calls']
>>> [rule for rule, _ in broken("call('GET', KEYS[place])\\nredis.call('TIME')")]
['literal-keys']
>>> [rule for rule, _ in broken("redis.call('GET', 'sg:' .. KEYS[1])")]
['declared-keys', 'literal-keys']
>>> [rule for rule, _ in broken("redis.call('PUBLISH', ARGV[1], ARGV[2])")]
['no-publish']
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ["spec/redis/decide.lua", "crates/store/src/redis/fleet.lua", "crates/store/src/redis/publish.lua"]
LIST = ROOT / "spec/redis/elsewhere.tsv"
TAIR = "https://www.alibabacloud.com/help/en/redis/support/usage-of-lua-scripts"
# Rule: who has it, with the source.
RULES = {
    "literal-keys": f"a key of a command is KEYS[n] with n as a number: Tair, clusters by proxy, {TAIR}",
    "direct-calls": f"a command is called by redis.call or redis.pcall and by no other name: the same, {TAIR}",
    "declared-keys": "a key is one of KEYS: Dragonfly, https://www.dragonflydb.io/docs/managing-dragonfly/scripting",
    "unpack": "the global unpack does not exist: Tair, https://developer.aliyun.com/ask/636094, and Lua 5.4 of Dragonfly",
    "no-publish": "a script publishes nothing: Tair, https://developer.aliyun.com/ask/636094",
}
CALL = re.compile(r"(?<![\w.])(redis\.p?call|call|try)\(\s*'(\w+)'\s*(?:,\s*([^,()]*(?:\([^()]*\))?[^,()]*))?")
KEYLESS = {"TIME", "PUBLISH"}


def broken(text):
    """Pairs of a rule and the line that breaks it, by line."""
    found = []
    for line in text.splitlines():
        code = line.split("--")[0].strip()
        rules = set()
        for _, command, key in CALL.findall(code):
            if command == "PUBLISH":
                rules.add("no-publish")
            if command not in KEYLESS and not re.fullmatch(r"KEYS\[\d+\]", key.strip()):
                rules.add("literal-keys")
                # A name stands for one of KEYS in our scripts; a text does not.
                if "'" in key or ".." in key:
                    rules.add("declared-keys")
        if re.search(r"=\s*(?:[^=]*,\s*)?redis\.p?call\b(?!\()", code):
            rules.add("direct-calls")
        if re.search(r"(?<![\w.:'])unpack\(", code):
            rules.add("unpack")
        found += [(rule, code) for rule in sorted(rules)]
    return found


def main(shrink):
    now = collections.Counter((script, *each) for script in SCRIPTS for each in broken((ROOT / script).read_text()))
    listed = collections.Counter(tuple(line.split("\t")) for line in LIST.read_text().splitlines()[1:])
    if shrink:
        rows = sorted((now & listed).elements())
        LIST.write_text("script\trule\tline\n" + "".join("\t".join(row) + "\n" for row in rows))
        listed = now & listed
    for script, rule, line in (now - listed).elements():
        print(f"{script}: {line}\n  breaks `{rule}`: {RULES[rule]}")
    for script, rule, line in (listed - now).elements():
        print(f"{script}: {line}\n  no longer breaks `{rule}`: scripts/redis_rules.py --shrink")
    print(f"rules of other Redis: {sum(now.values())} lines break one, {sum((now - listed).values())} of them are new")
    return now != listed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] == ["--shrink"]))
