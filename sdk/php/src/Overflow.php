<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The action over the limit, with its parameters.
 */
final readonly class Overflow
{
    /**
     * @param int $maxWaitUs of queue: the longest time that a check is held back
     * @param string|null $tag of degrade: selects the caller's own fallback
     * @param FallbackResponse|null $response of degrade: the response of the caller, in place of a tag
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
     * Returns whether it applies to a verb that the rules refuse. A permit that passed under `shadow` holds nothing, so
     * renewals and releases of permits that are not held pass there as well.
     *
     * @internal
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
