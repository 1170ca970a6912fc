#!/usr/bin/env bash
# Starts a server on free ports and runs every client here whose interpreter is installed: each asks six times for a key
# that may pass five times. `SLUICEGATE` is the program (default: `sluicegate`). redis-py may be in `.tools/python`.
set -euo pipefail
cd "$(dirname "$0")"

work=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || { kill "$server" && wait "$server" || true; }
  rm -rf "$work"
}
trap finish EXIT

SLUICEGATE__ADMIN__LISTEN=off "${SLUICEGATE:-sluicegate}" serve --policies ../policies.yaml \
  --listen 127.0.0.1:0 --resp 127.0.0.1:0 --rls off >"$work/out" &
server=$!
for _ in $(seq 100); do grep -q SG.CHECK "$work/out" && break; sleep 0.1; done
SLUICEGATE_URL=$(sed -n 's|^listening on \(http://.*\)|\1|p' "$work/out")
SLUICEGATE_RESP=$(sed -n 's|^listening on resp://||p' "$work/out")
export SLUICEGATE_URL SLUICEGATE_RESP
export PYTHONPATH="../../.tools/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1

ran=0
# client NAME NEEDS COMMAND...: runs COMMAND if the command NEEDS succeeds.
client() {
  local name=$1 needs=$2 answer
  shift 2
  if ! bash -c "$needs" >"$work/needs" 2>&1; then
    echo "$name: skipped, \`$needs\` fails"
    return
  fi
  answer=$(timeout 60 "$@")
  echo "$name: $answer"
  [ "$answer" = "5 of 6 passed" ] || exit 1
  ran=$((ran + 1))
}

client curl.sh "curl --version" bash curl.sh
client redis_cli.sh "redis-cli --version" bash redis_cli.sh
client python_http.py "python3 --version" python3 python_http.py
client python_redis.py "python3 -c 'import redis'" python3 python_redis.py
client node_fetch.mjs "node -e fetch" node node_fetch.mjs
client node_resp.mjs "node --version" node node_resp.mjs
client check.go "go version" go run check.go
client Check.java "java --version" java Check.java
client php_curl.php "php -r 'curl_version();'" php php_curl.php
client php_redis.php "php -r 'new Redis();'" php php_redis.php
[ "$ran" -ge 1 ] || { echo "no client has run"; exit 1; }
echo "$ran clients work"
