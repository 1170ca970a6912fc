<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The keys of this package in Redis.
 *
 * @internal
 */
final class Keys
{
    public const POLICIES = 'sg:{policies}';

    /** Returns the key of the state of a caller's key under a policy; an empty `$key` is the shared budget. */
    public static function state(string $policy, string $key): string
    {
        $hash = hash('sha256', pack('P', strlen($policy)) . $policy . pack('P', strlen($key)) . $key, true);
        return 'sg:{' . self::base64($hash) . '}';
    }

    /** Returns the key of the rules of a policy's generation. */
    public static function rules(string $policy, string $generation): string
    {
        $hash = hash('sha256', pack('P', strlen($policy)) . $policy, true);
        return 'sg:rules:' . self::base64($hash) . ':' . bin2hex($generation);
    }

    /** Returns the key at which the script records that a debt was charged. */
    public static function debt(string $stateKey, string $id): string
    {
        return $stateKey . ':' . self::base64($id);
    }

    /** The first 16 bytes in 22 characters. */
    private static function base64(string $bytes): string
    {
        return strtr(substr(base64_encode(substr($bytes, 0, 16)), 0, 22), '+/', '-_');
    }
}
