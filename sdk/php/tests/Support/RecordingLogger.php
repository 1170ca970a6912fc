<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Psr\Log\AbstractLogger;

/**
 * A logger that keeps what it is given.
 */
final class Heard extends AbstractLogger
{
    /** @var list<string> */
    public array $said = [];

    /**
     * @param mixed $level
     * @param string $message
     * @param array<mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        $this->said[] = "$level $message";
    }
}
