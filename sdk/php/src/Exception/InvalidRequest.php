<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * The request is not valid: a cost out of range, an unknown policy, a verb that its rules do not support.
 */
final class InvalidRequest extends SluicegateException
{
    public static function unknownPolicy(string $policy): self
    {
        return new self('unknown_policy', 'policy: unknown policy `' . self::truncate($policy) . '`');
    }

    /** The policy is for other apps, or the verb for its owner; `$app` is empty if the program has none. */
    public static function notAvailable(string $policy, string $app): self
    {
        return $app === ''
            ? new self('app_missing', "app: policy `$policy` is not available to a caller without an app")
            : new self('policy_not_available', "app: policy `$policy` is not available to app `$app`");
    }

    public static function unsupportedVerb(string $verb, string $policy): self
    {
        return new self('unsupported_verb', "op: `$verb` is not supported by policy `$policy`");
    }

    /** The key is not UTF-8, which JSON requires; keys in Redis may have any bytes. */
    public static function keyText(): self
    {
        return new self('key_text', 'key: is not UTF-8');
    }

    public static function notOnThisWire(string $verb, string $wire): self
    {
        return new self('not_on_this_wire', "op: `$verb` is not available over $wire");
    }

    /** A limit made in code, or a file of records, that is not valid; the cause names the path. */
    public static function rules(string $cause): self
    {
        return new self('rules', 'rules: ' . self::truncate($cause));
    }
}
