#!/usr/bin/env python3
"""Checks the pages of the repository without running them: links, anchors, pictures, the table of contents, that Chinese pages
follow English ones, and phrases that are not plain English. scripts/docs and scripts/walk import the parser.
"""
import os
import pathlib
import re
import subprocess
import sys
import typing

import translations

FENCE = re.compile(r"^( *)(```+)([\w-]*)[^\n]*\n(.*?)^\1\2$", re.M | re.S)
LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s]+)\)")
PAGES = ["*.md", "bench/*.md", "deploy/*.md", "docs/**/*.md", "sdk/*/*.md", "spec/*.md"]
CONTENTS = pathlib.Path("docs/SUMMARY.md")

# Phrases that CONTRIBUTING.md ("Plain English") advises against: each has a subject, a verb or a noun missing. The
# history in CHANGELOG.md and docs/adr keeps its words, and CONTRIBUTING.md quotes some in a table. A line is a regular
# expression without regard to case, in which a space also matches the end of a line.
ODD = [
    r"\bwhoever\b",
    r"\b(is|are) told\b",
    r"\bis said\b",
    r"\bunless (told|said) otherwise",
    r"\bunless (it|that) says (so|otherwise)",
    r"\bin the place of\b",
    r"\bnobody knows\b",
    r"(?<!there)(?<!\s) is no (rate|name|number|path|decision|policy|duration|answer|failure)\b",
    r"\bwhat differs\b",
    r"\bmay everything\b",
    r"\b(is|are) not believed\b",
    r"\bfor want of\b",
    r"\b(told to|be told|was told|were told)\b",
    r"\bin force\b",
    r"\bheld back\b",
    r"\b(is|are) noted\b",
    r"\b(is|are) to be\b",
    r"\bby way of\b",
    r"\bthrice\b",
    r"\bsays? so\b",
    r"\bwhat was won\b",
    r"\b(server|node|program|process|answer|status|file|page|log|metric|setting|policy|store|redis|it|they)s? "
    r"(says?|tells?|knows?|believes?)\b",
    r"\bmakes? no sense\b",
    r"(?-i:(^|\n\n|\. |[-*] |\| )Who (is|are|was|may|has|does|comes|asks|tries|can|shows|says|left|writes)\b)(?![^.|]*\?)",
]
ODD = [re.compile(phrase.replace(" ", r"\s+"), re.I) for phrase in ODD]


class Block(typing.NamedTuple):
    """A block of code: the line of its fence, its language, and its text without the indent of the fence."""
    line: int
    language: str
    text: str


def blocks(text):
    """
    >>> [(block.line, block.language, block.text) for block in blocks("- a\\n\\n  ```sh\\n  b\\n  ```\\n")]
    [(3, 'sh', 'b\\n')]
    """
    found = []
    for fence in FENCE.finditer(text):
        indent, _, language, body = fence.groups()
        body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        found.append(Block(text.count("\n", 0, fence.start()) + 1, language, body))
    return found


def prose(text):
    """`text` without code."""
    return re.sub(r"`[^`\n]*`", "``", FENCE.sub("", text))


def headings(text):
    return [(len(level), title) for level, title in re.findall(r"^(#{1,6}) (.+)$", FENCE.sub("", text), re.M)]


def links(text):
    """The links of a page that stay in the repository: whether it is a picture, the path ("" for the page), the anchor.

    >>> list(links("![a](b.png) [c](d.md#e) [f](#g) `[h](i)` [j](https://k)"))
    [(True, 'b.png', ''), (False, 'd.md', 'e'), (False, '', 'g')]
    """
    for picture, _, link in LINK.findall(prose(text)):
        path, _, anchor = link.partition("#")
        if ":" not in path:
            yield bool(picture), path, anchor


def anchors(text):
    """The anchors of headings, as code hosts make them.

    >>> sorted(anchors("# One `two`, three\\n## [Four](five.md) 5.6\\n"))
    ['four-56', 'one-two-three']
    """
    plain = [LINK.sub(r"\2", title) for _, title in headings(text)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def all_pages():
    return sorted({page for pattern in PAGES for page in pathlib.Path(".").glob(pattern)})


def wrong_links(page, tracked):
    text = page.read_text()
    for picture, path, anchor in links(text):
        target = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
        link = f"{page}: {path}{'#' if anchor else ''}{anchor}"
        if target.is_absolute() or target.parts[:1] == ("..",):
            yield f"{link} leaves the repository"
        elif not target.exists():
            yield f"{link}: {'picture' if picture else 'file'} does not exist"
        elif str(target) not in tracked and not target.is_dir():
            yield f"{link} is not in the repository"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{link}: no such heading"


def wrong_contents():
    """Pages of the book that its table of contents leaves out, and pictures that no page shows."""
    text = CONTENTS.read_text()
    listed = {os.path.normpath(CONTENTS.parent / path) for _, path, _ in links(text)}
    for page in sorted(CONTENTS.parent.rglob("*.md")):
        if page != CONTENTS and str(page) not in listed:
            yield f"{page} is not in {CONTENTS}"
    index = CONTENTS.parent / "README.md"
    found = {os.path.normpath(index.parent / path) for _, path, _ in links(index.read_text())}
    for page in sorted(listed - found):
        # The index in Chinese lists the pages in Chinese.
        if "/adr/" not in page and "/zh/" not in page and page != str(index):
            yield f"{page} is not in {index}"
    shown = {os.path.normpath(page.parent / path) for page in all_pages() for _, path, _ in links(page.read_text())}
    for picture in sorted((CONTENTS.parent / "images").rglob("*.*")):
        if str(picture) not in shown:
            yield f"{picture} is in no page"


def wrong_beginnings(page):
    """A section begins with a sentence that has a subject, since an index shows the first line alone."""
    text = FENCE.sub("", page.read_text())
    for title, first in re.findall(r"^#+ (.+)\n\s*(?:<!--.*-->\s*)?(.+)", text, re.M):
        if re.match(r"(What|Who|How|Which|Whether)\b(?!.*\?)", first):
            yield f"{page}: `{title}` begins without a subject: {first[:60]}"


def wrong_words(page):
    text = prose(page.read_text())
    if page.name == "CONTRIBUTING.md":
        text = re.sub(r"^\|.*\n|\"\w+\"", "", text, flags=re.M)
    if page.name == "CHANGELOG.md" or page.parent.name == "adr":
        return
    yield from wrong_beginnings(page)
    for found in [found for phrase in ODD for found in phrase.finditer(text)]:
        yield f"{page}: not plain English (CONTRIBUTING.md): {' '.join(found[0].split())}"


def wrong_runbook_urls(alerts=pathlib.Path("deploy/prometheus/alerts.yml"), runbook=pathlib.Path("docs/runbook.md")):
    """Alertmanager shows `runbook_url` as a link: it has to be an absolute URL of a section of the runbook."""
    known = anchors(runbook.read_text())
    for number, line in enumerate(alerts.read_text().splitlines(), 1):
        name, _, url = line.strip().partition(": ")
        if name != "runbook_url":
            continue
        page, _, anchor = url.partition("#")
        if not page.startswith("https://") or not page.endswith(f"/{runbook}"):
            yield f"{alerts}:{number}: {url} is not an absolute URL of {runbook}"
        elif anchor not in known:
            yield f"{alerts}:{number}: {runbook} has no heading #{anchor}"


def wrong_faults(page=pathlib.Path("docs/sdk-faults.md")):
    """The table of each language has the same faults, and a test that reads the page is named above it."""
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S))
    faults = {language: re.findall(r"^\| (?!Fault)([^|]+) \|", text, re.M) for language, text in sections.items()}
    for language, text in sections.items():
        if faults[language] != faults["Go"]:
            other = sorted(set(faults[language]) ^ set(faults["Go"]))
            yield f"{page}: {language} has other faults than Go, or in another order: {', '.join(other)}"
        tests = [pathlib.Path(os.path.normpath(page.parent / path)) for _, path, _ in links(text)]
        if not any(test.exists() and page.name in test.read_text() for test in tests):
            yield f"{page}: {language}: no test that is named reads the page"


def main():
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    # Files that are added to the repository, or would be.
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines())
    wrong = [*translations.differences(), *wrong_contents(), *wrong_runbook_urls(), *wrong_faults()]
    for page in all_pages():
        wrong += [*wrong_words(page), *wrong_links(page, tracked)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"pages: the links, words and pictures of {len(all_pages())} pages are in order")


if __name__ == "__main__":
    main()
