<?php

/**
 * Plain PHP under FPM: one policy, by the client's address.
 */

declare(strict_types=1);

use Sluicegate\Gate;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Refusal;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/../autoload.php';

$gate = Gate::direct(PhpRedis::persistent('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379)));
$orders = $gate->policy('orders');
$decision = $orders->check(Key::remoteIp()->of(RequestFacts::ofGlobals(), $orders));
if (!$decision->allowed) {
    Refusal::of($decision)->send();
    return;
}
foreach (Headers::of($decision) as $name => $value) {
    header("$name: $value");
}
echo "an order, decided by {$decision->mode->value}\n";
