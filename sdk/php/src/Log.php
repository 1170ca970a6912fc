<?php

declare(strict_types=1);

namespace Sluicegate;

use Psr\Log\LoggerInterface;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Markers;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Throwable;

/**
 * Logs what operators must know: a line a minute for each cause, and a line when it is over.
 *
 * @internal
 */
final class Log
{
    /** The shortest time between two lines about the same cause, in s: an outage must not fill logs. */
    private const EVERY_S = 60;

    /**
     * @param Memory|Markers $logged what was logged, by all processes that share it
     * @param bool $outlivesMemory whether it remembers more than the memory of a gate, which ends with each request
     */
    public function __construct(
        private readonly LoggerInterface $logger,
        private readonly Memory|Markers $logged,
        public readonly bool $outlivesMemory = false,
    ) {
    }

    /**
     * Returns the log of a gate.
     *
     * @param Memory|null $memory what requests share; null: APCu, or files where nothing outlives a request
     * @param string $about the Redis or the server that it is about
     */
    public static function of(LoggerInterface $logger, ?Memory $memory, string $about): self
    {
        $logged = $memory ?? match (true) {
            Apcu::isAvailable() => new Apcu("sg:$about:"),
            PHP_SAPI === 'cli' => new ProcessMemory(),
            default => new Markers($about),
        };
        return new self($logger, $logged, $memory === null);
    }

    /**
     * Logs a warning, once a minute at most.
     *
     * @param string $subject what it is about, in one of few words
     * @param string $word what is wrong with it, in one of few words: each has lines of its own
     * @param bool $ends whether `recovered` is called when it has ended
     */
    public function warn(
        string $subject,
        string $text,
        string $word = '',
        bool $ends = false,
        ?Throwable $exception = null,
    ): void {
        if (!$this->logged->add("said:$subject/$word", 1, self::EVERY_S)) {
            return;
        }
        $this->write('warning', $text, $exception === null ? [] : ['exception' => $exception]);
        if ($ends) {
            // In this order: where another process ends an earlier trouble at this moment, its line or a later one is
            // the end of this warning.
            $this->logged->set("trouble:$subject", 1, 0);
            $this->logged->delete("over:$subject");
        }
    }

    /** Logs a notice that all is well with a subject again, if a warning was logged since the last one. */
    public function recovered(string $subject, string $text): void
    {
        if ($this->logged->get("trouble:$subject") === null) {
            return;
        }
        // Of several processes at once, one logs it.
        if ($this->logged->add("over:$subject", 1, self::EVERY_S)) {
            $this->logged->delete("trouble:$subject");
            $this->write('notice', $text, []);
        }
    }

    /** @param array<string, mixed> $context */
    private function write(string $level, string $text, array $context): void
    {
        try {
            $this->logger->log($level, "sluicegate: $text", $context);
        } catch (Throwable) {
            // A log that cannot be written costs no decision.
        }
    }
}
