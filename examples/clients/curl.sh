#!/usr/bin/env bash
# Asks by curl. With ?deny=429 the status says what was decided, and curl -f fails.
set -u
passed=0
for _ in 1 2 3 4 5 6; do
  if curl -sf -o /dev/null "$SLUICEGATE_URL/v1/check?deny=429" -H 'content-type: application/json' \
    -d '{"policy":"login","key":"curl"}'; then
    passed=$((passed + 1))
  fi
done
echo "$passed of 6 passed"
