<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * There is no decision: Redis answers, but no policies are published there, and the policy is not held.
 */
final class NothingPublished extends StoreUnavailable
{
    /** @param string $address the address of that Redis */
    public function __construct(string $address)
    {
        parent::__construct('', false, null, 'nothing_published');
        $this->message = self::text($address);
    }

    /**
     * Returns what is wrong, and what to do.
     *
     * @internal
     */
    public static function text(string $address): string
    {
        return 'policy: no policies are published in the Redis at ' . self::truncate($address)
            . '; start a server on it (its `store.publish` is `true` unless set)';
    }
}
