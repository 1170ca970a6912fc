<?php

/**
 * Plain PHP under FPM: one policy, by the client's address. examples/nginx.conf is for nginx in front.
 *
 * The environment of the pool says where Redis is (REDIS_PORT), how long it may take (DEADLINE_MS), and which proxies
 * are believed (TRUSTED, such as `10.0.0.0/8,fd00::/8`; none by default).
 */

declare(strict_types=1);

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Http\BadRequest;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Refusal;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/../autoload.php';

$gate = Gate::direct(
    PhpRedis::persistent('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379)),
    deadlineMs: (int) (getenv('DEADLINE_MS') ?: 50),
    logger: require __DIR__ . '/logger.php',
);
$orders = $gate->policy('orders');
$key = Key::remoteIp(trusted: array_filter(explode(',', (string) getenv('TRUSTED'))));
try {
    $decision = $orders->check($key->of(RequestFacts::ofGlobals(), $orders));
} catch (BadRequest | SluicegateException $e) {
    $refusal = Refusal::undecided($e);       // 400 without an address, 503 without an answer, 500 for a mistake here
    if ($refusal->status === 500) {
        error_log("sluicegate: {$e->getMessage()}");
    }
    $refusal->send();
    return;
}
if (!$decision->allowed) {
    Refusal::of($decision)->send();
    return;
}
$decision->pause();
foreach (Headers::of($decision) as $name => $value) {
    header("$name: $value");
}
echo "an order, decided by {$decision->mode->value}\n";
