#!/usr/bin/env python3
"""Compares the figures in pages with bench/results, where measurements are kept; bench/results/README.md explains both.

    scripts/figures.py                     compares
    scripts/figures.py record FILE OUT     writes what `sluicegate-bench-exactness --raw OUT` measured into a file of bench/results
"""
import json
import os
import pathlib
import re
import sys

import pages

# A page: the page of which it has the numbers, in bench/results/chosen.json.
PAGES = {page: page for page in ("README.md", "docs/exactness.md", "docs/leases.md")} | {"README.zh-CN.md": "README.md"}
RESULTS = pathlib.Path("bench/results")
# `1,748`, `0.97`, `7.0.15`, `−2`; not the digits of a name such as `v2`.
NUMBER = re.compile(r"(?<![\w.,])[+−-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)*")
REGION = re.compile(r"<!-- (figures|chosen): (.+?) -->\n(.*?)<!-- end -->", re.S)


def numbers(text):
    """The numbers of `text`, without inline code and addresses of links.

    >>> numbers("10,101 of `7`, [2](3.md), −0.5 and 7.0.15")
    ['10101', '2', '-0.5', '7.0.15']
    """
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)|https?://\S*", "`` ", text)
    return [number.replace(",", "").replace("−", "-").lstrip("+") for number in NUMBER.findall(text)]


def is_among(number, figures):
    """Whether a page may show a figure as `number`, with as many digits as `number` has.

    >>> is_among("1.40", [1.397]), is_among("1.4", [1.5]), is_among("7.0.15", ["7.0.15"])
    (True, False, True)
    """
    if number.count(".") > 1:
        return number in figures
    digits = len(number.partition(".")[2])
    # Half of the last digit, and a hair for how floats are kept.
    figures = [figure for figure in figures if not isinstance(figure, str)]
    return any(abs(figure - float(number)) <= 0.5 * 10**-digits * 1.000001 for figure in figures)


def figures_in(entry):
    """All numbers of an entry of a file of results."""
    if isinstance(entry, dict):
        return [figure for name, child in entry.items() if name != "runs" for figure in figures_in(child)]
    if isinstance(entry, list):
        return [figure for child in entry for figure in figures_in(child)]
    return [entry]


def cells(row):
    """The cells of a row of a table, as plain text."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row).replace("`", "")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", plain)[1:-1]]


def wrong_row(row, entries, chosen):
    """The numbers of a row of a table are those of one entry: of the one that its first cell names, if there is one."""
    first = cells(row)[0] if cells(row) else ""
    if first in entries:
        rest = "|".join(re.split(r"(?<!\\)\|", row)[2:])
        return [number for number in numbers(rest) if not is_among(number, figures_in(entries[first]))]
    shown = [number for number in numbers(row) if number not in chosen]
    if any(all(is_among(number, figures_in(entry)) for number in shown) for entry in entries.values()):
        return []
    return shown


def wrong(page, text, results, chosen):
    """A message for each figure of a page that no measurement has, and for each number that is neither."""
    text = re.sub(pages.FENCE, lambda fence: "\n" * fence[0].count("\n"), text)
    regions = list(REGION.finditer(text))
    outside = REGION.sub(lambda region: "\n" * region[0].count("\n"), text)
    for line, content in enumerate(outside.split("\n"), 1):
        for number in numbers(content):
            if number not in chosen:
                yield f"{page}:{line}: {number} is in no region of figures, and bench/results/chosen.json does not have it"
    for region in regions:
        kind, names, body = region.groups()
        first = text.count("\n", 0, region.start()) + 2
        if kind == "chosen":
            continue
        entries = {}
        for name in names.split(", "):
            if name not in results:
                yield f"{page}:{first - 1}: there is no bench/results/{name}"
                continue
            if isinstance(results[name], str):
                if results[name].strip() not in body:
                    yield f"{page}:{first}: the table is not that of bench/results/{name}"
                body = body.replace(results[name].strip(), "\n" * results[name].strip().count("\n"))
            else:
                entries |= results[name]["entries"]
        every = figures_in(list(entries.values()))
        for line, content in enumerate(body.split("\n"), first):
            if content.startswith("|"):
                bad = wrong_row(content, entries, chosen)
            else:
                bad = [number for number in numbers(content) if number not in chosen and not is_among(number, every)]
            for number in bad:
                yield f"{page}:{line}: {number} is not in bench/results/{names}"


def unused(texts, results):
    """Entries that no table has as a row: they would never be compared."""
    rows = {cells(row)[0] for text in texts for row in text.split("\n") if row.startswith("|") and cells(row)}
    for name, result in results.items():
        for entry, value in (result["entries"].items() if isinstance(result, dict) else ()):
            if isinstance(value, dict) and entry not in rows:
                yield f"bench/results/{name}: no table has a row `{entry}`"


def measured(raw):
    """The figures of one run, from what `--raw` writes."""
    local = sum(mode["admitted"] + mode["refused"] for mode in raw["modes"] if mode["mode"] == "local")
    calls = re.search(r"calls ([\d.]+) %", raw["remark"])
    return {
        "may_be_over": raw["beside"], "admitted": raw["admitted"], "most_over": round(raw["most_over"]), "by_share": local,
        "times_limit": round(raw["admitted"] / (raw["bound"] - raw["beside"]), 2) if raw["bound"] else None,
        "admitted_percent": round(100 * raw["admitted"] / raw["bound"], 1) if raw["bound"] else None,
        "calls_percent": float(calls[1]) if calls else None, "p99_ms": round(raw["p99_ms"], 1),
    }


def record(file, out):
    """Writes the figures that the file has, as they were measured anew. `runs` names the file of each run: BUILD-SCENARIO."""
    path = RESULTS / file
    result, count = json.loads(path.read_text()), 0
    for entry in result["entries"].values():
        for label, run in (entry.get("runs", {}) if isinstance(entry, dict) else {}).items():
            source = pathlib.Path(out, f"{run}.json")
            if source.exists():
                new = measured(json.loads(source.read_text()))
                entry[label] = {name: new[name] for name in entry[label]}
                count += 1
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"figures: {count} runs recorded in {path}; now change the pages until scripts/figures.py finds no difference")


def main():
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    if sys.argv[1:2] == ["record"]:
        return record(*sys.argv[2:])
    texts = {file: file.read_text() for file in RESULTS.iterdir() if file.name != "README.md"}
    results = {file.name: json.loads(text) if file.suffix == ".json" else text for file, text in texts.items()}
    chosen = results.pop("chosen.json")
    texts = {page: pathlib.Path(page).read_text() for page in PAGES}
    found = [message for page, text in texts.items() for message in wrong(page, text, results, chosen[PAGES[page]])]
    found += unused(texts.values(), results)
    if found:
        sys.exit("\n".join(found))
    print(f"figures: those of {len(PAGES)} pages are in {RESULTS}")


if __name__ == "__main__":
    main()
