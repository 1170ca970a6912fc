<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * The caller asks what makes no sense: a cost out of range, an unknown policy, a verb that its rules do not know.
 */
final class InvalidRequest extends SluicegateException
{
    public static function unknownPolicy(string $policy): self
    {
        return new self('unknown_policy', 'policy: unknown policy `' . Cut::text($policy) . '`');
    }

    /** The policy is for other apps, or the verb for its owner; `$app` is empty if the program says none. */
    public static function notAvailable(string $policy, string $app): self
    {
        return $app === ''
            ? new self('app_missing', "app: policy `$policy` is not available to a caller without an app")
            : new self('policy_not_available', "app: policy `$policy` is not available to app `$app`");
    }

    public static function appName(string $value): self
    {
        return new self('app_name', "app: `$value` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
    }

    public static function keyEmpty(): self
    {
        return new self('key_empty', 'key: is empty, expected 1..=1024 bytes; omit it for the shared budget');
    }

    public static function keyLength(int $length): self
    {
        return new self('key_length', "key: `$length` bytes are outside 1..=1024");
    }

    public static function idLength(int $length): self
    {
        return new self('id_length', "id: `$length` bytes are outside 1..=1024");
    }

    public static function costRange(int $cost): self
    {
        return new self('cost_range', "cost: `$cost` is outside 1..=2147483648");
    }

    public static function maxWaitRange(int $us): self
    {
        return new self('max_wait_range', "max_wait: `$us` is outside 0..=9007199254740991 us");
    }

    public static function nodesRange(int $nodes): self
    {
        return new self('nodes_range', "nodes: `$nodes` is outside 1..=4294967295");
    }

    public static function deadlineRange(int $ms): self
    {
        return new self('deadline_range', "deadline: `$ms` is outside 1..=10000 ms");
    }

    public static function unsupportedVerb(string $verb, string $policy): self
    {
        return new self('unsupported_verb', "op: `$verb` is not supported by policy `$policy`");
    }

    /** A wire of text carries no other bytes; Redis does. */
    public static function keyText(): self
    {
        return new self('key_text', 'key: is not UTF-8');
    }

    public static function notOnThisWire(string $verb, string $wire): self
    {
        return new self('not_on_this_wire', "op: `$verb` is not available over $wire");
    }

    /** What something came to may be nothing. */
    public static function settledCostRange(int $cost): self
    {
        return new self('cost_range', "cost: `$cost` is outside 0..=2147483648");
    }

    /** A limit made in code, or a file of records, that is not valid; the cause names the path. */
    public static function rules(string $cause): self
    {
        return new self('rules', 'rules: ' . Cut::text($cause));
    }
}
