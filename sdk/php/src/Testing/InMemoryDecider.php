<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Sluicegate\Clock;
use Sluicegate\Decision;
use Sluicegate\Direct\Budget;
use Sluicegate\Direct\PolicyDecider;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policy;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * Decides in this process, with the arithmetic of hosts that cannot reach Redis.
 *
 * @internal
 */
final class InMemoryDecider extends PolicyDecider
{
    /**
     * The most keys at a time: about 100 MB, more than a test needs. Beyond it a new key is refused (or passes under
     * `on_store_failure: allow`), as if Redis were full: removing another key would give it a full budget again.
     */
    public const KEYS_MAX = 100_000;

    /** The shortest time between two searches for keys with full budgets, when there is no room, in µs. */
    private const SWEEP_EVERY_US = 1_000_000;

    private const RETRY_US = 1_000_000;

    /** @var array<string, array{RuleSet, list<array<mixed>|null>}> */
    private array $states = [];
    private int $sweptAt = 0;

    /**
     * @param array<string, Policy> $policies by name
     * @param int $keysMax the most keys at a time
     */
    public function __construct(
        private readonly array $policies,
        Clock $clock,
        private readonly int $keysMax = self::KEYS_MAX,
    ) {
        parent::__construct($clock);
    }

    protected function policy(string $name, ?Verb $verb = null): Policy
    {
        return $this->policies[$name] ?? throw InvalidRequest::unknownPolicy($name);
    }

    /**
     * Decides, after an acquire has waited as at a server. Nobody releases a permit meanwhile, so only those come that
     * lapse.
     */
    protected function decideByRules(Budget $budget, KernelRequest $request, int $now): Decision
    {
        $decision = $this->decideNow($budget, $request, $now);
        $ofPolicy = $budget->overflow->kind === OverflowKind::Queue ? $budget->overflow->maxWaitUs : 0;
        $left = $request->verb === Verb::Acquire ? $request->maxWaitUs ?? $ofPolicy : 0;
        for ($held = 0; $left > 0 && !$decision->allowed && $decision->retryAfterUs !== null; $left -= $pause) {
            $pause = min($decision->retryAfterUs, $left);
            $this->clock->sleep($pause);
            $held += $pause;
            $decision = $this->decideNow($budget, $request, $this->clock->nowUs())->held($held);
        }
        return $decision;
    }

    private function decideNow(Budget $budget, KernelRequest $request, int $now): Decision
    {
        $set = $budget->rules->set;
        $kernel = $set->kernel();
        $isNew = !isset($this->states[$budget->stateKey]);
        [$before, $states] = $this->states[$budget->stateKey] ?? [$set, $kernel->fresh()];
        if ($before->bytes !== $set->bytes) {
            $states = $kernel->takeOver($before->kernel(), $states, $now);
        }
        [$outcome, $states] = $kernel->decide($states, $request, $now);
        $isFresh = $isNew && $states === $kernel->fresh();
        if ($isNew && !$isFresh && !$this->hasRoom($now)) {
            return $budget->onStoreFailure === OnStoreFailure::Allow
                ? $budget->unknown(Mode::Allow, $request->cost, 0)
                : $budget->unknown(Mode::Deny, 0, self::RETRY_US);
        }
        if (!$isFresh) {
            $this->states[$budget->stateKey] = [$set, $states];
        }
        return $budget->decision($outcome, $set->rules[$outcome->place]->limit, Mode::Store);
    }

    /** Returns whether there is room for another key; keys with full budgets make room. */
    private function hasRoom(int $now): bool
    {
        if (count($this->states) >= $this->keysMax && abs($now - $this->sweptAt) >= self::SWEEP_EVERY_US) {
            $this->sweptAt = $now;
            $this->states = array_filter($this->states, static function (array $kept) use ($now): bool {
                [$set, $states] = $kept;
                return !$set->kernel()->isFull($states, $now);
            });
        }
        return count($this->states) < $this->keysMax;
    }
}
