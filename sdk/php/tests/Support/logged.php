<?php

/**
 * The example for FPM with a logger, which writes to the log of PHP.
 */

declare(strict_types=1);

use Psr\Log\AbstractLogger;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Http\Refusal;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/../../autoload.php';
@include_once __DIR__ . '/../../vendor/autoload.php';
@include_once 'Psr/Log/autoload.php';

$logger = new class extends AbstractLogger {
    /**
     * @param mixed $level
     * @param string $message
     * @param array<mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        error_log($message);
    }
};
$redis = PhpRedis::persistent('127.0.0.1', (int) getenv('REDIS_PORT'));
$gate = Gate::direct($redis, deadlineMs: (int) getenv('DEADLINE_MS'), logger: $logger);
try {
    $decision = $gate->policy('orders')->check($_SERVER['REMOTE_ADDR']);
} catch (StoreUnavailable $e) {
    Refusal::undecided($e)->send();
    return;
}
echo "decided by {$decision->mode->value}\n";
