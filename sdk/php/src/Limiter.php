<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\Charged;
use Sluicegate\Exception\LimitExceeded;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Kernel\KernelRequest;

/**
 * The budgets of a policy, or of a limit that is made in code.
 *
 * A key is 1 to 1,024 bytes; null is the shared budget. A cost is 1 to 2^31 permits. A refusal is a decision; all
 * methods throw a SluicegateException if there is none, such as for an unknown policy.
 */
final class Limiter
{
    /** The most requests that release a permit without an answer: the second one finds the connection renewed. */
    private const RELEASES_MAX = 2;

    /**
     * @internal
     * @param string $name the policy, or the name of the limit
     * @param Limit|null $limit null for a policy
     * @param Observer|null $observer called after each request
     */
    public function __construct(
        private readonly Decider $decider,
        public readonly string $name,
        private readonly ?Limit $limit = null,
        private readonly ?Observer $observer = null,
    ) {
    }

    /** Takes `$cost` permits, or is refused. */
    public function check(?string $key, int $cost = 1): Decision
    {
        return $this->decide(Verb::Check, $key, $cost);
    }

    /**
     * Takes `$cost` permits, or throws.
     *
     * @throws LimitExceeded if it is refused; the exception has the decision
     */
    public function ensure(?string $key, int $cost = 1): Decision
    {
        return $this->check($key, $cost)->orThrow();
    }

    /**
     * Takes `$cost` permits if the wait is `$maxWaitUs` µs at most. The caller itself must wait for `waitLeftUs()`.
     *
     * @param int $maxWaitUs 0 to 2^53 - 1, which means any wait
     */
    public function reserve(?string $key, int $cost = 1, int $maxWaitUs = KernelRequest::MAX_WAIT_US): Decision
    {
        Ranges::number('max_wait', $maxWaitUs, 0, KernelRequest::MAX_WAIT_US, ' us');
        return $this->decide(Verb::Reserve, $key, $cost, $maxWaitUs);
    }

    /** Takes the permits that are left, up to `$cost`; `granted` is how many. */
    public function atMost(?string $key, int $cost): Decision
    {
        return $this->decide(Verb::AtMost, $key, $cost);
    }

    /** Returns the answer to a check, without `overflow`, and takes nothing. */
    public function peek(?string $key, int $cost = 1): Decision
    {
        return $this->decide(Verb::Peek, $key, $cost);
    }

    /** Gives permits back, never above full; `granted` is how many. */
    public function refund(?string $key, int $cost = 1): Decision
    {
        return $this->decide(Verb::Refund, $key, $cost);
    }

    /** Resets the budget of the key to that of a new key. */
    public function reset(?string $key): Decision
    {
        return $this->decide(Verb::Reset, $key, 1);
    }

    /**
     * Holds `$cost` permits of a `concurrency` rule; check `isHeld()`. Under `overflow: shadow`, a permit over the
     * limit passes as well, and takes no place.
     *
     * With `$maxWaitUs` it waits for a permit, in the order of the requests of all servers and programs, and this
     * process with it. That needs a rule with a `queue`. The answer may take so much longer than the timeout of the
     * gate; in direct mode Redis is asked ten times a second. `heldUs` of the decision is how long it waited, but not
     * over RESP.
     *
     * If there is no answer, or none of Redis in time (the modes `shed`, `local` and `deny`), the permit may be held: a
     * random id is released then; release your own by `release`.
     *
     * @param string|null $id 1 to 1,024 bytes; null: a random id
     * @param int|null $maxWaitUs the longest wait, 0 to 2^53 - 1, which means any wait; servers count whole ms. Null:
     *   `overflow` of the policy decides, whose `queue` waits
     */
    public function acquire(?string $key, int $cost = 1, ?string $id = null, ?int $maxWaitUs = null): Permit
    {
        Ranges::number('max_wait', $maxWaitUs ?? 0, 0, KernelRequest::MAX_WAIT_US, ' us');
        if ($id !== null) {
            return new Permit($this, $key, $id, $this->decide(Verb::Acquire, $key, $cost, $maxWaitUs, $id));
        }
        $id = bin2hex(random_bytes(16));
        try {
            $decision = $this->decide(Verb::Acquire, $key, $cost, $maxWaitUs, $id);
            if (!$decision->allowed && $decision->isWithoutRedis()) {
                $this->releaseOnce($key, $id);
            }
            return new Permit($this, $key, $id, $decision);
        } catch (SluicegateException $e) {
            $e->charged() === Charged::No ?: $this->releaseSurely($key, $id);
            throw $e;
        }
    }

    /** Releases a permit by its id; refused if it is not held, except under `overflow: shadow`. */
    public function release(?string $key, string $id): Decision
    {
        return $this->decide(Verb::Release, $key, 1, null, $id);
    }

    /**
     * Releases a permit as surely as a few requests can; returns whether there was an answer.
     *
     * @internal
     */
    public function releaseSurely(?string $key, string $id): bool
    {
        for ($try = 0; $try < self::RELEASES_MAX; $try++) {
            try {
                $this->release($key, $id);
                return true;
            } catch (SluicegateException) {
                continue;
            }
        }
        return false;
    }

    /**
     * Releases a permit that Redis may have granted too late for the answer. If this has no answer either, the permit
     * lapses after its time to live.
     *
     * @internal
     */
    public function releaseOnce(?string $key, string $id): void
    {
        try {
            $this->release($key, $id);
        } catch (SluicegateException) {
            return;
        }
    }

    /** Holds a permit for another time to live; refused if it is not held, except under `overflow: shadow`. */
    public function renew(?string $key, string $id): Decision
    {
        return $this->decide(Verb::Renew, $key, 1, null, $id);
    }

    /**
     * Returns the attributes of a request that form the key (`key` of the policy); null if they are unknown.
     *
     * @return list<string>|null
     */
    public function keyAttributes(): ?array
    {
        return $this->limit === null ? $this->decider->keyOf($this->name) : null;
    }

    /** @throws SluicegateException */
    private function decide(Verb $verb, ?string $key, int $cost, ?int $maxWaitUs = null, ?string $id = null): Decision
    {
        if ($this->observer === null) {
            return $this->decided($verb, $key, $cost, $maxWaitUs, $id);
        }
        return $this->observer->watch($this->name, $verb->text(), fn (): Decision =>
            $this->decided($verb, $key, $cost, $maxWaitUs, $id));
    }

    private function decided(Verb $verb, ?string $key, int $cost, ?int $maxWaitUs, ?string $id): Decision
    {
        Ranges::key($key);
        Ranges::cost($cost);
        if ($id !== null) {
            Ranges::id($id);
        }
        $request = new KernelRequest($verb, $cost, $maxWaitUs, $id ?? '');
        return $this->decider->decide($this->name, $this->limit, $key ?? '', $request);
    }
}
