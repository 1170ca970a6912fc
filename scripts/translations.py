"""Compares each Chinese page with its English page: headings, code blocks, links, tables, inline code and numbers.

Prose is free, but a section must have the inline code and the numbers of its English section: a name, a default or a
limit that changes in English is an error until the Chinese page follows. `scripts/test-readme --pages` runs this.
"""

import itertools
import os.path
import pathlib
import re

# English page: its Chinese page.
PAIRS = {"README.md": "README.zh-CN.md"} | {
    f"docs/{name}.md": f"docs/zh/{name}.md" for name in ("choosing", "cookbook", "deploy", "glossary", "policies", "runbook", "sdk-faults", "start-go", "start-java", "start-php")
}
# Chinese pages without an English page. Their code blocks must stand in an English page, whose commands are tested.
ALONE = ["docs/zh/README.md", "docs/zh/quickstart.md"]
# Pages that links lead to in the language of the page, and that are not compared.
LINKED = {f"sdk/{name}/README.md": f"sdk/{name}/README.zh.md" for name in ("go", "java", "php")}
# A word that Chinese texts must not have, and the word of the console and the glossary for the same thing.
WORDS = {
    r"(?<!设计)决策": "判定",
    "滑动计数器": "滑动计数",
    "突发容量": "突发",
    "故障手册": "运维手册",
    "例外规则": "单独限额",
    "假设对比": "假设分析",
    "阀值": "阈值",
}
CONSOLE = [f"console/src/lib/i18n/{name}zh.json" for name in ("", "findings.", "policy.")]
# The words of the column "Default". All other defaults are values, which are the same in both languages.
DEFAULTS = {
    "required": "必填",
    "none": "无",
    "never": "永久",
    "off": "关闭",
    "every host": "所有主机",
    "every method": "所有方法",
    "every path": "所有路径",
    "one budget shared by all requests": "所有请求共用一份额度",
    "in a catalog its own app, in a file every app": "策略目录中为所属应用，文件中为所有应用",
    "required unless `calendar` is given": "必填，除非已设置 `calendar`",
    "the permits of `rate`": "`rate` 的许可数",
}

fence = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.M | re.S)


def headings(text):
    return [(len(level), title) for level, title in re.findall(r"^(#{1,6}) (.+)$", fence.sub("", text), re.M)]


def anchors(text):  # as GitHub makes them
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for _, title in headings(text)]
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain]


def differences(read=lambda page: pathlib.Path(page).read_text()):
    """A message for each Chinese page that does not follow, with the first difference. `read` returns a page's text."""
    wrong = []
    for english, chinese in PAIRS.items():
        if found := difference(read(english), read(chinese), english, chinese, read):
            wrong.append(f"{chinese} does not follow {english}: {found}")
    pages = [page.as_posix() for page in pathlib.Path("docs").glob("**/*.md") if page.parent.name != "zh"]
    shown = {block for page in ("README.md", *pages) for block in blocks(read(page))}
    for page in ALONE:
        for _, block in [block for block in blocks(read(page)) if block not in shown]:
            wrong.append(f"{page}: no English page has this code block:\n{block}")
    for page in pathlib.Path("docs/zh").glob("*.md"):
        if page.as_posix() not in (*PAIRS.values(), *ALONE):
            wrong.append(f"{page}: name its English page in scripts/translations.py")
    for page in (*PAIRS.values(), *ALONE, *LINKED.values(), *CONSOLE):
        for word in [word for word in WORDS if re.search(word, fence.sub("", read(page)))]:
            wrong.append(f"{page}: not `{word}` but `{WORDS[word]}`, the word of docs/glossary.md and the console")
    return wrong


def difference(ours, theirs, english, chinese, read):
    """The first difference between the text of an English page and that of its Chinese page, or nothing."""
    names = re.compile(r"`[^`]+`|Sluicegate[A-Z]\w+")
    both = list(itertools.zip_longest(sections(ours), sections(theirs), fillvalue=("# (no heading)", "")))
    # All headings and blocks before anything else: after a heading that one page lacks, nothing else can agree.
    for (title, body), (title_zh, body_zh) in both:
        level, level_zh = (name.split(" ")[0] for name in (title, title_zh))
        if level != level_zh or "(no heading)" in title + title_zh or names.findall(title) != names.findall(title_zh):
            return f"English has the heading `{title}` where Chinese has `{title_zh}`"
        if found := in_blocks(blocks(body), blocks(body_zh)):
            return f"under `{title}` and `{title_zh}` {found}"
    for (title, body), (title_zh, body_zh) in both:
        found = (
            in_tables(tables(body), tables(body_zh))
            or in_links(links(body, english, chinese, read), links(body_zh, chinese, english, read))
            or in_prose(fence.sub("", body), fence.sub("", body_zh))
        )
        if found:
            return f"under `{title}` and `{title_zh}` {found}"
    return None


def in_blocks(ours, theirs):
    for (language, block), (language_zh, block_zh) in itertools.zip_longest(ours, theirs, fillvalue=("", "")):
        if language != language_zh:
            return f"English has a block of `{language or 'nothing'}` where Chinese has one of `{language_zh or 'nothing'}`"
        for line, line_zh in itertools.zip_longest(block.split("\n"), block_zh.split("\n"), fillvalue="(no line)"):
            if line != line_zh:
                return f"a line of a code block differs:\n  English: {line}\n  Chinese: {line_zh}"
    return None


def in_tables(ours, theirs):
    for table, table_zh in itertools.zip_longest(ours, theirs, fillvalue=[]):
        for row, row_zh in itertools.zip_longest(table, table_zh, fillvalue=[]):
            cells = itertools.zip_longest(table[0] if table else [], row, row_zh, fillvalue="")
            if len(row) != len(row_zh) or row != table[0] and not all(same_cell(*cell) for cell in cells):
                return f"a row differs:\n  English: {' | '.join(row)}\n  Chinese: {' | '.join(row_zh)}"
    return None


def same_cell(column, cell, cell_zh):
    if column == "Default" and DEFAULTS.get(cell, cell) != cell_zh:
        return False
    if column in ("English term", "中文") and cell != cell_zh:
        return False
    return codes(cell) == codes(cell_zh) and numbers(cell) == numbers(cell_zh)


def in_links(ours, theirs):
    translated = PAIRS | LINKED
    for page, heading in [(translated.get(page, page), heading) for page, heading in ours]:
        if (page, heading) not in theirs:
            return f"Chinese has no link to {page}" + (f", heading {heading}" if heading != "" else "")
        theirs.remove((page, heading))
    return f"Chinese has a link to {theirs[0][0]}, English has none to that page" if theirs else None


def in_prose(ours, theirs):
    for names, names_zh, other in ((codes(ours), codes(theirs), "Chinese"), (codes(theirs), codes(ours), "English")):
        if names - names_zh:
            return f"`{min(names - names_zh)}` is missing in {other}"
    if missing := numbers(ours) - numbers(theirs):
        return f"the number {min(missing)} is missing in Chinese"
    return None


def sections(text):
    """The parts of a page, each of a heading and the text up to the next one."""
    found, mark = [["# (before the first heading)", ""]], None
    for line in text.split("\n"):
        fences = re.match(r"```+", line)
        if fences and mark in (None, fences[0]):
            mark = None if mark else fences[0]
        if re.match(r"#{1,6} ", line) and not mark:
            found.append([line, ""])
        else:
            found[-1][1] += line + "\n"
    return found


def blocks(text):
    """The code blocks, without comments, which may be in the language of the page. What commands print has none."""
    found = []
    for _, language, block in fence.findall(text):
        if language not in ("console", "text", "json"):
            block = re.sub(r"(^|[ \t]+)(#|//) .*$", "", block, flags=re.M)
        found.append((language, "\n".join(line for line in block.split("\n") if line)))
    return found


def tables(text):
    """The tables: lists of rows, which are lists of cells. The line below the head is left out."""
    found = re.findall(r"(?:^\|.*\n)+", fence.sub("", text), re.M)
    tables = [[row for row in table.splitlines() if re.search(r"[^-:| ]", row)] for table in found]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table] for table in tables]


def links(text, page, other, read):
    """Where links lead: a page, and in a page with a translation the place of the heading. Links to the `other`
    language's page, and to pages that exist in Chinese only, are left out."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", fence.sub("", text))):
        path, _, anchor = link.partition("#")
        target = path if ":" in path else os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        known = anchors(read(target)) if anchor and target in (*PAIRS, *PAIRS.values()) else []
        if target != other and target not in ALONE:
            found.append((target, known.index(anchor) if anchor in known else anchor))
    return found


def codes(text):
    return {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)}


def numbers(text):
    return set(re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", text)))
