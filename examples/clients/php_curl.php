<?php
// Asks over HTTP by the extension curl. One handle keeps one connection.
$handle = curl_init(getenv('SLUICEGATE_URL') . '/v1/check');
curl_setopt_array($handle, [
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_TIMEOUT_MS => 1000,
    CURLOPT_HTTPHEADER => ['content-type: application/json'],
]);

function check(CurlHandle $handle, string $policy, string $key): array
{
    curl_setopt($handle, CURLOPT_POSTFIELDS, json_encode(['policy' => $policy, 'key' => $key]));
    $body = curl_exec($handle);
    if ($body === false) {
        throw new RuntimeException(curl_error($handle));
    }
    $decision = json_decode($body, true);
    if (curl_getinfo($handle, CURLINFO_RESPONSE_CODE) !== 200) {
        throw new RuntimeException($decision['detail']);
    }
    return $decision;
}

$passed = 0;
for ($i = 0; $i < 6; $i++) {
    $passed += check($handle, 'login', 'php')['allowed'] ? 1 : 0;
}
echo "$passed of 6 passed\n";
