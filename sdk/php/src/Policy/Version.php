<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

/**
 * The version of a policy that a host holds.
 */
final readonly class Version
{
    /**
     * @param int $number grows with every change of the policy
     * @param int $takenOverMs when a server took this version over, in ms since 1970; when this host did, if the
     *   server did not say it
     * @param string $textHash tells the record from which it was read from others
     */
    public function __construct(public int $number, public int $takenOverMs, public string $textHash)
    {
    }
}
