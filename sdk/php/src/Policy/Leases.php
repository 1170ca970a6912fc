<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;

/**
 * Checks `leases`. This process leases nothing, but rejects what servers reject.
 */
final class Leases
{
    private const SHARE_PERCENT_MAX = 50;
    private const TERM_MIN_US = 100_000;
    private const TERM_MAX_US = 2_000_000;
    private const SECOND_US = 1_000_000;

    /** The algorithms by their codes. */
    private const ALGORITHMS = [
        1 => 'token_bucket', 'smooth_bursty', 'smooth_warmup', 'leaky_bucket', 'fixed_window', 'sliding_window',
        'sliding_counter', 'sliding_log', 'concurrency',
    ];

    /**
     * Checks the field of a policy with these rules.
     *
     * @param list<RuleSet> $overrides
     */
    public static function check(Node $node, RuleSet $rules, array $overrides, Overflow $overflow): void
    {
        if ($node->value === 'auto' || $node->value === 'off') {
            return;
        }
        if (!$node->value instanceof \stdClass) {
            throw $node->error('expected `auto`, `off` or `{ max_share: 10%, term: 1s }`');
        }
        $fields = $node->fields(['max_share', 'term']);
        if (isset($fields['max_share'])) {
            self::checkShare($fields['max_share']);
        }
        if (isset($fields['term'])) {
            $us = $fields['term']->duration();
            if ($us < self::TERM_MIN_US || $us > self::TERM_MAX_US) {
                $given = $fields['term']->text(1, 100);
                $problem = "`$given` is out of range, expected a duration from 100ms to 2s, such as `1s`";
                throw $fields['term']->error($problem);
            }
        }
        $reason = self::neverLeased($rules, $overrides, $overflow);
        if ($reason !== null) {
            throw $node->error("$reason; expected `auto` or `off`");
        }
    }

    private static function checkShare(Node $node): void
    {
        if (!is_string($node->value)) {
            throw $node->error('expected a share from 1% to 50%, such as `10%`');
        }
        if (!preg_match('/^([1-9][0-9]?)%$/D', $node->value, $found) || (int) $found[1] > self::SHARE_PERCENT_MAX) {
            $given = substr($node->value, 0, 60);
            throw $node->error("`$given` is not a whole percentage from 1% to 50%, such as `10%`");
        }
    }

    /**
     * The reason why permits of a policy cannot be leased; null if they can be.
     *
     * @param list<RuleSet> $overrides
     */
    private static function neverLeased(RuleSet $rules, array $overrides, Overflow $overflow): ?string
    {
        $reason = self::ofRules($rules);
        foreach ($overrides as $place => $own) {
            $ofOverride = self::ofRules($own);
            $reason ??= $ofOverride === null ? null : "in overrides[$place], $ofOverride";
        }
        $isQueued = $overflow->kind === OverflowKind::Queue;
        return $reason ?? ($isQueued ? '`overflow: queue` books permits in advance' : null);
    }

    private static function ofRules(RuleSet $rules): ?string
    {
        foreach ($rules->rules as $rule) {
            $reason = self::ofRule($rule);
            if ($reason !== null) {
                $algorithm = self::ALGORITHMS[$rule->code];
                return "rule `$rule->name` is a `$algorithm`, $reason";
            }
        }
        return null;
    }

    private static function ofRule(Rule $rule): ?string
    {
        $n = $rule->numbers;
        $isCalendar = (bool) ($rule->flags & Rule::HAS_CALENDAR);
        return match ($rule->code) {
            2, 3 => 'which books permits in advance',
            4 => $n[5] === 1.0 ? 'whose `delay` is not `none`' : null,
            5 => !$isCalendar && $n[2] < self::SECOND_US
                ? 'whose window of less than 1 s is too short to lease'
                : null,
            6, 7, 8 => $n[1] < 10 * self::SECOND_US ? 'whose window of less than 10 s is too short to lease' : null,
            9 => 'whose permits cannot be leased',
            default => null,
        };
    }
}
