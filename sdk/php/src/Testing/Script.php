<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use LogicException;
use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;

/**
 * A list of answers to the requests of a program under test, one after the other. No rules are needed.
 *
 *     $script = (new Script())->allow(10, 9)->refuse(1.5)->fail(new StoreUnavailable('gone', false));
 *     $gate = $script->gate();
 */
final class Script extends Decider
{
    /** @var list<array{bool, int, int, int|null}|SluicegateException> */
    private array $outcomes = [];

    /** Lets the next request pass with its full cost, and with so many permits left of a limit. */
    public function allow(int $limit, int $remaining): self
    {
        $this->outcomes[] = [true, $limit, $remaining, 0];
        return $this;
    }

    /** Refuses the next request, which may pass after so many seconds; null: never. */
    public function refuse(?float $retryAfterSeconds): self
    {
        $retry = $retryAfterSeconds === null ? null : max((int) round($retryAfterSeconds * 1_000_000), 0);
        $this->outcomes[] = [false, 0, 0, $retry];
        return $this;
    }

    /**
     * Leaves the next request without a decision. If an `acquire` with a random id is perhaps charged, up to two
     * releases take the outcomes that follow.
     */
    public function fail(SluicegateException $why): self
    {
        $this->outcomes[] = $why;
        return $this;
    }

    /** Returns the gate with these answers. A request beyond the last outcome throws a `LogicException`. */
    public function gate(): Gate
    {
        return Gate::of($this);
    }

    /** Returns the number of outcomes that no request has taken yet. */
    public function left(): int
    {
        return count($this->outcomes);
    }

    /** @internal */
    public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        $outcome = array_shift($this->outcomes)
            ?? throw new LogicException("no outcome is left for a {$request->verb->text()} of `$key` under `$policy`");
        if ($outcome instanceof SluicegateException) {
            throw $outcome;
        }
        [$allowed, $most, $remaining, $retryUs] = $outcome;
        $outcome = new Outcome($allowed, 0, $allowed ? $request->cost : 0, 0, $retryUs, $remaining, 0);
        return new Decision($outcome, $most, $policy, '');
    }
}
