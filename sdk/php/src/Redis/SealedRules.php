<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Rules\Unreadable;

/**
 * A set of rules with its head: the blob that is sent with every call.
 *
 * @internal
 */
final readonly class SealedRules
{
    /** 2026-01-01 in ms since 1970: instants of heads count from here. */
    private const EPOCH_MS = 1_767_225_600_000;

    /** The latest instant of a head, which has 5 bytes for it. */
    private const INSTANT_MAX = 0xff_ffff_ffff;

    /** The key at which the rules are written to Redis; null for a limit that is made in code. */
    public ?string $key;

    /**
     * @param string $head the first bytes of every state under these rules
     * @param string $blob the bytes that the script gets
     * @param string|null $policy the policy of the rules; null: a limit that is made in code
     */
    private function __construct(
        public RuleSet $set,
        public string $head,
        public string $blob,
        public ?string $policy,
    ) {
        $this->key = $policy === null ? null : Keys::rules($policy, substr($head, 0, 6));
    }

    /** Returns a policy's rules, taken over at an instant in ms since 1970. */
    public static function ofPolicy(string $policy, RuleSet $set, int $takenOverMs): self
    {
        $instant = substr(pack('P', min(max($takenOverMs - self::EPOCH_MS, 0), self::INSTANT_MAX)), 0, 5);
        return self::underHead($policy, $set, $set->generation . $instant);
    }

    /** Returns a policy's rules under the head of a state: its generation and its instant. */
    public static function underHead(string $policy, RuleSet $set, string $head): self
    {
        return new self($set, $head, pack('Cv', 6, strlen($head)) . $set->bytes . $head, $policy);
    }

    /** Returns the rules of a limit that is made in code. */
    public static function ofCaller(RuleSet $set): self
    {
        $head = self::short($set);
        return new self($set, $head, pack('Cv', 0, strlen($head)) . $set->bytes . $head, null);
    }

    /** Reads the rules at the beginning of a state of a limit that is made in code; null if there are none. */
    public static function atBeginOf(string $state): ?self
    {
        $at = 0;
        $byte = ord($state[0] ?? "\0");
        [$carry, $count, $named] = [0, 1, $byte >= 128];
        if ($named) {
            [$carry, $count, $at] = [($byte >> 4) & 7, $byte & 15, 1];
        }
        $bytes = pack('CCC', RuleSet::FORMAT, $carry, $count);
        for ($place = 0; $place < $count; $place++) {
            if (strlen($state) < $at + 2) {
                return null;
            }
            [$what, $numbers] = [ord($state[$at]), ord($state[$at + 1])];
            $at += 2;
            $name = $named ? substr($state, $at, 8) : self::limitName();
            $at += $named ? 8 : 0;
            $bytes .= pack('CCC', $what & 15, $numbers, $what >> 4) . $name;
            for ($number = 0; $number < $numbers; $number++) {
                $value = self::readNumber($state, $at);
                if ($value === null) {
                    return null;
                }
                $bytes .= pack('e', $value);
            }
        }
        try {
            return self::ofCaller(RuleSet::read($bytes));
        } catch (Unreadable) {
            return null;
        }
    }

    /** Returns the hash of the name of a rule that is alone in a limit made in code. */
    private static function limitName(): string
    {
        return Rule::hashOf('limit');
    }

    private static function short(RuleSet $set): string
    {
        $carry = $set->carry->value;
        $plain = count($set->rules) === 1 && $carry === 0 && $set->rules[0]->nameHash === self::limitName();
        $short = $plain ? '' : chr(128 + 16 * $carry + count($set->rules));
        foreach ($set->rules as $rule) {
            $short .= pack('CC', 16 * $rule->flags + $rule->code, count($rule->numbers));
            $short .= $plain ? '' : $rule->nameHash;
            $short .= implode('', array_map(self::shortNumber(...), $rule->numbers));
        }
        return $short;
    }

    private static function shortNumber(float $number): string
    {
        if ($number < 0.0 || $number >= 9007199254740992.0 || floor($number) !== $number) {
            return "\0" . pack('e', $number);
        }
        $bytes = '';
        for ($left = (int) $number + 1; $left >= 128; $left >>= 7) {
            $bytes .= chr(128 | ($left & 127));
        }
        return $bytes . chr($left);
    }

    private static function readNumber(string $state, int &$at): ?float
    {
        if (($state[$at] ?? '') === "\0") {
            $at += 9;
            return strlen($state) < $at ? null : unpack('e', $state, $at - 8)[1];
        }
        $value = 0;
        for ($shift = 0; $shift < 63; $shift += 7) {
            $byte = ord($state[$at++] ?? "\0");
            $value |= ($byte & 127) << $shift;
            if ($byte < 128) {
                return $value > 0 ? (float) ($value - 1) : null;
            }
        }
        return null;
    }
}
