"""Asks a server through redis-py: client.py PORT PROTOCOL [PASSWORD]. Prints `ok`."""

import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

port, protocol, *password = sys.argv[1:]


def connect(password):
    return redis.Redis(
        port=int(port),
        protocol=int(protocol),
        password=password,
        client_name="test",
        retry=Retry(NoBackoff(), 0),
    )


client = connect(password[0] if password else None)

assert client.ping()
assert client.echo(b"\x00\r\n\xff") == b"\x00\r\n\xff"
assert client.client_getname() in ("test", b"test")
assert client.client_id() > 0
assert client.info("persistence")["loading"] == 0

# One by one: as many as the limit says, and not one more.
decisions = [client.execute_command("CL.THROTTLE", "user", 9, 1, 3600) for _ in range(12)]
assert [limited for limited, *_ in decisions] == [0] * 10 + [1] * 2, decisions
assert decisions[0] == [0, 10, 9, -1, 3600], decisions[0]
assert decisions[9] == [0, 10, 0, -1, 36000], decisions[9]
assert decisions[11] == [1, 10, 0, 3600, 36000], decisions[11]

# In a pipeline: replies in the order of the commands.
pipeline = client.pipeline(transaction=False)
for _ in range(64):
    pipeline.execute_command("SG.CHECK", "hourly", "bulk", "COST", 10)
pipeline.ping()
replies = pipeline.execute()
assert [reply[:3] for reply in replies[:-1]] == [
    [1, 100000, 100000 - 10 * count] for count in range(1, 65)
]
assert replies[-1] is True

# The three codes.
for left in range(4, -1, -1):
    code, limit, remaining, retry, reset, wait, rule, mode = client.execute_command(
        "SG.CHECK", "login", b"\xf0\x00 binary"
    )
    assert (code, limit, remaining, retry, wait) == (1, 5, left, 0, 0)
    assert (rule, mode) == (b"tries", b"store")
assert client.execute_command("SG.CHECK", "login", b"\xf0\x00 binary")[0] == -1
unconfigured = [0, 0, 0, -1, 0, 0, None, None]
assert client.execute_command("SG.CHECK", "nope", "k") == unconfigured
assert client.execute_command("SG.ACQUIRE", "jobs", "k", "a") == unconfigured

# Permits that are held.
shop = ("APP", "shop")
assert client.execute_command("SG.ACQUIRE", "jobs", "k", "a", *shop)[:3] == [1, 2, 1]
assert client.execute_command("SG.ACQUIRE", "jobs", "k", "b", *shop)[:3] == [1, 2, 0]
assert client.execute_command("SG.ACQUIRE", "jobs", "k", "c", *shop)[0] == -1
assert client.execute_command("SG.RELEASE", "jobs", "k", "a", *shop)[:3] == [1, 2, 1]
assert client.execute_command("SG.ACQUIRE", "jobs", "k", "c", *shop)[0] == 1

for words, problem in [
    (("SG.CHECK", "login", "k", "COST", "x"), "cost: `x` is not a whole number"),
    (("SG.CHECK", "login", "k" * 1025), "key: `1025` bytes are outside 1..=1024"),
    (("CL.THROTTLE", "k"), "Cell error: Usage: cl.throttle"),
    (("GET", "k"), "unknown command 'GET'"),
]:
    try:
        client.execute_command(*words)
        raise AssertionError(f"{words} was not refused")
    except redis.ResponseError as error:
        assert problem in str(error), error

if password:
    try:
        connect("wrong").ping()
        raise AssertionError("a wrong password was taken")
    except redis.AuthenticationError:
        pass

print("ok")
