<?php

/**
 * Compiles the classes that a decision in Redis uses when FPM starts: `opcache.preload` of php.ini names this file.
 */

declare(strict_types=1);

(static function (): void {
    // In a checkout, or where Composer installs it.
    $own = __DIR__ . '/autoload.php';
    require_once is_file($own) ? $own : dirname(__DIR__, 2) . '/autoload.php';
    $used = [
        'Gate', 'Limiter', 'Decision', 'Mode', 'Verb', 'Ranges', 'SystemClock', 'PsrClock', 'Overflow',
        'OverflowKind', 'OnStoreFailure', 'Log', 'Memory\Apcu', 'Redis\PhpRedis', 'Redis\Store', 'Redis\StoreRequest',
        'Redis\Request', 'Redis\Reply', 'Redis\Answer', 'Redis\ErrorReply', 'Redis\Keys', 'Redis\Script',
        'Redis\SealedRules', 'Redis\StoreFailure', 'Redis\ConnectionFailure', 'Redis\TimeSource', 'Rules\Fnv',
        'Direct\PolicyDecider', 'Direct\DirectDecider', 'Direct\Options', 'Direct\Budget', 'Direct\Breaker',
        'Direct\Denials', 'Direct\UsageCache', 'Direct\Accounts', 'Direct\Account', 'Direct\Share',
        'Direct\Asked', 'Direct\Lock',
        'Policy\Policies', 'Policy\Policy',
        'Policy\Version', 'Rules\RuleSet', 'Rules\Rule', 'Rules\Carry', 'Rules\Calendar', 'Kernel\Kernel',
        'Kernel\KernelRequest', 'Kernel\Outcome', 'Kernel\Level', 'Kernel\Window', 'Kernel\Concurrency',
        'Http\Headers', 'Http\Refusal', 'Http\Key', 'Http\RequestFacts', 'Http\Address',
        'FallbackResponse',
    ];
    foreach ($used as $class) {
        class_exists("Sluicegate\\$class") || throw new RuntimeException("Sluicegate\\$class is missing");
    }
})();
