#!/usr/bin/env bash
# Asks over RESP by redis-cli: the first place of the reply is 1, -1 or 0.
set -u
passed=0
for _ in 1 2 3 4 5 6; do
  read -r code < <(redis-cli -h "${SLUICEGATE_RESP%:*}" -p "${SLUICEGATE_RESP#*:}" SG.CHECK login redis-cli)
  [ "$code" = 1 ] && passed=$((passed + 1))
done
echo "$passed of 6 passed"
