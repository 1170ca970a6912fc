<?php

/**
 * A logger of PSR-3 that writes to the log of PHP, and nothing where psr/log is not installed. Frameworks have theirs.
 */

declare(strict_types=1);

use Psr\Log\AbstractLogger;

is_file(__DIR__ . '/../vendor/autoload.php')
    ? require_once __DIR__ . '/../vendor/autoload.php'
    : @include_once 'Psr/Log/autoload.php';

return !class_exists(AbstractLogger::class) ? null : new class extends AbstractLogger {
    /**
     * @param mixed $level
     * @param string|\Stringable $message
     * @param array<mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        error_log("$level $message");
    }
};
