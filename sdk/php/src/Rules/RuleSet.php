<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Kernel\Kernel;

/**
 * Rules that are decided together: their bytes, which the script gets, and what answers report of them.
 *
 * @internal
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

    /** The 6 bytes that distinguish a policy's rules from earlier and later ones. */
    public string $generation;

    /** @var list<null>|null the windows of a set without a calendar; null: a rule has a calendar */
    private ?array $noWindows;

    /**
     * @param string $bytes the rules, without a head
     * @param non-empty-list<Rule> $rules
     * @param int $lifeMs the longest time that a state under these rules is needed; 0 if only the bytes are known
     * @param string $quotas the value of `RateLimit-Policy`; empty if only the bytes are known
     */
    private function __construct(
        public string $bytes,
        public array $rules,
        public Carry $carry,
        public int $lifeMs,
        public string $quotas,
    ) {
        $this->generation = substr(hash('sha256', $bytes, true), 0, 6);
        $hasCalendar = false;
        foreach ($rules as $rule) {
            $hasCalendar = $hasCalendar || $rule->flags & Rule::HAS_CALENDAR;
        }
        $this->noWindows = $hasCalendar ? null : array_fill(0, count($rules), null);
    }

    /**
     * Encodes rules as a set.
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
            $life = max($life, $rule->lifeUs());
            $fresh = $fresh && ($rule->flags & Rule::FULL_IS_FRESH);
        }
        $lifeMs = (int) min(floor($life / 1000) + 1 + ($fresh ? 0 : 30 * self::DAY_MS), self::LIFE_MAX_MS);
        return new self($bytes, $rules, $carry, $lifeMs, self::quotas($rules));
    }

    /**
     * Reads a set that another program encoded. Of its rules' names, only the hashes are known.
     *
     * @throws Unreadable if they cannot be read
     */
    public static function read(string $bytes): self
    {
        if (strlen($bytes) < 3) {
            throw Unreadable::damaged('rules of ' . strlen($bytes) . ' bytes');
        }
        [, $format, $carry, $count] = unpack('C3', $bytes) ?: [];
        if ($format !== self::FORMAT) {
            throw Unreadable::later("rules of format $format; this program reads " . self::FORMAT);
        }
        $carry = Carry::tryFrom($carry) ?? throw Unreadable::later("rules with the unknown carry $carry");
        if ($count < 1 || $count > self::RULES_MAX) {
            throw Unreadable::damaged("`$count` rules are outside 1..=" . self::RULES_MAX);
        }
        [$rules, $at] = [[], 3];
        for ($place = 0; $place < $count; $place++) {
            $rules[] = $rule = Rule::read($bytes, $at);
            $at += 11 + 8 * count($rule->numbers);
        }
        return $at === strlen($bytes)
            ? new self($bytes, $rules, $carry, 0, '')
            : throw Unreadable::damaged('bytes behind the last rule');
    }

    /**
     * Returns this set with the properties that its bytes do not contain.
     *
     * @param non-empty-list<Rule> $rules
     */
    public function described(array $rules, int $lifeMs): self
    {
        return new self($this->bytes, $rules, $this->carry, $lifeMs, self::quotas($rules));
    }

    /** Returns whether one of the rules holds permits by id. */
    public function holdsPermits(): bool
    {
        foreach ($this->rules as $rule) {
            if ($rule->flags & Rule::HOLDS_PERMITS) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns whether permits of each of the old rules, by its place, are as many permits of these: the names are the
     * same in the same order, and so are the rules, or their usage stays as it is.
     */
    public function countsLike(self $old): bool
    {
        return array_column($this->rules, 'nameHash') === array_column($old->rules, 'nameHash')
            && ($this->carry === Carry::Usage || $this->bytes === $old->bytes);
    }

    /** Returns whether a decision by the rules could take Redis longer than 0.3 ms; such rules are not sent. */
    public function isTooCostly(): bool
    {
        $costs = array_map(static fn (Rule $rule): int => $rule->costNs(), $this->rules);
        return self::CALL_COST_NS + array_sum($costs) > self::COST_MAX_NS;
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

    /** Returns the arithmetic of the rules in this process. */
    public function kernel(): Kernel
    {
        static $kernels = [];
        // Rules that are known by their bytes alone have no calendars.
        $of = &$kernels[$this->quotas === '' ? 'read' : 'described'];
        // A process uses a few hundred sets at most; generated limits must not grow the map without bound.
        if (!isset($of[$this->bytes]) && count($of ?? []) >= 1024) {
            $of = [];
        }
        return $of[$this->bytes] ??= new Kernel($this);
    }

    /** @param list<Rule> $rules */
    private static function quotas(array $rules): string
    {
        return implode(', ', array_map(static fn (Rule $rule): string => $rule->quota(), $rules));
    }
}
