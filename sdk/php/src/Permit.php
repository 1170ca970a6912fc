<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\SluicegateException;

/**
 * A requested permit: held if the decision allows, until it is released or its time to live ends. One that passed over
 * the limit (`overflow: shadow`) takes no place: it is renewed and released without a call.
 */
final class Permit
{
    private bool $isHeld;

    /**
     * @internal
     * @param Decision $decision the decision about the request
     * @param string $id the id by which any program can release or renew it
     */
    public function __construct(
        private readonly Limiter $limiter,
        private readonly ?string $key,
        public readonly string $id,
        public readonly Decision $decision,
    ) {
        $this->isHeld = $decision->allowed;
    }

    /** Returns whether the caller may go on: the permit passed, and neither `release` nor `renew` ended it since. */
    public function isHeld(): bool
    {
        return $this->isHeld;
    }

    /**
     * Releases the permit; does nothing the second time, or if it was refused. It never throws, so that work that is
     * done does not fail in a `finally`. Without an answer it returns false: call it again, or let the permit lapse.
     * Observers get the exception, and `Limiter::release` throws it.
     */
    public function release(): bool
    {
        if ($this->isHeld && $this->decision->overflow === null) {
            try {
                if ($this->limiter->release($this->key, $this->id)->mode === Mode::Local) {
                    // A share released it. Redis may hold it as well, by a grant that came too late.
                    $this->limiter->releaseOnce($this->key, $this->id);
                }
            } catch (SluicegateException) {
                return false;
            }
        }
        $this->isHeld = false;
        return true;
    }

    /**
     * Holds the permit for another time to live; returns false if it is not held any more.
     *
     * @throws SluicegateException if Redis does not answer
     */
    public function renew(): bool
    {
        $takesNoPlace = $this->decision->overflow !== null;
        return $this->isHeld = $this->isHeld
            && ($takesNoPlace || $this->limiter->renew($this->key, $this->id)->allowed);
    }
}
