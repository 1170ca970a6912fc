<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Outcome;
use Sluicegate\Rules\RuleSet;

/**
 * A reply of the script for one key.
 *
 * @internal
 */
final readonly class Reply
{
    public const REFUSED = 0;
    public const ALLOWED = 1;
    public const UNSUPPORTED = 2;
    public const UNKNOWN_RULES = 3;
    public const MALFORMED = 4;

    private const NEVER = 0xffffffffffffff;

    /** The bytes of a decision by one rule. */
    private const DECISION_BYTES = 27;

    /** The place of the permits left of the rule that decided. */
    private const LEFT_AT = 13;

    /** The bytes of the permits left of one rule, if there are several. */
    private const LEFT_BYTES = 7;

    /** The bytes of a request that waits for a permit. */
    private const CALLED_BYTES = 24;

    /**
     * @param int $kind one of the constants above
     * @param Outcome|null $outcome of REFUSED and ALLOWED
     * @param list<int> $left the permits left of each rule: below 0 where more than the limit is in use
     * @param string $text of UNKNOWN_RULES the first bytes of the state; of MALFORMED the name of the malformed part
     * @param list<int> $charged of each rule, the permits of a debt that were charged; empty without a debt
     */
    private function __construct(
        public int $kind,
        public ?Outcome $outcome,
        private array $left,
        public string $text,
        public array $charged,
    ) {
    }

    /**
     * Decodes a reply; null if the bytes are not a reply of the script.
     *
     * @param int $rules the number of rules of the request
     * @param bool $withDebt whether a debt was sent
     * @param bool $isSupported whether the rules support the verb: then UNSUPPORTED is not a reply of the script
     */
    public static function decode(
        string $bytes,
        int $rules,
        bool $withDebt = false,
        bool $isSupported = true,
    ): ?self {
        $kind = ord($bytes[0] ?? "\xff");
        if ($kind === self::UNSUPPORTED) {
            return strlen($bytes) === 1 && !$isSupported ? new self($kind, null, [], '', []) : null;
        }
        if ($kind === self::UNKNOWN_RULES || $kind === self::MALFORMED) {
            $text = substr($bytes, 1);
            $isReply = strlen($text) <= 1024 && ($text !== '' || $kind === self::MALFORMED);
            return $isReply ? new self($kind, null, [], $text, []) : null;
        }
        $decision = self::DECISION_BYTES + ($rules > 1 ? self::LEFT_BYTES * $rules : 0);
        // Behind it may be requests that wait for a permit; each asks again by itself.
        $called = strlen($bytes) - $decision - ($withDebt ? 4 * $rules : 0);
        if ($kind > self::ALLOWED || $called < 0 || $called % self::CALLED_BYTES !== 0) {
            return null;
        }
        $place = ord($bytes[1]);
        if ($place >= $rules) {
            return null;
        }
        $allowed = $kind === self::ALLOWED;
        // Each of the numbers has seven bytes; an eighth is read, and left out.
        ['granted' => $granted, 'wait' => $wait] = unpack('Vgranted/Pwait', $bytes, 2);
        $wait &= self::NEVER;
        $outcome = new Outcome(
            $allowed,
            $place,
            $granted,
            $allowed ? $wait : 0,
            $allowed ? 0 : ($wait === self::NEVER ? null : $wait),
            max(self::left($bytes, self::LEFT_AT), 0),
            unpack('P', "$bytes\0", 20)[1] & self::NEVER,
        );
        $left = $rules === 1 ? [self::left($bytes, self::LEFT_AT)] : [];
        for ($at = self::DECISION_BYTES; $at < $decision; $at += self::LEFT_BYTES) {
            $left[] = self::left($bytes, $at);
        }
        $charged = $withDebt ? array_values(unpack('V*', substr($bytes, $decision, 4 * $rules)) ?: []) : [];
        return new self($kind, $outcome, $left, '', $charged);
    }

    /** Returns the permits left of a rule: a two's complement number of seven bytes. */
    private static function left(string $bytes, int $at): int
    {
        return unpack('P', "$bytes\0", $at)[1] << 8 >> 8;
    }

    /**
     * Returns the permits in use of each rule of the request, by its place: more than the limit, if that was lowered
     * or permits are booked. Only for REFUSED and ALLOWED.
     *
     * @param RuleSet $set the rules of the request
     * @return list<int>
     */
    public function inUse(RuleSet $set): array
    {
        $inUse = [];
        foreach ($this->left as $place => $left) {
            $inUse[] = max($set->rules[$place]->limit - $left, 0);
        }
        return $inUse;
    }
}
