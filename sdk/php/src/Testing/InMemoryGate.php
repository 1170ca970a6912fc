<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Psr\Clock\ClockInterface;
use Sluicegate\Clock;
use Sluicegate\Gate;
use Sluicegate\Policy\Document;
use Sluicegate\PsrClock;

/**
 * A gate for tests, which decides in this process as one without Redis does, for 100,000 keys at a time.
 */
final class InMemoryGate
{
    /**
     * A gate with policies.
     *
     * @param Clock|ClockInterface $clock usually a ManualClock; a clock of PSR-20 will do
     * @param array<string, mixed>|string ...$policies documents, as JSON or as what it decodes to
     */
    public static function with(Clock|ClockInterface $clock, array|string ...$policies): Gate
    {
        $documents = [];
        foreach ($policies as $policy) {
            $flags = JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
            $document = Document::parse(is_string($policy) ? $policy : json_encode($policy, $flags));
            $documents[$document->name] = $document;
        }
        return new Gate(new InMemoryDecider($documents, PsrClock::of($clock)));
    }
}
