// Asks over HTTP by fetch, which keeps connections open by itself.
async function check(policy, key, cost = 1) {
  const answer = await fetch(`${process.env.SLUICEGATE_URL}/v1/check`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ policy, key, cost }),
    signal: AbortSignal.timeout(1000),
  });
  const decision = await answer.json();
  if (!answer.ok) throw new Error(decision.detail);
  return decision;
}

let passed = 0;
for (let i = 0; i < 6; i++) passed += (await check("login", "fetch")).allowed;
console.log(`${passed} of 6 passed`);
