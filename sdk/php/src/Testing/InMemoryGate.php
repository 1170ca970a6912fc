<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Psr\Clock\ClockInterface;
use Sluicegate\Clock;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Policy\Policy;
use Sluicegate\PsrClock;
use Sluicegate\Ranges;
use Sluicegate\Rules\Unreadable;
use stdClass;

/**
 * A gate for tests: it decides in this process, as a host without Redis does, for 100,000 keys at a time. It ignores
 * the `apps` of policies.
 */
final class InMemoryGate
{
    /** The format of files of records that this package reads. */
    private const FORMAT = 1;

    private function __construct()
    {
    }

    /**
     * Returns a gate with policies.
     *
     * @param Clock|ClockInterface $clock usually a ManualClock; a PSR-20 clock works, too
     * @param string|array<string, Limit> ...$policies a text that `sluicegate policies compile` wrote; or limits that
     *   are made in code, by the names of their policies
     * @throws InvalidRequest if a policy cannot be read; the message names it and the member
     */
    public static function with(Clock|ClockInterface $clock, string|array ...$policies): Gate
    {
        $clock = PsrClock::of($clock);
        $held = [];
        foreach ($policies as $some) {
            $held = (is_string($some) ? self::ofFile($some, $clock) : self::ofCode($some)) + $held;
        }
        return Gate::of(new InMemoryDecider($held, $clock));
    }

    /** @return array<string, Policy> */
    private static function ofFile(string $text, Clock $clock): array
    {
        $file = json_decode($text);
        if (!$file instanceof stdClass || ($file->{'#format'} ?? null) !== self::FORMAT) {
            throw InvalidRequest::rules('expected the text that `sluicegate policies compile` writes, of `#format` 1');
        }
        $policies = [];
        foreach (get_object_vars($file) as $name => $record) {
            try {
                if (!str_starts_with((string) $name, '#')) {
                    $json = (string) json_encode($record);
                    $policies[$name] = Policy::read((string) $name, $json, intdiv($clock->nowUs(), 1000));
                }
            } catch (Unreadable $e) {
                throw InvalidRequest::rules("policy `$name`: {$e->getMessage()}");
            }
        }
        return $policies;
    }

    /** @return array<string, Policy> */
    private static function ofCode(array $limits): array
    {
        $policies = [];
        foreach ($limits as $name => $limit) {
            Ranges::name((string) $name);
            $policies[$name] = $limit instanceof Limit
                ? Policy::ofLimit((string) $name, $limit)
                : throw InvalidRequest::rules("policy `$name`: expected a `" . Limit::class . '`');
        }
        return $policies;
    }
}
