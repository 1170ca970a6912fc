<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Sluicegate\Clock;
use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\Ask;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\PermitId;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * Decides in this process, by the same arithmetic.
 */
final class InMemoryDecider implements Decider
{
    /**
     * Keys at a time: some 100 MB, and more than a test has. Beyond it a new key is refused (or passes under
     * `on_store_failure: allow`), as where Redis has no room for it: to forget another one would give its budget again.
     */
    public const KEYS_MAX = 100_000;

    /** How often keys whose budgets are full are looked for when there is no room, in µs. */
    private const SWEEP_EVERY_US = 1_000_000;

    private const RETRY_US = 1_000_000;

    /** @var array<string, array{RuleSet, list<array<mixed>|null>}> */
    private array $states = [];
    private int $sweptAt = 0;

    /**
     * @param array<string, Policy> $policies by name
     * @param int $keysMax keys at a time
     */
    public function __construct(
        private readonly array $policies,
        private readonly Clock $clock,
        private readonly int $keysMax = self::KEYS_MAX,
    ) {
    }

    public function decide(
        string $policy,
        ?Limit $limit,
        Verb $verb,
        string $key,
        int $cost,
        ?int $maxWaitUs,
        string $id,
    ): Decision {
        $held = $limit === null ? $this->held($policy) : null;
        $now = $this->clock->nowUs();
        $set = $limit?->rules ?? $held->rulesOf($key, intdiv($now, 1000))->set;
        $kernel = $set->kernel();
        if (!$kernel->supports($verb)) {
            throw InvalidRequest::unsupportedVerb($verb->text(), $policy);
        }
        $windows = $set->windowsAround($now);
        $at = ($limit === null ? 'policy:' : 'limit:') . "$policy:$key";
        $isNew = !isset($this->states[$at]);
        [$before, $states] = $this->states[$at] ?? [$set, $kernel->fresh()];
        if ($before->bytes !== $set->bytes) {
            $oldWindows = $before->windowsAround($now);
            $states = $kernel->takeOver($before->kernel(), $states, $now, $windows, $oldWindows);
        }
        $ask = new Ask($verb, $cost, $maxWaitUs, $verb->namesPermit() ? PermitId::hash($id) : '');
        [$outcome, $states] = $kernel->decide($states, $ask, $now, $windows);
        $mode = Mode::Store;
        if (!$isNew || ($states !== $kernel->fresh() && $this->hasRoom($now))) {
            $this->states[$at] = [$set, $states];
        } elseif ($states !== $kernel->fresh()) {
            $passes = ($limit?->onStoreFailure ?? $held->onStoreFailure) === OnStoreFailure::Allow;
            $mode = $passes ? Mode::Allow : Mode::Deny;
            $outcome = new Outcome($passes, 0, $passes ? $cost : 0, 0, $passes ? 0 : self::RETRY_US, 0, 0);
        }
        $rule = $set->rules[$outcome->place];
        $decision = new Decision($outcome, $rule->limit, $policy, $rule->name, $mode, quotas: $set->quotas);
        $overflow = $held?->overflow ?? new Overflow(OverflowKind::Reject);
        $overflows = !$decision->allowed && $overflow->covers($verb);
        return match ($overflows ? $overflow->kind : OverflowKind::Reject) {
            OverflowKind::Reject => $decision,
            OverflowKind::Queue => $verb === Verb::Check
                ? $this->queue($policy, $key, $cost, $decision, $overflow->maxWaitUs)
                : $decision,
            OverflowKind::Shadow => $decision->over($overflow, true),
            default => $decision->over($overflow, false),
        };
    }

    public function keyOf(string $policy): ?array
    {
        return $this->held($policy)->key;
    }

    public function close(float $seconds): void
    {
    }

    private function held(string $policy): Policy
    {
        return $this->policies[$policy] ?? throw InvalidRequest::unknownPolicy($policy);
    }

    /** Whether there is room for one key more; keys whose budgets are full make room. */
    private function hasRoom(int $now): bool
    {
        if (count($this->states) >= $this->keysMax && abs($now - $this->sweptAt) >= self::SWEEP_EVERY_US) {
            $this->sweptAt = $now;
            $this->states = array_filter($this->states, static function (array $kept) use ($now): bool {
                [$set, $states] = $kept;
                return !$set->kernel()->isFull($states, $now, $set->windowsAround($now));
            });
        }
        return count($this->states) < $this->keysMax;
    }

    private function queue(string $policy, string $key, int $cost, Decision $decision, int $maxWaitUs): Decision
    {
        $held = 0;
        while (!$decision->allowed) {
            $decision = $this->decide($policy, null, Verb::Reserve, $key, $cost, $maxWaitUs - $held, '');
            $pause = $decision->allowed ? $decision->waitUs : $decision->retryAfterUs;
            if ($pause === null || $pause > $maxWaitUs - $held) {
                return $decision->held($held);
            }
            $this->clock->sleep($pause);
            $held += $pause;
        }
        return $decision->held($held);
    }
}
