"""What scripts/walk does before the blocks of a page, and why it does not run a block. Blocks are named by their beginning."""
import importlib.util
import os
import pathlib
import re
import shutil
import typing

import pages

# What is run in the shell of each page first. What pages write outside their folder is in memory, and ends with the shell.
BEFORE = r"""
ip link set lo up
mkdir -p "$WALK/memory" && mount -t tmpfs tmpfs "$WALK/memory"
for place in etc run usr/local var/lib; do
  mkdir -p "$WALK/memory/$place" "$WALK/memory/scratch/$place"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$WALK/memory/$place,workdir=$WALK/memory/scratch/$place" "/$place"
done
mkdir -p /etc/sluicegate /run/secrets /var/lib/sluicegate

# until_true COMMAND...: waits up to 40 seconds.
until_true() {
  for _ in $(seq 400); do
    "$@" >"$WALK/waited" 2>&1 && return
    sleep 0.1
  done
  cat "$WALK/waited"
  return 1
}

redis() { # redis PORT
  redis-server --port "${1:-6379}" --save '' --dir "$WALK" >"$WALK/redis" 2>&1 &
  until_true redis-cli -p "${1:-6379}" ping
}

postgres() { # postgres [DATABASE]: as the user sluicegate
  local bin
  bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
  mkdir "$WALK/postgres" && chown postgres "$WALK/postgres" && chmod 711 "$WALK" "$WALK/.."
  (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/initdb" -A trust -U sluicegate --no-sync \
    -E UTF8 --locale=C -D "$WALK/postgres/data" >"$WALK/initdb" 2>&1) || { cat "$WALK/initdb"; return 1; }
  (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D "$WALK/postgres/data" \
    -k "$WALK/postgres" -h 127.0.0.1 -c fsync=off >"$WALK/postgres.log" 2>&1 &)
  until_true pg_isready -h 127.0.0.1
  psql -q -h 127.0.0.1 -U sluicegate postgres -c 'CREATE DATABASE sluicegate'
}

# setup_token: sets SETUP. A server starts without its catalog, and may open it a moment later.
setup_token() {
  until_true grep -o 'sgsetup_[0-9a-f]*' "$WALK/server" && SETUP=$(head -n 1 "$WALK/waited")
}

# catalog URL: a server with a catalog, its administrator ada in the cookie jar `ada.jar`, and the apps shop and bank.
catalog() {
  sluicegate serve --catalog "$1"
  setup_token
  api setup '{"token":"'"$SETUP"'","account":"ada","password":"correct horse battery staple"}'
  curl -sf http://127.0.0.1:8082/v1/admin/session -c ada.jar -H 'content-type: application/json' \
    -d '{"account":"ada","password":"correct horse battery staple"}'
  api apps '{"name":"shop"}'
  api apps '{"name":"bank"}'
}

api() { # api PATH BODY
  curl -sSf "http://127.0.0.1:8082/v1/admin/$1" -b ada.jar -H 'content-type: application/json' -d "$2"
}
"""

SHELL = ("sh", "console")
# A block fails if one of its commands does. But `grep` may find nothing, as a server without trouble has nothing to show,
# and `timeout` may end what it was asked to end.
EACH = """FAILED=
trap 'case "$? $BASH_COMMAND" in "1 grep "*|"124 timeout "*) ;; *) FAILED=1; echo "failed: $BASH_COMMAND" >&2 ;; esac' ERR
{}
trap - ERR
[ -z "$FAILED" ]"""
MEASURED = "a measurement of minutes, which builds the programs first"
TESTED = "a test runs it: "
# Languages of which nothing is run: why.
LANGUAGES = {
    "": "a diagram or output",
    "text": "shows output",
    "rust": "`cargo test --doc` and the examples of the crate",
    "go": "the tests of the SDK and examples/clients/run.sh",
    "java": "the tests of the SDK and examples/clients/run.sh",
    "kotlin": "the tests of the SDK",
    "php": "the tests of the SDK and examples/clients/run.sh",
    "python": "examples/clients/run.sh",
    "js": "examples/clients/run.sh",
    "xml": "a part of a pom.xml; scripts/packages uses it",
    "dockerfile": "a line of another image",
}
# What runs the programs of the README, by language; `$1` is the file.
PROGRAMS = {
    "python": 'python3 -c "import redis; $(cat $1)" # redis_py',
    "js": "node --input-type=module <$1",
    "php": 'php -r "require \'sdk/php/autoload.php\'; $(cat $1)"',
}


# What a machine may lack: blocks that need it are not run there. CI has those that `make deps` installs.
TOOLS = ("postgres", "yaml", "envoy", "nginx", "caddy", "promtool")
INTERPRETERS = ("node", "php", "redis_py", "go", "mvn")


# What is run before a page that starts a program with an SDK. What a reader runs in another terminal goes on in the background here, and
# ends with the next such program. Nothing is fetched that `scripts/deps --sdk` has not, and no cache outside is written.
START = r"""
mkdir ../shop && ln -s "$PWD" ../sluicegate && cd ../shop

# serving COMMAND...: a program that listens at port 8000.
serving() {
  if [ -n "${PROGRAM:-}" ]; then
    kill "$PROGRAM" 2>/dev/null
    while kill -0 "$PROGRAM" 2>/dev/null; do sleep 0.05; done
  fi
  "$@" >"$WALK/program.log" 2>&1 &
  PROGRAM=$!
  # The time of a machine with much to do: the first requests of a program are not what a page is about.
  until_true curl -s -o /dev/null http://127.0.0.1:8000/none || { cat "$WALK/program.log"; return 1; }
}

go() { # `go run`, without the cost of a folder of its own for each
  if [ "$1" = run ]; then
    command go build -o "$WALK/program" "$2" && serving "$WALK/program"
  else
    command go "$@"
  fi
}
if command -v go >"$WALK/found"; then
  GOMODCACHE=$(HOME=$WALK_HOME command go env GOMODCACHE) GOCACHE=$(HOME=$WALK_HOME command go env GOCACHE)
  export GOMODCACHE GOCACHE GOTOOLCHAIN=local GOSUMDB=off GOPROXY="file://$GOMODCACHE/cache/download"
fi

mvn() { # `mvn spring-boot:run`, whose plugin is not fetched
  local options=(-o -B -q -Dmaven.repo.local="$WALK_HOME/.m2/repository")
  if [ "$1" = spring-boot:run ]; then
    command mvn "${options[@]}" compile dependency:build-classpath -Dmdep.outputFile="$WALK/classpath" || return
    serving java -cp "target/classes:$(cat "$WALK/classpath")" shop.Shop
  else
    command mvn "${options[@]}" "$@"
  fi
}
if [ -d "$WALK_HOME/.m2" ]; then
  mkdir -p "$WALK/memory/m2" "$WALK/memory/scratch/m2"
  mount -t overlay overlay -o "lowerdir=$WALK_HOME/.m2,upperdir=$WALK/memory/m2,workdir=$WALK/memory/scratch/m2" "$WALK_HOME/.m2"
fi

php() {
  case $1 in
    -S) serving env php "$@" ;;
    artisan) serving env php -S 127.0.0.1:8000 ../sluicegate/scripts/walk-laravel.php ;; # Debian has no skeleton of an application
    *) command php "$@" ;;
  esac
}

composer() { # the packages are those of Debian, and this one that of the checkout
  mkdir -p vendor
  echo '<?php require dirname(__DIR__) . "/../sluicegate/sdk/php/examples/load.php";' >vendor/autoload.php
}
"""


class Walk(typing.NamedTuple):
    before: dict = {}      # beginning of a block -> what is run before it
    not_run: dict = {}     # beginning of a block -> why it is not run
    figures: tuple = ()    # words of commands whose output is that of a machine: it is not compared
    programs: bool = False # whether the programs of the page are run
    starts: bool = False   # whether blocks are files that their first line names, of programs that the page starts


SERVE = "sluicegate serve --policies examples/policies.yaml"
MAKE_RUN = r"""
# `make run` without the build: what it starts, on the ports that it has.
make() { eval "$(command make -n "$@" | sed -n 's/.* --bin sluicegate -- /sluicegate /p')"; }
mkdir -p target
"""
PACKAGES = {
    "apt install": TESTED + "scripts/test-deb",
    "kubectl apply": "needs a cluster; scripts/test-kubernetes decodes the manifests and runs the program with their settings",
    "docker compose": "needs Docker and the image; scripts/test-compose runs the program with its settings",
}
README = Walk(
    before={
        "make run": MAKE_RUN,
        "$ sluicegate policies check": r"""
            # The server prints a command to try.
            sed -n '/^try: /,/^or: /p' "$WALK/server" | sed '$d' | sed 's/^try: *//' >try.sh
            bash try.sh | grep '"allowed":true'""",
        "sluicegate serve": "cmp replay.svg docs/images/replay.svg && redis",
    },
    programs=True)
GITOPS = r"""
catalog sqlite:catalog.db
for policy in orders:10 search:3; do
  api apps/shop/policies '{"state":"active","document":{"name":"'${policy%:*}'","key":["remote_ip"],
    "match":{"path":{"prefix":"/'${policy%:*}'"}},"rules":[{"token_bucket":{"rate":"2/s","burst":'${policy#*:}'}}]}}'
done
SLUICEGATE_TOKEN=$(api apps/shop/tokens '{"name":"ci","scopes":["policy:read","policy:write"],"expires_in_days":1}' |
  grep -o 'sgt_[0-9a-f]*')
export SLUICEGATE_TOKEN
for line in 8:10.0.0.1:/orders 3:10.0.0.2:/search 1:10.0.0.3:/; do
  IFS=: read -r count address path <<<"$line"
  for _ in $(seq "$count"); do
    echo "$address - - [17/May/2015:10:00:00 +0000] \"GET $path HTTP/1.1\" 200 9 \"-\" \"-\""
  done
done >access.log
printf 'name,apps,max_permits,rate,created_by,updated_by\npay,"shop,bank",20,5,ada,bob\n' >limits.csv
"""
RUNBOOK = r"""
postgres
redis
catalog postgres://sluicegate@127.0.0.1/sluicegate
cp -r examples/cookbook /etc/sluicegate/policies
sluicegate serve --policies examples/policies.yaml --store redis://127.0.0.1:6379
sluicegate check login alice
"""
CERTIFICATES = """
cd /etc/sluicegate
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=authority -keyout ca.key -out CA.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=gate.example -keyout server.key -out server.csr
echo subjectAltName=DNS:gate.example >names
openssl x509 -req -in server.csr -CA CA.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names -out server.crt
cp CA.pem clients.crt
cd -
cp /etc/sluicegate/CA.pem .
echo '127.0.0.1 gate.example' >>/etc/hosts
"""
WALKS = {
    "README.md": README,
    "README.zh-CN.md": README,
    "CONTRIBUTING.md": Walk(not_run={
        "cargo run -p sluicegate-sim": "takes half an hour and needs Rust; cargo test -p sluicegate-sim runs the simulator"}),
    "bench/README.md": Walk(not_run={"": MEASURED}),
    "deploy/README.md": Walk(not_run={"": PACKAGES["apt install"] + ", test-kubernetes and test-compose"}),
    "docs/audit.md": Walk(
        before={"$ sluicegate audit verify --catalog": GITOPS + "export SLUICEGATE_CATALOG_URL=sqlite:catalog.db"},
        # How many entries there are, and when; a test compares it, on an audit of its own.
        figures=("sluicegate audit",)),
    "docs/catalog.md": Walk(before={
        "[catalog]": "(umask 077; echo sqlite:other.db >/run/secrets/catalog; echo secret >/run/secrets/oidc)",
        "API=": "setup_token",
        }, not_run={"sluicegate login": TESTED + "catalog_cli::login, because it asks for a password on a terminal"}),
    "docs/cli.md": Walk(
        before={"$ sluicegate check login alice": SERVE, "sluicegate completions bash": """
            mkdir -p ~/.local/share/bash-completion/completions ~/.config/fish/completions ~/.zsh /usr/local/share/man/man1
            fpath=(~/.zsh ~/.zsh)"""},
        figures=("sluicegate bench",)),
    "docs/clients.md": Walk(
        before={"#!/usr/bin/env bash\n# Asks by curl": SERVE +
            "; export SLUICEGATE_URL=http://127.0.0.1:8080 SLUICEGATE_RESP=127.0.0.1:6380"},
        not_run={"$ examples/clients/run.sh": "scripts/test runs it; its output depends on what is installed"}),
    "docs/configuration.md": Walk(before={
        "[server]": "cp -r examples/cookbook /etc/sluicegate/policies",
        "SLUICEGATE__": "cp $WALK/block-0.toml sluicegate.toml"}),
    # Budgets of many permits a second are fuller the later a command asks, and waits are shorter.
    "docs/cookbook.md": Walk(before={"$ curl -s http": "JSON='content-type: application/json'"}, figures=(
        "/v1/explain", "/v1/settle", '"cost":201', "check webhooks", "webhooks.held", "check backend")),
    "docs/deploy.md": Walk(
        before={
            "$ sluicegate config check": """
                printf '[store]\\nurl_file = "/etc/sluicegate/store-url"\\n[policies]\\npath = "examples/policies.yaml"\\n' \\
                    >/etc/sluicegate/sluicegate.toml
                echo redis://127.0.0.1:6379 >/etc/sluicegate/store-url""",
            "sluicegate serve --policies /etc": "redis; cp -r examples/cookbook /etc/sluicegate/policies"},
        not_run=PACKAGES),
    "docs/exactness.md": Walk(not_run={"cargo build": MEASURED}),
    "docs/faq.md": Walk(before={"$ sluicegate check login": SERVE + "; sluicegate check login alice"}),
    "docs/gateways.md": Walk(not_run={
        "access_by_lua_block {\n    local limit_req": TESTED + "gateways::resty",
        "access_by_lua_block": TESTED + "gateways::lua",
        "log_by_lua_block": TESTED + "gateways::connections",
        "init_by_lua_block": TESTED + "gateways::resty",
        "frontend site": TESTED + "gateways::haproxy",
    }),
    "docs/gitops.md": Walk(before={"$ sluicegate policies export": GITOPS}),
    "docs/migrate.md": Walk(before={"sluicegate serve": "redis"}),
    "docs/operations.md": Walk(),
    "docs/redis.md": Walk(before={"sluicegate serve": "redis"}),
    "docs/runbook.md": Walk(before={
        # The server gives its store up after some failures.
        "$ sluicegate check login alice": "redis; " + SERVE + """ --store redis://127.0.0.1:6379 --nodes 2
            redis-cli shutdown nosave
            for key in $(seq 20); do sluicegate refund login $key; done
            until_true eval "curl -s http://127.0.0.1:8082/metrics | grep 'breaker_open 1'" """,
        "redis-cli -h": RUNBOOK,
        "curl -s http://127.0.0.1:8082/metrics | grep ^sluicegate_certificate": CERTIFICATES},
        not_run={"systemctl status": TESTED + "scripts/test-deb starts the service with systemd"}),
    "docs/sdk.md": Walk(before={"$ sluicegate serve": "cp examples/policies.yaml policies.yaml"}, figures=("sluicegate serve",)),
    "docs/security.md": Walk(before={"[http.tls]": CERTIFICATES, "curl": """
        export SLUICEGATE__HTTP__TLS__CERT=/etc/sluicegate/server.crt SLUICEGATE__HTTP__TLS__KEY=/etc/sluicegate/server.key
        export SLUICEGATE__RESP__TLS__CERT=/etc/sluicegate/server.crt SLUICEGATE__RESP__TLS__KEY=/etc/sluicegate/server.key
        sluicegate serve --policies examples/policies.yaml
        unset ${!SLUICEGATE__*}
        cp examples/policies.yaml policies.yaml"""}),
    "docs/upgrade.md": Walk(before={
        "sluicegate config check": """
            cp deploy/systemd/sluicegate.toml deploy/systemd/policies.yaml /etc/sluicegate
            cp -r examples/cookbook /etc/sluicegate/policies""",
        "$ sluicegate peek login alice": """
            sluicegate serve --policies examples/policies.yaml --snapshot state.snap
            for _ in 1 2 3; do sluicegate check login alice; done
            sluicegate serve --policies examples/policies.yaml --snapshot state.snap
            grep "snapshot: 1 key restored from state.snap" $WALK/server""",
        "$ sluicegate audit": """
            postgres
            catalog postgres://sluicegate@127.0.0.1/sluicegate
            pg_dump -h 127.0.0.1 -U sluicegate -Fc -f catalog.dump sluicegate
            psql -q -h 127.0.0.1 -U sluicegate postgres -c 'CREATE ROLE postgres SUPERUSER LOGIN' -c 'CREATE DATABASE restored'
            pg_restore -h 127.0.0.1 -U sluicegate -d restored catalog.dump"""}),
    "docs/wires/http.md": Walk(before={"sluicegate serve": """
        sed -n '/^```yaml$/,/^```$/p' docs/wires/http.md | sed '/^```/d' >policies.yaml"""}),
} | {
    f"sdk/{sdk}/{page}": Walk(before={"sluicegate policies compile": "cp examples/policies.yaml . && mkdir -p src/test/resources"}, not_run={start: "needs a program beside the checkout; scripts/packages uses each package from an empty one"})
    for sdk, start in (("go", "go mod edit"), ("java", "mvn -f"), ("php", "composer config"))
    for page in ("README.md", "README.zh.md")
}


for sdk in ("go", "java", "php"):
    WALKS[f"docs/start-{sdk}.md"] = Walk(before={"# policies.yaml": START}, starts=True)


def of(page):
    return WALKS.get(page, Walk())


def lacking(*commands):
    """A tool that these commands need and that this machine may lack, and does; else None."""
    def here(tool):
        if tool == "postgres":
            return any(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if tool == "redis_py":
            return pathlib.Path(".tools/python/redis").exists()
        if tool == "yaml":
            return importlib.util.find_spec("yaml") is not None
        return shutil.which(tool, path=f".tools/bin:.tools/node/bin:{os.environ['PATH']}:/usr/sbin") is not None
    # `--envoy-config` is a flag and not the tool.
    words = set(re.findall(r"[\w-]+", " ".join(commands)))
    optional = INTERPRETERS if os.environ.get("CI") == "true" else TOOLS + INTERPRETERS
    return next((tool for tool in optional if tool in words and not here(tool)), None)


def unused():
    """What WALKS has of blocks that no page has."""
    for page, walk in WALKS.items():
        texts = [block.text for block in pages.blocks(pathlib.Path(page).read_text())]
        for start in [*walk.before, *walk.not_run]:
            if not any(text.startswith(start) for text in texts):
                yield f"scripts/walks.py: {page} has no block that begins with `{start}`"
        for word in walk.figures:
            if not any(word in text for text in texts):
                yield f"scripts/walks.py: {page} has no command with `{word}`"


def file_named(block):
    r"""The file that the first line of a block names; None if it names none.

    >>> [file_named(pages.Block(1, "", text)) for text in ("// web/main.go\n", "<?php // a/b.php\n", "<!-- pom.xml -->\n", "# why\n")]
    ['web/main.go', 'a/b.php', 'pom.xml', None]
    """
    named = re.match(r"(?://|#|<!--|<\?php //) ([\w./-]+\.\w+)(?: -->)?\n", block.text)
    return named and named[1]


def command(block, file, walk):
    """What runs or checks a block that is in `file`; None if nothing does."""
    if walk.starts and (named := file_named(block)):
        return f"mkdir -p $(dirname {named}) && cp {file} {named}"
    if block.language in SHELL:
        return block.text
    if block.language == "json":
        return f"jq . {file}"
    if block.language == "nginx":
        return f"{{ echo 'events {{}} pid nginx.pid; http {{'; cat {file}; echo '}}'; }} >nginx.conf && nginx -t -p $PWD -c $PWD/nginx.conf"
    if block.language == "caddyfile":
        return f"{{ echo ':8000 {{'; cat {file}; echo '}}'; }} >Caddyfile && caddy validate --config Caddyfile"
    if block.language == "toml":
        return f"sluicegate config check --config {file}"
    if block.language == "yaml":
        if "policies:" in block.text.splitlines():
            return f"sluicegate policies check {file}"
        if "scrape_configs:" in block.text:
            return f"cp {file} deploy/prometheus/page.yml && promtool check config deploy/prometheus/page.yml"
        if block.text.startswith("static_resources:"):
            return f"envoy --mode validate --config-path {file}"
        return f"python3 -c 'import sys, yaml; list(yaml.safe_load_all(open(sys.argv[1])))' {file}"
    if walk.programs and block.language in PROGRAMS:
        return f"set -- {file}; {PROGRAMS[block.language]}"
    return None
