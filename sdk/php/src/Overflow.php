<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * What happens over the limit, and with what.
 */
final readonly class Overflow
{
    /**
     * @param int $maxWaitUs of a queue: how long a check is held back at most
     * @param string|null $tag of degrade: the name of what the caller has for it
     * @param FallbackResponse|null $response of degrade: what the caller answers, in place of a tag
     * @param string|null $target of divert: where the caller sends the request
     */
    public function __construct(
        public OverflowKind $kind,
        public int $maxWaitUs = 0,
        public ?string $tag = null,
        public ?FallbackResponse $response = null,
        public ?string $target = null,
    ) {
    }

    /**
     * Whether it decides on a request that the rules refuse. A permit that passed in the shadow holds nothing, so
     * there a renewal or release of what is not held passes as well.
     */
    public function covers(Verb $verb): bool
    {
        return match ($verb) {
            Verb::Check, Verb::Reserve, Verb::Acquire => true,
            Verb::Release, Verb::Renew => $this->kind === OverflowKind::Shadow,
            default => false,
        };
    }
}
