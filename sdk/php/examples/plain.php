<?php

/**
 * A command line: a limit that is made in code, shared by all programs of one Redis. There need be no server.
 *
 * php examples/plain.php alice
 */

declare(strict_types=1);

use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/../autoload.php';

$gate = Gate::direct(
    PhpRedis::connect('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379)),
    deadlineMs: (int) (getenv('DEADLINE_MS') ?: 50),
    logger: require __DIR__ . '/logger.php',
);
$mail = $gate->limit('mail', Limit::tokenBucket('10/min', burst: 3));
$decision = $mail->check($argv[1] ?? 'alice');
echo $decision->allowed
    ? "sent, $decision->remaining left\n"
    : "not sent, try again in {$decision->retryAfterSeconds()} s\n";
$gate->close();
