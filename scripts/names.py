#!/usr/bin/env python3
"""Finds each name of ours that a page or a file of deploy/ uses, in the program: `scripts/names.py PROGRAM`.

| Kind | In a page | Found in |
|---|---|---|
| command, flag | `sluicegate policies diff --app`, `--nodes` | `--help` of the program and of each command |
| setting | `store.nodes`, `SLUICEGATE__STORE__NODES` | `sluicegate config schema`; `values.schema.json` of the chart |
| variable | `SLUICEGATE_TOKEN` | `--help`, or the source of tests and examples |
| metric, its labels | `sluicegate_held_requests` | the metrics of two servers that this script starts, one with a Redis |
| alert | `SluicegateErrors` | deploy/prometheus/alerts.yml |
| path, anchor | `docs/redis.md`, `docs/redis.md#keys` | the repository |
| endpoint | `/v1/check`, `/readyz` | docs/openapi*.json, or the program |
| header | `X-Sluicegate-Policy`, `RateLimit` | the program |
| name | `sluicegate-program`, `app.kubernetes.io/name` | deploy/, the program, or the names of packages |

Only code counts: spans and blocks of pages, and files of deploy/ as a whole. Names of other products are no false alarms, because
each kind has a form that only ours have. OTHERS has the exceptions. scripts/test_names.py plants a false name of each kind.
"""
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import typing
import urllib.request

import pages

FOLDERS = "bench|console|crates|deploy|docs|examples|fuzz|scripts|sdk|spec"
# The history keeps the names that it had.
HISTORY = ("CHANGELOG.md", "docs/adr/")
SOURCES = ("*.rs", "*.py", "*.go", "*.java", "*.kt", "*.php", "*.lua", "*.sh", "*.toml", "*.xml", "Makefile", "bench/*", "scripts/*", "sdk/*/scripts/*")
# Names that look like ours and are not there: why.
OTHERS = {
    "SLUICEGATE__SECTION__KEY": "docs/configuration.md explains the pattern with it",
    "deploy/sluicegate": "the Deployment `sluicegate`, as kubectl names it",
    "sluicegate_permit": "the entry of a descriptor that names a permit",
    "sluicegate_limit": "an action of examples/gateways/haproxy/sluicegate.lua",
    "sluicegate_acquire": "an action of examples/gateways/haproxy/sluicegate.lua",
    "sluicegate-kept": "a file of an earlier version, which docs/upgrade.md says to delete",
}
# Kinds whose form other names have in a language: classes, functions, and the variables and upstreams of nginx.
FREE = {"nginx": ("metric", "name"), "haproxy": ("metric", "name"), "java": ("alert", "metric"), "kotlin": ("alert", "metric"), "php": ("alert", "metric"), "go": ("metric",)}
COMMAND = re.compile(r"(?:^|(?<!install)[\s(=/`])sluicegate +(?!sluicegate )([a-z][^\n]*)")
FORMS = {
    "variable": re.compile(r"\bSLUICEGATE_[A-Z_]*[A-Z]\b"),
    "metric": re.compile(r"(?<![\w$@.-])sluicegate_[a-z_]+(\{[^}\n]*\}?)?\*?"),
    "path": re.compile(rf"(?<![\w./$<~-])(?:{FOLDERS})/[\w./*{{}},#-]*[\w/*}}]"),
    "endpoint": re.compile(r"(?<![\w.$*-])/v1/[A-Za-z0-9_:/{}.-]*[A-Za-z0-9_}]|(?<![\w./-])/[a-z]+z\b"),
    "header": re.compile(r"(?i)(?<![\w-])(?:x-sluicegate-[a-z-]*[a-z]|(?:x-)?ratelimit-(?:limit|policy|remaining|reset|[a-z]+))\b"),
    "name": re.compile(r"(?<![\w./:@-])sluicegate-[a-z][a-z-]*[a-z]\b|\bapp\.kubernetes\.io/[a-z-]+"),
    "alert": re.compile(r"(?<![\w.\\])Sluicegate[A-Z]\w+"),
}
SETTING = re.compile(r"^\[?([a-z][a-z_]*(?:\.[A-Za-z][A-Za-z_]*)+)\]?(?:$| ?=|: )")
FILE = re.compile(r"\.(c|cdx|crt|csv|db|go|gz|html|java|jsonl?|key|log|lua|md|pem|php|py|rs|sh|snap|sock|svg|toml|txt|ya?ml)$")


class Use(typing.NamedTuple):
    """A name that a file uses."""
    file: str
    line: int
    kind: str
    name: str


class Known(typing.NamedTuple):
    """All that there is: what the program, the chart and the repository have."""
    commands: dict    # a command, "" or "policies diff": its flags
    settings: set     # of the server, and fields of policies, also without their first parts
    values: set       # of the chart, likewise
    variables: set
    metrics: dict     # a metric: its labels, empty if it has no sample
    alerts: set
    files: set        # of the repository
    endpoints: list   # templates
    program: bytes    # in lower case
    sources: str      # code of the repository that is not in the program
    deploy: str


def codes(file, text):
    """The code of a file, with its line and its language; `span` in prose. A file of deploy/ is code as a whole.

    >>> list(codes("a.md", "Say `a`\\nor\\n```sh\\nb\\n```\\n"))
    [(4, 'sh', 'b\\n'), (1, 'span', 'a')]
    """
    if not file.endswith(".md"):
        yield 1, "file", text
        return
    for block in pages.blocks(text):
        yield block.line + 1, block.language, block.text
    rest = pages.FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for span in re.finditer(r"(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", rest, re.S):
        yield rest.count("\n", 0, span.start()) + 1, "span", " ".join(span[2].split())


def uses(file, text):
    for first, language, code in codes(file, text):
        def use(kind, name, start):
            return Use(file, first + code.count("\n", 0, start), kind, name)
        for kind, form in FORMS.items():
            for found in form.finditer(code) if kind not in FREE.get(language, ()) else ():
                yield use(kind, found[0], found.start())
        joined = re.sub(r"\\\n", lambda _: "  ", code)
        for found in COMMAND.finditer(joined) if language in ("span", "sh", "console", "file", "") else ():
            yield use("command", found[1], found.start(1))
        if language == "span":
            if re.match(r"--[a-z]", code):
                yield use("flag", code.split()[0].split("=")[0], 0)
            if setting := SETTING.match(code):
                yield use("setting", setting[1], 0)
            if re.fullmatch(r"[\w/-]+\.md", code):
                yield use("page", code, 0)


def wrong(uses, known):
    """A message for each false name."""
    checked = {}
    for use in uses:
        key = use.kind, use.name, os.path.dirname(use.file)
        if key not in checked:
            checked[key] = None if use.name in OTHERS else globals()[f"wrong_{use.kind}"](use.name, known, use.file)
        if checked[key]:
            yield f"{use.file}:{use.line}: {checked[key]}"


def wrong_command(line, known, _):
    line = re.split(r"\s(?:[|#>&;]|\d?>)|[;`…]|\$\(|\)$", line)[0]
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    command = ""
    while words and f"{command} {words[0]}".strip() in known.commands:
        command = f"{command} {words.pop(0)}".strip()
    has_commands = any(other.startswith(f"{command} ".lstrip()) for other in known.commands if other)
    if has_commands and words and re.fullmatch("[a-z-]+", words[0]):
        return f"`sluicegate {command}".strip() + f"` has no command `{words[0]}`"
    for flag in (word.split("=")[0] for word in words if re.match("--[a-z]", word)):
        if flag not in known.commands[command]:
            return f"`sluicegate {command}` has no flag `{flag}`"
    return None


def wrong_flag(flag, known, _):
    ours = any(flag in flags for flags in known.commands.values())
    there = ours or re.search(rf"(?<![\w-]){flag}(?![\w-])", known.sources)
    return None if there else f"no command has the flag `{flag}`"


def wrong_setting(setting, known, file):
    names = known.settings | (known.values if "deploy" in file else set())
    sections = {name.split(".")[0] for name in names if "." in name}
    if setting.split(".")[0] not in sections or setting in names or FILE.search(setting):
        return None
    return f"there is no setting `{setting}`"


def wrong_variable(name, known, _):
    if name.startswith("SLUICEGATE__"):
        setting = name.removeprefix("SLUICEGATE__").lower().replace("__", ".")
        return None if setting in known.settings else f"there is no setting `{setting}` for `{name}`"
    there = name in known.variables or re.search(rf"\b{name}\b", known.sources) or name.lower().encode() in known.program
    return None if there else f"nothing reads the variable `{name}`"


def wrong_metric(text, known, _):
    name, _, labels = text.partition("{")
    plain = re.sub("_(bucket|count|sum)$", "", name)
    if re.search(rf'"{name.replace("_", "-")}"', known.sources):  # a package, whose name Rust writes so
        return None
    if name.endswith(("*", "_")) or plain not in known.metrics and name not in known.metrics:
        begins = any(metric.startswith(name.rstrip("*")) for metric in known.metrics)
        return None if begins else f"no server has the metric `{name}`"
    have = known.metrics.get(plain, set()) | known.metrics.get(name, set())
    for label in re.findall(r"(?:^|,)\s*([a-z_]+)\s*(?=$|[,=!}])", labels):
        if have and label not in have | {"instance", "job", "le"}:
            return f"the metric `{name}` has no label `{label}`"
    return None


def wrong_alert(name, known, _):
    there = name in known.alerts or re.search(rf"\b{name}\b", known.sources)
    return None if there else f"deploy/prometheus/alerts.yml has no alert `{name}`"


def wrong_path(path, known, file):
    path, _, anchor = path.partition("#")
    # `crates/*/src`, `spec/vectors/NAME/`, `deploy/{a,b}`: a part may have any name.
    pattern = re.sub(r"\\\*|[A-Z]{2,}|\\\{[^}]*\\\}", "[^/]*", re.escape(path.rstrip("/.")))
    beside = os.path.dirname(file)
    for base in ("", f"{beside}/", f"{beside}/../"):
        full = re.compile(re.escape(os.path.normpath(base) + "/") * bool(base) + pattern + r"(\.\w+)?(/|$)")
        found = [name for name in known.files if full.match(name)]
        if found:
            if anchor and found[0].endswith(".md") and anchor not in pages.anchors(pathlib.Path(found[0]).read_text()):
                return f"{found[0]} has no heading #{anchor}"
            return None
    return f"the repository has no `{path}`"


def wrong_page(name, known, _):
    there = any(f"/{file}".endswith(f"/{name}") for file in known.files)
    return None if there else f"the repository has no page `{name}`"


def wrong_endpoint(path, known, _):
    path = path.rstrip(".:").replace("…", "")
    for template in known.endpoints:
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path):
            return None
    # Those of operators are in no OpenAPI document. A prefix, such as `/v1/admin`, is there too.
    return None if path.encode() in known.program else f"no address serves `{path}`"


def wrong_header(name, known, _):
    there = name.lower().encode() in known.program or re.search(re.escape(name), known.sources, re.I)
    return None if there else f"the program has no header `{name}`"


def wrong_name(name, known, _):
    there = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", known.deploy + known.sources) or name.encode() in known.program
    return None if there else f"neither deploy/ nor the program has `{name}`"


def commands_of(program, command=""):
    """The flags of a command and of those below it."""
    text = subprocess.run([program, *command.split(), "--help"], check=True, capture_output=True, text=True).stdout
    found = {command: set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))}
    if "\nUsage: " in text and "<COMMAND>" in text:
        for name in re.findall(r"^  ([a-z-]+) {2,}\S", text, re.M):
            if name != "help":
                found |= commands_of(program, f"{command} {name}".strip())
    return found


def keys_of(schema):
    """The paths of all keys of a JSON Schema."""
    def below(node, path, above=()):
        if node.get("$ref") in above:
            return
        if "$ref" in node:
            above = (*above, node["$ref"])
            parts = node["$ref"].removeprefix("#/").split("/")
            node = functools.reduce(lambda there, part: there[part], parts, schema)
        items = [node["items"]] if isinstance(node.get("items"), dict) else []
        for choice in [*node.get("anyOf", []), *node.get("oneOf", []), *node.get("allOf", []), *items]:
            yield from below(choice, path, above)
        for name, child in node.get("properties", {}).items():
            yield path + name
            if isinstance(child, dict):
                yield from below(child, f"{path}{name}.", above)
    names = set(below(schema, ""))
    # `oidc.issuer` is short for `catalog.oidc.issuer`.
    return names | {name.split(".", start)[-1] for name in names for start in range(name.count(".") + 1)}


def metrics_of(program):
    """The metrics of a server with a catalog and a snapshot, and of one on a Redis, with the labels of those that have samples."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        policies = pathlib.Path("examples/policies.yaml").resolve()
        start = ["redis-server", "--port", "0", "--unixsocket", f"{folder}/redis", "--save", ""]
        redis = subprocess.Popen(start, stdout=subprocess.DEVNULL)
        try:
            for arguments in (["--catalog", "sqlite:catalog.db", "--snapshot", "state.snap"],
                              ["--policies", policies, "--store", f"unix://{folder}/redis"]):
                for name, labels in served(program, folder, arguments).items():
                    found[name] = found.get(name, set()) | labels
        finally:
            redis.kill()
            redis.wait()
    return found


def served(program, folder, arguments):
    ports = [part for wire in ("listen", "resp", "rls", "admin") for part in (f"--{wire}", "127.0.0.1:0")]
    start = [program, "serve", *ports, *arguments]
    server = subprocess.Popen(start, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address, text = {}, ""
        while not {"http", "admin"} <= set(address):
            line = server.stdout.readline()
            if not line:
                sys.exit(f"names: no server starts with {arguments}: {server.stderr.read()}")
            address |= dict(re.findall(r"(?:listening on )?(http|admin)://(127\.0\.0\.1:\d+)", line))
        # A decision, so that its counters have samples.
        body, headers = b'{"policy":"login","key":"a"}', {"content-type": "application/json"}
        question = urllib.request.Request(f"http://{address['http']}/v1/check", body, headers)
        try:
            urllib.request.urlopen(question).read()
        except OSError:
            pass
        for _ in range(50):
            text = urllib.request.urlopen(f"http://{address['admin']}/metrics").read().decode()
            if "sluicegate_decision" in text:
                break
            time.sleep(0.1)
    finally:
        server.kill()
        server.wait()
    names = {name: set() for name in re.findall(r"^# TYPE (\w+)", text, re.M)}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        plain = re.sub("_(bucket|count|sum)$", "", name)
        names.setdefault(plain if plain in names else name, set()).update(re.findall(r'(\w+)="', labels))
    return names


def known_of(program):
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines())

    def read(*patterns):
        names = [file for file in sorted(files) if any(pathlib.PurePath(file).match(pattern) for pattern in patterns)]
        # Pages prove nothing, and the test has false names.
        names = [file for file in names if not file.endswith((".md", "scripts/test_names.py"))]
        return "\n".join(pathlib.Path(file).read_text(errors="replace") for file in names)
    commands = commands_of(program)
    schemas = [
        json.loads(subprocess.run([program, which, "schema"], check=True, capture_output=True, text=True).stdout)
        for which in ("config", "policies")]
    chart = json.loads(pathlib.Path("deploy/helm/sluicegate/values.schema.json").read_text())
    helps = "".join(
        subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True).stdout for command in commands)
    documents = [json.loads(pathlib.Path(f"docs/{name}.json").read_text()) for name in ("openapi", "openapi-admin")]
    return Known(
        commands=commands,
        settings=set().union(*map(keys_of, schemas)),
        values=keys_of(chart),
        variables=set(re.findall(r"\bSLUICEGATE_[A-Z_]+\b", helps)),
        metrics=metrics_of(program),
        alerts=set(re.findall(r"- alert: (\w+)", pathlib.Path("deploy/prometheus/alerts.yml").read_text())),
        files=files,
        endpoints=[path for document in documents for path in document["paths"]],
        program=pathlib.Path(program).read_bytes().lower(),
        sources=read(*SOURCES),
        deploy=read("deploy/*", "deploy/*/*", "deploy/*/*/*", "deploy/*/*/*/*"),
    )


def texts():
    """The files that are looked at, and their texts."""
    files = subprocess.run(["git", "ls-files", "deploy"], check=True, capture_output=True, text=True).stdout.split()
    files = [file for file in files if not file.startswith("deploy/validate/") and not file.endswith(".md")]
    for file in [*map(str, pages.all_pages()), *files]:
        if not file.startswith(HISTORY):
            yield file, pathlib.Path(file).read_text()


def main(program):
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    if shutil.which("redis-server") is None:
        print("skipped: names: redis-server is missing")
        sys.exit(os.environ.get("CI") == "true")
    known = known_of(program)
    found = [use for file, text in texts() for use in uses(file, text)]
    messages = list(dict.fromkeys(wrong(found, known)))
    if messages:
        sys.exit("\n".join(messages))
    print(f"names: {len(found)} names in the pages and in deploy/ are in the program or the repository")


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
