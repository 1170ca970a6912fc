<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

/**
 * The version of a policy that a host holds.
 *
 * @internal
 */
final readonly class Version
{
    /**
     * @param int $number grows with every change of the policy
     * @param int $takenOverMs the instant at which a server took this version over, in ms since 1970, or this host, if
     *   the record does not have it
     * @param string $textHash the hash of the record, by which a changed record is noticed
     */
    public function __construct(public int $number, public int $takenOverMs, public string $textHash)
    {
    }
}
