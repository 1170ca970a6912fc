"""Asks over RESP by redis-py."""
import os, redis

client = redis.Redis.from_url("redis://" + os.environ["SLUICEGATE_RESP"], socket_timeout=1)


def check(policy, key, cost=1):
    code, limit, remaining, retry_after_ms, *_ = client.execute_command("SG.CHECK", policy, key, "COST", cost)
    if code == 0:
        raise LookupError(f"no policy {policy}")
    return code == 1, remaining, retry_after_ms


print(sum(check("login", "redis-py")[0] for _ in range(6)), "of 6 passed")

# Several questions in one round trip. A transaction is refused: there is no MULTI.
pipeline = client.pipeline(transaction=False)
for user in ("ann", "ben", "cyd"):
    pipeline.execute_command("SG.PEEK", "login", user)
assert [reply[2] for reply in pipeline.execute()] == [5, 5, 5]
