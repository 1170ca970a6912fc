"""Asks over HTTP by the standard library, on one connection."""
import http.client, json, os
from urllib.parse import urlsplit

server = http.client.HTTPConnection(urlsplit(os.environ["SLUICEGATE_URL"]).netloc, timeout=1)


def check(policy, key, cost=1):
    body = json.dumps({"policy": policy, "key": key, "cost": cost})
    server.request("POST", "/v1/check", body, {"content-type": "application/json"})
    answer = server.getresponse()
    decision = json.load(answer)
    if answer.status != 200:
        raise RuntimeError(decision["detail"])
    return decision


decisions = [check("login", "python") for _ in range(6)]
print(sum(d["allowed"] for d in decisions), "of 6 passed")
assert decisions[5]["retry_after_us"] > 590_000_000
