<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Kernel\Concurrency;
use Sluicegate\Kernel\Level;
use Sluicegate\Kernel\Primitive;
use Sluicegate\Kernel\Window;

/**
 * One rule: the code, flags and numbers that the script gets, and what answers report of it.
 *
 * @internal
 */
final readonly class Rule
{
    /** A full budget is the same as a new key. */
    public const FULL_IS_FRESH = 1;
    /** The rule holds permits by id. */
    public const HOLDS_PERMITS = 2;
    /** The window of the rule is sent with each request. */
    public const HAS_CALENDAR = 4;

    /** The count of numbers of a rule, by the code of its algorithm. */
    private const NUMBERS = [1 => 9, 3, 5, 10, 5, 4, 4, 2, 3];

    /** The most stored permits of a rule that books in advance. */
    public const PERMITS_STORED_MAX = 4503599627370496.0;

    /**
     * @param int $code of the algorithm, 1 to 9
     * @param int $flags a sum of the constants above
     * @param string $nameHash the first 8 bytes of the SHA-256 of its name
     * @param list<float> $numbers
     * @param string $name empty if only the hash is known
     * @param int $limit the largest cost that passes at once, as answers report it
     * @param int|null $windowUs the window that header fields report; null: none
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

    /** The hash that distinguishes a rule from the others of its set. */
    public static function hashOf(string $name): string
    {
        return substr(hash('sha256', $name, true), 0, 8);
    }

    /**
     * The largest cost that passes at once, by the numbers of an algorithm.
     *
     * @param list<float> $numbers
     */
    public static function limitOf(int $code, array $numbers): int
    {
        return match ($code) {
            1, 4 => (int) $numbers[4],
            2, 3 => max((int) floor(min($numbers[2], self::PERMITS_STORED_MAX)), 1),
            default => (int) $numbers[0],
        };
    }

    /**
     * Reads the rule at an offset of the bytes of a set; of its name, only the hash is known.
     *
     * @throws Unreadable if it is damaged, or of a later version
     */
    public static function read(string $bytes, int $at): self
    {
        if (strlen($bytes) < $at + 11) {
            throw Unreadable::damaged('the rules end within one of them');
        }
        [$code, $count, $flags] = array_values(unpack('C3', $bytes, $at) ?: []);
        if (!isset(self::NUMBERS[$code])) {
            throw Unreadable::later("a rule of the unknown algorithm $code");
        }
        $numbers = array_values(unpack('e*', substr($bytes, $at + 11, 8 * $count)) ?: []);
        $isWhole = $count === count($numbers) && $count === self::NUMBERS[$code];
        if (!$isWhole || !self::isInRange($code, $flags, $numbers)) {
            throw Unreadable::damaged("numbers that no rule of algorithm $code has");
        }
        $limit = self::limitOf($code, $numbers);
        return new self($code, $flags, substr($bytes, $at + 3, 8), $numbers, '', $limit, null, null);
    }

    /** Returns this rule with the properties that its bytes do not contain. */
    public function described(string $name, int $limit, ?int $windowUs, ?Calendar $calendar): self
    {
        [$code, $flags, $hash] = [$this->code, $this->flags, $this->nameHash];
        return new self($code, $flags, $hash, $this->numbers, $name, $limit, $windowUs, $calendar);
    }

    /** The rule's arithmetic without Redis. */
    public function primitive(): Primitive
    {
        return match ($this->code) {
            1, 2, 3, 4 => new Level($this->limit, $this->code, $this->numbers),
            5, 6, 7, 8 => new Window($this->limit, $this->code, $this->numbers, $this->calendar),
            default => new Concurrency($this->limit, (int) $this->numbers[1], (int) $this->numbers[2]),
        };
    }

    /**
     * Returns whether a share can compute the permits in use from those that Redis reports as left.
     *
     * It cannot for permits that are held by id, nor for `smooth_warmup`, of which it keeps only the time between two
     * requests.
     */
    public function isReported(): bool
    {
        return !($this->flags & self::HOLDS_PERMITS) && $this->code !== 3;
    }

    /** Returns its item of `RateLimit-Policy`, such as `"tokens";q=1000;w=86400`; a window only in whole seconds. */
    public function quota(): string
    {
        $quota = "\"$this->name\";q=$this->limit";
        if ($this->flags & self::HOLDS_PERMITS) {
            return $quota . ';qu="concurrent-requests"';
        }
        $hasTime = $this->windowUs !== null && $this->windowUs % 1_000_000 === 0;
        return $hasTime ? $quota . ';w=' . intdiv($this->windowUs, 1_000_000) : $quota;
    }

    /** Returns the time after which a state of the rule is not needed, in µs: from an empty to a full budget. */
    public function lifeUs(): float
    {
        $n = $this->numbers;
        return match ($this->code) {
            1, 4 => (float) Primitive::divCeil((int) $n[3], (int) $n[1]) * $n[0],
            2 => ceil($n[2] * $n[1] / $n[0]),
            3 => ceil($n[2] * $n[4]),
            5 => $n[1] === 2.0 ? (float) Parameters::SPAN_MAX_US : $n[2],
            6 => $n[1] + $n[2],
            7 => 2.0 * $n[1],
            default => $n[1],
        };
    }

    /** Returns the longest time that a decision by this rule takes Redis, in ns, beside the call. */
    public function costNs(): int
    {
        return 5000 + match ($this->code) {
            6 => 285 * (int) $this->numbers[3],
            8 => 114 * (int) $this->numbers[0],
            9 => 285 * (int) $this->numbers[0],
            default => 0,
        };
    }

    /**
     * Returns whether the numbers are valid for a rule: limits, bursts and lengths of time are at least 1.
     *
     * @param list<float> $n
     */
    private static function isInRange(int $code, int $flags, array $n): bool
    {
        foreach ($n as $number) {
            if (!($number >= 0 && $number <= ($code === 3 ? 2.0 ** 128 : 2.0 ** 53))) {
                return false;
            }
        }
        $isCalendar = $code === 5 && $n[1] === 2.0;
        if ($flags > 7 || $isCalendar !== (bool) ($flags & self::HAS_CALENDAR)) {
            return false;
        }
        return match ($code) {
            1, 4 => min($n[0], $n[1], $n[2], $n[4]) >= 1 && $n[3] >= $n[2],
            2 => min($n[0], $n[1]) >= 1 && $n[2] > 0,
            3 => min($n) > 0,
            5 => $n[0] >= 1 && ($isCalendar ? $n[3] <= 3 : $n[1] < 2 && $n[2] >= 1),
            6, 7 => min($n) >= 1,
            default => min($n[0], $n[1]) >= 1,
        };
    }
}
