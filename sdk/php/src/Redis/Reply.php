<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Outcome;
use Sluicegate\Rules\RuleSet;

/**
 * A reply of the script for one key.
 */
final readonly class Reply
{
    public const REFUSED = 0;
    public const ALLOWED = 1;
    public const UNSUPPORTED = 2;
    public const UNKNOWN_RULES = 3;
    public const MALFORMED = 4;

    private const NEVER = 0xffffffffffffff;

    /** The length of a decision by one rule. */
    private const DECISION_BYTES = 27;

    /** The length of what is left of a rule, where there are several. */
    private const LEFT_BYTES = 7;

    /**
     * @param int $kind one of the constants above
     * @param Outcome|null $outcome of REFUSED and ALLOWED
     * @param list<int> $left what is left of each rule, if several were asked
     * @param string $text of UNKNOWN_RULES how the state begins; of MALFORMED which part is
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
     * What the bytes say; null if they are no reply of the script.
     *
     * @param int $rules how many rules were asked
     * @param bool $withDebt whether a debt was sent
     * @param bool $isSupported whether the rules know the verb: then the script cannot say that they do not
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
        if ($kind > self::ALLOWED || strlen($bytes) !== $decision + ($withDebt ? 4 * $rules : 0)) {
            return null;
        }
        $place = ord($bytes[1]);
        if ($place >= $rules) {
            return null;
        }
        $allowed = $kind === self::ALLOWED;
        // Each of the three has seven bytes; an eighth is read, and left out.
        ['granted' => $granted, 'wait' => $wait] = unpack('Vgranted/Pwait', $bytes, 2);
        $wait &= self::NEVER;
        $outcome = new Outcome(
            $allowed,
            $place,
            $granted,
            $allowed ? $wait : 0,
            $allowed ? 0 : ($wait === self::NEVER ? null : $wait),
            unpack('P', $bytes, 13)[1] & self::NEVER,
            unpack('P', "$bytes\0", 20)[1] & self::NEVER,
        );
        $left = [];
        for ($at = self::DECISION_BYTES; $at < $decision; $at += self::LEFT_BYTES) {
            $left[] = unpack('P', "$bytes\0", $at)[1] & self::NEVER;
        }
        $charged = $withDebt ? array_values(unpack('V*', substr($bytes, $decision)) ?: []) : [];
        return new self($kind, $outcome, $left, '', $charged);
    }

    /**
     * The permits in use of the rules that decided, by their place: of one that decided alone, or of all. Only of
     * REFUSED and ALLOWED.
     *
     * @param RuleSet $set the rules that were asked
     * @return array<int, int>
     */
    public function inUse(RuleSet $set): array
    {
        if ($this->left === []) {
            return [max($set->rules[0]->limit - ($this->outcome->remaining ?? 0), 0)];
        }
        $inUse = [];
        foreach ($this->left as $place => $left) {
            $inUse[] = max($set->rules[$place]->limit - $left, 0);
        }
        return $inUse;
    }
}
