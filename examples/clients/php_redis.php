<?php
// Asks over RESP by phpredis. pconnect keeps the connection from one request of PHP-FPM to the next.
[$host, $port] = explode(':', getenv('SLUICEGATE_RESP'));
$client = new Redis();
$client->pconnect($host, (int) $port, 1.0);

$passed = 0;
for ($i = 0; $i < 6; $i++) {
    [$code, $limit, $remaining, $retryAfterMs] = $client->rawCommand('SG.CHECK', 'login', 'phpredis');
    if ($code === 0) {
        throw new RuntimeException('no such policy');
    }
    $passed += $code === 1 ? 1 : 0;
}
echo "$passed of 6 passed\n";
