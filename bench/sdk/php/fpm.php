<?php

/**
 * A request of FPM for `run`: one decision, the call of Redis that it makes, one bare round trip, or nothing.
 */

declare(strict_types=1);

use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Redis\PhpRedis;

if ($_SERVER['BENCH'] === 'pid') {
    echo getmypid();
    return;
}
$port = (int) getenv('REDIS_PORT');
if ($_SERVER['BENCH'] === 'round trip') {
    $redis = new Redis();
    $redis->pconnect('127.0.0.1', $port, 1.0, 'bench');
    $redis->rawCommand('INCR', 'fpm:' . $_SERVER['KEY']);
}
if ($_SERVER['BENCH'] === 'same bytes') {
    $redis = new Redis();
    $redis->pconnect('127.0.0.1', $port, 1.0, 'bench');
    $redis->rawCommand(...require getenv('COMMAND'));
}
if ($_SERVER['BENCH'] === 'sluicegate') {
    require __DIR__ . '/../../../sdk/php/autoload.php';
    $gate = Gate::direct(PhpRedis::persistent('127.0.0.1', $port, null, 1.0), deadlineMs: 1000);
    $decision = $gate->policy('bench')->check($_SERVER['KEY']);
    echo $decision->mode->value === 'store' && $decision->allowed ? '' : 'not decided in Redis: ';
}
echo 'ok';
