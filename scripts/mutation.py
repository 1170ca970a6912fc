#!/usr/bin/env python3
"""Mutation tests by cargo-mutants: how many small changes of the code no test notices.

    scripts/mutation.py                 the next sample of the room with the fewest, recorded in crates/mutation.tsv (two hours)
    scripts/mutation.py ROOM [SHARD]    one of kernel, engine, store; of that sample, which is not recorded
    scripts/mutation.py --diff [BASE]   what changed since BASE (the last commit), at most ten minutes

A sample is each n-th mutant of a room. Whatever its own tests miss, the tests of the next crates are asked for. Mutants that
change nothing are listed with the reason in .cargo/mutants.toml. The first test that fails ends the run of a mutant:
`cargo test` would run all others as well.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

VERSION = "27.1.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "crates/mutation.tsv"
# Room: its files, one of how many mutants is tested, whose tests are asked in turn, and the largest permitted share of
# missed ones.
ROOMS = {
    "kernel": (["crates/kernel/src/**"], 10, ["kernel", "policy", "sim", "store"], 0.03),
    "engine": (["crates/sluicegate/src/lease/**", "crates/sluicegate/src/engine/**"], 15, ["", "sim", "server"], 0.05),
    "store": (["crates/store/src/redis/**"], 20, ["store", "sim"], 0.08),
}
# A run of a room; a mutant with all its tests; the mutants of a change.
ROOM_S, MUTANT_S, DIFF_S = 2 * 3600, 1800, 600
# Time in which no test ends, above which one hangs, which is to catch a mutant: tests of these crates play many histories,
# or wait for Redis.
HANGS_S, HANGS_LONG_S, LONG = 120, 400, ("sim", "store", "server")
# More mutants of a file than this that do not compile are a mistake of the command: features are missing.
UNVIABLE_MAX, UNVIABLE_FROM = 1 / 3, 6


def run(*words, **options):
    return subprocess.run(words, check=False, text=True, **options)


def tool():
    """cargo-mutants in .tools, of the version above."""
    os.environ["PATH"] = f"{ROOT}/.tools/bin:{os.environ['PATH']}"
    found = run("cargo", "mutants", "--version", capture_output=True).stdout
    if VERSION not in found:
        print(f"mutation: installing cargo-mutants {VERSION} into .tools")
        install = ["cargo", "install", "--quiet", "--locked", "--root", ROOT / ".tools"]
        run(*install, "--version", f"={VERSION}", "cargo-mutants").check_returncode()


def tree():
    """A clean clone of the last commit, in which mutants are made: nothing here changes."""
    folder = ROOT / "target/mutation/tree"
    if not folder.exists():
        run("git", "clone", "--quiet", ROOT, folder).check_returncode()
    for words in (["fetch", "--quiet", "origin", "HEAD"], ["checkout", "--quiet", "--force", "FETCH_HEAD"]):
        run("git", "-C", folder, *words).check_returncode()
    return folder


def test(folder, crates, choose, seconds):
    """Tests the chosen mutants by each of `crates` in turn, as far as earlier ones missed them. Returns what became of each."""
    output, until = folder.parent / "output", time.time() + seconds
    run("rm", "-rf", output)
    # Cargo starts each program of tests by this one.
    host = run("rustc", "-vV", capture_output=True).stdout.split("host: ")[1].split()[0].upper().replace("-", "_")
    runner = {f"CARGO_TARGET_{host}_RUNNER": f"{sys.executable} {pathlib.Path(__file__).resolve()} --until-one-fails"}
    # A mutant changes one line: the kernel is built anew in 3 s where it takes 30 s without what earlier builds left.
    target = {**os.environ, **runner, "CARGO_TARGET_DIR": str(folder.parent / "build"), "CARGO_INCREMENTAL": "1"}
    fate = {}
    for number, crate in enumerate(crates):
        package = "sluicegate" + (f"-{crate}" if crate else "")
        words = ["cargo", "mutants", "--in-place", "--all-features", "--baseline", "skip", "--timeout", MUTANT_S]
        words += ["--no-shuffle", "--output", output, "--test-package", package]
        # A part of what earlier tests missed would be another part of all: later ones are asked by name. (The tool also
        # makes mutants of fields of structs, whatever the name.)
        asked = missed(fate)
        files = [word for file in {fate[name][0] for name in asked} for word in ("--file", file)]
        words += [*files, "--re", f"^({'|'.join(map(re.escape, asked))})$"] if number else choose
        words += ["--", "--lib", "--tests"]
        # It ends its tests if it is interrupted.
        ended = run("timeout", "--signal", "INT", str(until - time.time()), *map(str, words), cwd=folder, env=target)
        if ended.returncode == 124:
            print(f"mutation: {seconds} s are over")
        outcomes = output / "mutants.out/outcomes.json"
        if not outcomes.exists():
            print(f"mutation: {package}: no mutant was tested")
            break
        for outcome in json.loads(outcomes.read_text())["outcomes"]:
            mutant = outcome["scenario"] != "Baseline" and outcome["scenario"]["Mutant"]
            if mutant and (not number or mutant["name"] in asked):
                fate[mutant["name"]] = (mutant["file"], outcome["summary"])
        if time.time() >= until or not missed(fate):
            break
    run("git", "-C", folder, "checkout", "--quiet", "--force", "HEAD")
    return fate


def until_one_fails(program):
    """Runs the tests of a program until one fails, or none has ended for too long. Returns the exit status."""
    # Cargo starts a program of tests in the folder of its crate.
    hangs_s = HANGS_LONG_S if pathlib.Path.cwd().name in LONG else HANGS_S
    # Tests in one process share their Redis servers; servers end with the process that started them.
    tests = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
    ended = time.time()
    hung = threading.Event()

    def watch():
        while tests.poll() is None:
            if time.time() - ended > hangs_s:
                hung.set()
                tests.kill()
            time.sleep(1)

    threading.Thread(target=watch, daemon=True).start()
    for line in tests.stdout:
        ended = time.time()
        if line.startswith("test ") and line.endswith("FAILED\n"):
            tests.kill()
            return 101
    return 101 if tests.wait() != 0 or hung.is_set() else 0


def missed(fate):
    return sorted(name for name, (_, summary) in fate.items() if summary == "MissedMutant")


def count(fate, summary, file=None):
    return sum(1 for of, it in fate.values() if it == summary and file in (None, of))


def judge(fate, missed_max):
    """Prints what was missed. Returns whether it is too much, or a file was hardly compiled."""
    wrong = False
    for name in missed(fate):
        print(f"missed: {name}")
    for file in sorted({file for file, _ in fate.values()}):
        of = sum(1 for it, _ in fate.values() if it == file)
        if of >= UNVIABLE_FROM and count(fate, "Unviable", file) > of * UNVIABLE_MAX:
            print(f"mutation: {file}: {count(fate, 'Unviable', file)} of {of} mutants do not compile")
            wrong = True
    viable = len(fate) - count(fate, "Unviable")
    share = len(missed(fate)) / max(viable, 1)
    print(f"mutation: {len(missed(fate))} of {viable} missed ({share:.1%}; at most {missed_max:.0%})")
    return wrong or share > missed_max


def sample(room, shard):
    files, of, crates, missed_max = ROOMS[room]
    choose = [word for file in files for word in ("--file", file)]
    choose += ["--shard", f"{shard}/{of}", "--sharding", "round-robin"]
    fate = test(tree(), crates, choose, ROOM_S)
    return fate, judge(fate, missed_max)


def record(room, shard, fate):
    commit = run("git", "-C", ROOT, "rev-parse", "--short", "HEAD", capture_output=True).stdout.strip()
    unviable, lost = count(fate, "Unviable"), len(missed(fate))
    row = [room, shard, ROOMS[room][1], commit, len(fate), len(fate) - unviable - lost, lost, unviable]
    with RECORD.open("a") as file:
        file.write("\t".join(map(str, row)) + "\n")


def samples(room):
    """The rows of a room, in the order of their nights."""
    rows = [line.split("\t") for line in RECORD.read_text().splitlines()]
    return [row for row in rows if row[0] == room]


def next_shard(room):
    """The one after the last that was recorded."""
    rows = samples(room)
    return (int(rows[-1][1]) + 1) % ROOMS[room][1] if rows else 0


def diff(base):
    folder = tree()
    patch = folder.parent / "change.diff"
    with patch.open("w") as file:
        run("git", "-C", ROOT, "diff", base, "HEAD", "--", "crates", stdout=file).check_returncode()
    wrong = False
    for room, (files, _, crates, missed_max) in ROOMS.items():
        choose = [word for file in files for word in ("--file", file)] + ["--in-diff", patch]
        listed = run("cargo", "mutants", "--list", "--all-features", *map(str, choose), cwd=folder, capture_output=True)
        mutants = len(listed.stdout.splitlines())
        print(f"mutation: {room}: {mutants} mutants")
        if mutants:
            fate = test(folder, crates[:1], choose, DIFF_S / len(ROOMS))
            print(f"mutation: {mutants - len(fate)} of them are left out")
            wrong |= judge(fate, missed_max)
    return wrong


def main(words):
    if words[:1] == ["--until-one-fails"]:
        return until_one_fails(words[1])
    tool()
    if words[:1] == ["--diff"]:
        return diff(words[1] if len(words) > 1 else "HEAD~1")
    if words:
        room, shard = words[0], int(words[1]) if len(words) > 1 else 0
        return sample(room, shard)[1]
    room = min(ROOMS, key=lambda room: len(samples(room)))
    shard = next_shard(room)
    fate, is_wrong = sample(room, shard)
    record(room, shard, fate)
    return is_wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
