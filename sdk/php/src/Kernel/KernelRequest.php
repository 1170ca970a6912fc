<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

use Sluicegate\Rules\Fnv;
use Sluicegate\Verb;

/**
 * A request about a key: a verb and its numbers, which are in their ranges.
 *
 * @internal
 */
final readonly class KernelRequest
{
    /** The longest wait that a reserve may name, in µs; it means any wait. */
    public const MAX_WAIT_US = 9007199254740991;

    /** The largest cost of a request. */
    public const COST_MAX = 2147483648;

    /** The 16-byte hash of the permit's id; empty without an id. */
    public string $permit;

    /**
     * @param int $cost 1 to 2^31
     * @param int|null $maxWaitUs of a reserve, and of an acquire that waits, 0 to 2^53 - 1; else null
     * @param string $id of acquire, wait, leave, release and renew: the permit's id of 1 to 1,024 bytes; else empty
     * @param string $process of wait and leave: 8 bytes in whose name the request waits; else empty
     */
    public function __construct(
        public Verb $verb,
        public int $cost = 1,
        public ?int $maxWaitUs = null,
        public string $id = '',
        public string $process = '',
    ) {
        $this->permit = $id === '' ? '' : Fnv::hash128($id);
    }

    /** Returns the longest time that a server holds an acquire back, in ms; null if it has none of its own. */
    public function acquireWaitMs(): ?int
    {
        return $this->verb === Verb::Acquire && $this->maxWaitUs !== null ? intdiv($this->maxWaitUs, 1000) : null;
    }

    /** Returns this request with another cost. */
    public function withCost(int $cost): self
    {
        return new self($this->verb, $cost, $this->maxWaitUs, $this->id, $this->process);
    }

    /** Returns the request for the permit of this acquire, or for its ticket, in the name of a process. */
    public function as(Verb $verb, string $process): self
    {
        return new self($verb, $this->cost, null, $this->id, $process);
    }
}
