<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Clock;
use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Limit;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\Keys;
use Sluicegate\Verb;

/**
 * A decider that holds policies itself: it finds the budget of a key, and applies the policy's overflow.
 *
 * @internal
 */
abstract class PolicyDecider extends Decider
{
    /** The most tries of a request in a queue. */
    private const TRIES_MAX = 64;

    private readonly Overflow $reject;

    /** @param int $maxHoldUs the longest time that a queue holds a request */
    protected function __construct(protected readonly Clock $clock, private readonly int $maxHoldUs = PHP_INT_MAX)
    {
        $this->reject = new Overflow(OverflowKind::Reject);
    }

    public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        $budget = $this->budget($policy, $limit, $key, $request->verb);
        if (!$budget->rules->set->kernel()->supports($request->verb)) {
            throw InvalidRequest::unsupportedVerb($request->verb->text(), $policy);
        }
        if ($request->verb === Verb::Check && $budget->overflow->kind === OverflowKind::Queue) {
            $again = fn (): Budget => $this->budget($policy, $limit, $key, $request->verb);
            return $this->queue($budget, $request, $again);
        }
        $decision = $this->decideByRules($budget, $request, $this->clock->nowUs());
        return self::withOverflow($budget, $request->verb, $decision);
    }

    public function keyOf(string $policy): ?array
    {
        return $this->policy($policy)->key;
    }

    /**
     * Returns the policy of a name.
     *
     * @param Verb|null $verb a verb that the program's app must be allowed to use; null: not checked
     * @throws SluicegateException if there is no such policy, or it cannot be used
     */
    abstract protected function policy(string $name, ?Verb $verb = null): Policy;

    /** Decides by the rules of a budget, without the policy's overflow. */
    abstract protected function decideByRules(Budget $budget, KernelRequest $request, int $now): Decision;

    private function budget(string $policy, ?Limit $limit, string $key, Verb $verb): Budget
    {
        if ($limit !== null) {
            // No policy has a colon in its name, so a limit in code never shares the budget of a policy.
            $stateKey = Keys::state("limit:$policy", $key);
            return new Budget($policy, $stateKey, $limit->sealed, $this->reject, $limit->onStoreFailure);
        }
        $held = $this->policy($policy, $verb);
        $rules = $held->rulesOf($key, intdiv($this->clock->nowUs(), 1000));
        return new Budget($policy, Keys::state($policy, $key), $rules, $held->overflow, $held->onStoreFailure);
    }

    /** Applies the policy's overflow to a request that its rules refused. */
    private static function withOverflow(Budget $budget, Verb $verb, Decision $decision): Decision
    {
        if ($decision->allowed || !$budget->overflow->covers($verb)) {
            return $decision;
        }
        return match ($budget->overflow->kind) {
            OverflowKind::Reject, OverflowKind::Queue => $decision,
            OverflowKind::Shadow => $decision->over($budget->overflow, true),
            default => $decision->over($budget->overflow, false),
        };
    }

    /**
     * Holds a check back until it passes, for the policy's `max_wait` at most. It blocks this process, too.
     *
     * @param callable(): Budget $again returns the budget under the policy of that moment
     */
    private function queue(Budget $budget, KernelRequest $request, callable $again): Decision
    {
        $held = 0;
        for ($try = 1;; $try++) {
            $left = max(min($budget->overflow->maxWaitUs, $this->maxHoldUs) - $held, 0);
            $reserve = new KernelRequest(Verb::Reserve, $request->cost, $left);
            $decision = $this->decideByRules($budget, $reserve, $this->clock->nowUs());
            $pause = $decision->allowed ? $decision->waitUs : $decision->retryAfterUs;
            if (!$decision->allowed && ($pause === null || $pause > $left || $try === self::TRIES_MAX)) {
                return $decision->held($held);
            }
            $this->clock->sleep((int) $pause);
            $held += (int) $pause;
            if ($decision->allowed) {
                return $decision->held($held);
            }
            try {
                $budget = $again();
            } catch (SluicegateException) {
                return $decision->held($held);
            }
            if ($budget->overflow->kind !== OverflowKind::Queue) {
                $last = $this->decideByRules($budget, $request, $this->clock->nowUs());
                return self::withOverflow($budget, Verb::Check, $last)->held($held);
            }
        }
    }
}
