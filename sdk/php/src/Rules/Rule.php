<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Kernel\Concurrency;
use Sluicegate\Kernel\Level;
use Sluicegate\Kernel\Primitive;
use Sluicegate\Kernel\Window;

/**
 * One rule as the script gets it: a code, flags and numbers. And what answers need beside them.
 */
final readonly class Rule
{
    /** A full budget is the same as a new key. */
    public const FULL_IS_FRESH = 1;
    /** It hands out permits by name. */
    public const HOLDS_PERMITS = 2;
    /** Its window comes with the request. */
    public const HAS_CALENDAR = 4;

    /**
     * @param int $code of the algorithm, 1 to 9
     * @param int $flags a sum of the constants above
     * @param string $nameHash the first 8 bytes of the SHA-256 of its name
     * @param list<float> $numbers
     * @param string $name empty if only the hash is known
     * @param int $limit the largest cost that passes at once, as answers report it
     * @param int|null $windowUs the time that header fields report for it; null: none
     */
    public function __construct(
        public int $code,
        public int $flags,
        public string $nameHash,
        public array $numbers,
        public string $name,
        public int $limit,
        public ?int $windowUs,
        public ?Calendar $calendar,
    ) {
    }

    /** The rule's arithmetic without Redis. */
    public function primitive(): Primitive
    {
        return match ($this->code) {
            1, 2, 3, 4 => Level::of($this->code, $this->numbers),
            5, 6, 7, 8 => Window::of($this->code, $this->numbers),
            default => new Concurrency((int) $this->numbers[0], (int) $this->numbers[1]),
        };
    }

    /**
     * Whether what Redis says to be left of it says what a share has in use.
     *
     * Not of permits that are held under their ids, nor of a rule that warms up, of which only the time between two
     * requests is left.
     */
    public function isReported(): bool
    {
        return !($this->flags & self::HOLDS_PERMITS) && $this->code !== 3;
    }

    /** What header fields say of it, such as `"tokens";q=1000;w=86400`: a time only in whole seconds. */
    public function quota(): string
    {
        $quota = "\"$this->name\";q=$this->limit";
        if ($this->flags & self::HOLDS_PERMITS) {
            return $quota . ';qu="concurrent-requests"';
        }
        $hasTime = $this->windowUs !== null && $this->windowUs % 1_000_000 === 0;
        return $hasTime ? $quota . ';w=' . intdiv($this->windowUs, 1_000_000) : $quota;
    }

    /** ns of Redis that one decision by this rule costs at most, beside the call. */
    public function costNs(): int
    {
        return 5000 + match ($this->code) {
            6 => 285 * (int) $this->numbers[3],
            8 => 114 * (int) $this->numbers[0],
            9 => 285 * (int) $this->numbers[0],
            default => 0,
        };
    }
}
