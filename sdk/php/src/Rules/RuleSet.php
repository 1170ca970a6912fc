<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Kernel\Kernel;

/**
 * Rules that are decided together, as *the rules* that the script gets, and what answers need beside them.
 */
final readonly class RuleSet
{
    /** The version of the format of rules that this package writes and reads. */
    public const FORMAT = 2;

    /** The most rules of a set: eight, as the byte of present states has eight bits. */
    public const RULES_MAX = 8;

    /** The longest time that rules are kept in Redis, in ms: 400 days. */
    public const LIFE_MAX_MS = 34_560_000_000;

    private const DAY_MS = 86_400_000;
    private const CALL_COST_NS = 10_000;
    private const COST_MAX_NS = 300_000;

    private string $generation;
    private bool $isTooCostly;

    /** @var list<null>|null the windows of rules without a calendar; null: one has one */
    private ?array $noWindows;

    /**
     * @param string $bytes the rules, without what surrounds them
     * @param non-empty-list<Rule> $rules
     * @param int $lifeMs how long a state under these rules is of use at most
     * @param string $quotas what header fields say of the rules
     */
    private function __construct(
        public string $bytes,
        public array $rules,
        public Carry $carry,
        public int $lifeMs,
        public string $quotas,
    ) {
        $this->generation = substr(hash('sha256', $bytes, true), 0, 6);
        $cost = self::CALL_COST_NS;
        $hasCalendar = false;
        foreach ($rules as $rule) {
            $cost += $rule->costNs();
            $hasCalendar = $hasCalendar || $rule->flags & Rule::HAS_CALENDAR;
        }
        $this->isTooCostly = $cost > self::COST_MAX_NS;
        $this->noWindows = $hasCalendar ? null : array_fill(0, count($rules), null);
    }

    /**
     * A set of rules that are made here.
     *
     * @param non-empty-list<Rule> $rules 1 to 8
     */
    public static function of(array $rules, Carry $carry = Carry::Usage): self
    {
        $bytes = pack('CCC', self::FORMAT, $carry->value, count($rules));
        $life = 0.0;
        $fresh = true;
        foreach ($rules as $rule) {
            $bytes .= pack('CCC', $rule->code, count($rule->numbers), $rule->flags) . $rule->nameHash;
            $bytes .= pack('e*', ...$rule->numbers);
            $life = max($life, Packer::lifeUs($rule));
            $fresh = $fresh && ($rule->flags & Rule::FULL_IS_FRESH);
        }
        $lifeMs = (int) min(floor($life / 1000) + 1 + ($fresh ? 0 : 30 * self::DAY_MS), self::LIFE_MAX_MS);
        return new self($bytes, $rules, $carry, $lifeMs, self::quotas($rules));
    }

    /**
     * The set of bytes that somebody else packed; null if they cannot be read.
     *
     * @param list<array{name: string, limit: int, windowUs: int|null, calendar: Calendar|null}>|null $about
     *   for each rule; null: rules are known by their bytes alone
     */
    public static function read(string $bytes, ?array $about = null, int $lifeMs = 0): ?self
    {
        if (strlen($bytes) < 3 || ord($bytes[0]) !== self::FORMAT) {
            return null;
        }
        $carry = Carry::tryFrom(ord($bytes[1]));
        $count = ord($bytes[2]);
        if ($carry === null || $count < 1 || $count > self::RULES_MAX || ($about && count($about) !== $count)) {
            return null;
        }
        $rules = [];
        $at = 3;
        for ($place = 0; $place < $count; $place++) {
            if (strlen($bytes) < $at + 11) {
                return null;
            }
            $length = 8 * ord($bytes[$at + 1]);
            if (strlen($bytes) < $at + 11 + $length) {
                return null;
            }
            $numbers = array_values(unpack('e*', substr($bytes, $at + 11, $length)) ?: []);
            $code = ord($bytes[$at]);
            if (!self::isAlgorithm($code, count($numbers)) || !self::isInRange($code, $numbers)) {
                return null;
            }
            $known = $about[$place] ?? null;
            $rules[] = new Rule(
                $code,
                ord($bytes[$at + 2]),
                substr($bytes, $at + 3, 8),
                $numbers,
                $known['name'] ?? '',
                $known['limit'] ?? self::limitOf($code, $numbers),
                $known['windowUs'] ?? null,
                $known['calendar'] ?? null,
            );
            $at += 11 + $length;
        }
        return $at === strlen($bytes) ? new self($bytes, $rules, $carry, $lifeMs, self::quotas($rules)) : null;
    }

    /** The 6 bytes by which a policy's rules are told from others. */
    public function generation(): string
    {
        return $this->generation;
    }

    /** Whether permits are held by name under one of the rules. */
    public function holdsPermits(): bool
    {
        foreach ($this->rules as $rule) {
            if ($rule->flags & Rule::HOLDS_PERMITS) {
                return true;
            }
        }
        return false;
    }

    /** Whether one decision by the rules could take Redis longer than 0.3 ms; such rules are not sent. */
    public function isTooCostly(): bool
    {
        return $this->isTooCostly;
    }

    /** Whether one of the rules has a calendar. */
    public function hasCalendar(): bool
    {
        return $this->noWindows === null;
    }

    /**
     * The calendar window around an instant for each rule, null for rules without a calendar.
     *
     * @return list<array{int, int}|null>
     */
    public function windowsAround(int $nowUs): array
    {
        return $this->noWindows
            ?? array_map(static fn (Rule $rule) => $rule->calendar?->windowAround($nowUs), $this->rules);
    }

    /** The arithmetic of the rules in this process. */
    public function kernel(): Kernel
    {
        static $kernels = [];
        if (!isset($kernels[$this->bytes])) {
            // A process decides by a few hundred sets at most; a loop over generated limits must not grow.
            $kernels = count($kernels) >= 1024 ? [] : $kernels;
            $kernels[$this->bytes] = new Kernel($this);
        }
        return $kernels[$this->bytes];
    }

    /** @param list<Rule> $rules */
    private static function quotas(array $rules): string
    {
        return implode(', ', array_map(static fn (Rule $rule): string => $rule->quota(), $rules));
    }

    /**
     * Whether no arithmetic divides by one of the numbers that is 0, and all of them are numbers.
     *
     * @param list<float> $n
     */
    private static function isInRange(int $code, array $n): bool
    {
        foreach ($n as $number) {
            if (!($number >= 0 && $number <= 2.0 ** 128)) {
                return false;
            }
        }
        return match ($code) {
            1, 4 => min($n[0], $n[1], $n[2]) >= 1,
            2 => min($n[0], $n[1]) >= 1,
            3 => $n[0] > 0,
            5 => $n[1] === 2.0 ? $n[3] <= 3 : $n[1] < 2 && $n[2] >= 1,
            default => $n[1] >= 1,
        };
    }

    private static function isAlgorithm(int $code, int $numbers): bool
    {
        return ([1 => 9, 3, 5, 10, 5, 4, 4, 2, 3][$code] ?? -1) === $numbers;
    }

    /** @param list<float> $numbers */
    private static function limitOf(int $code, array $numbers): int
    {
        return match ($code) {
            1, 4 => (int) $numbers[4],
            2, 3 => max((int) floor(min($numbers[2], 4503599627370496.0)), 1),
            default => (int) $numbers[0],
        };
    }
}
