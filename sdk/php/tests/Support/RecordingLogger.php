<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Psr\Log\AbstractLogger;

/**
 * A logger that keeps what it is given.
 */
final class RecordingLogger extends AbstractLogger
{
    /** @var list<string> */
    public array $lines = [];

    /**
     * @param mixed $level
     * @param string $message
     * @param array<mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        $this->lines[] = "$level $message";
    }
}
