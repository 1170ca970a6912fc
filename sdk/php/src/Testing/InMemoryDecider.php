<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Sluicegate\Clock;
use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\Ask;
use Sluicegate\Limit;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Document;
use Sluicegate\Redis\PermitId;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * Decides in this process, by the same arithmetic.
 */
final class InMemoryDecider implements Decider
{
    /** @var array<string, array{RuleSet, list<array<mixed>|null>}> */
    private array $states = [];

    /**
     * @param array<string, Document> $policies by name
     */
    public function __construct(private readonly array $policies, private readonly Clock $clock)
    {
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
        $document = $limit === null ? $this->document($policy) : null;
        $set = $limit?->rules ?? $document->overrides[$key] ?? $document->rules;
        $kernel = $set->kernel();
        if (!$kernel->supports($verb)) {
            throw InvalidRequest::unsupportedVerb($verb->text(), $policy);
        }
        $now = $this->clock->nowUs();
        $windows = $set->windowsAround($now);
        $at = ($limit === null ? 'policy:' : 'limit:') . "$policy:$key";
        [$before, $states] = $this->states[$at] ?? [$set, $kernel->fresh()];
        if ($before->bytes !== $set->bytes) {
            $oldWindows = $before->windowsAround($now);
            $states = $kernel->takeOver($before->kernel(), $states, $now, $windows, $oldWindows);
        }
        $ask = new Ask($verb, $cost, $maxWaitUs, $verb->namesPermit() ? PermitId::hash($id) : '');
        [$outcome, $states] = $kernel->decide($states, $ask, $now, $windows);
        $this->states[$at] = [$set, $states];
        $rule = $set->rules[$outcome->place];
        $decision = new Decision(
            $outcome->allowed,
            $outcome->granted,
            $outcome->waitUs,
            $rule->limit,
            $outcome->remaining,
            $outcome->retryAfterUs,
            $outcome->resetAfterUs,
            $policy,
            $rule->name,
            quotas: $set->quotas,
        );
        $overflow = $document?->overflow ?? new Overflow(OverflowKind::Reject);
        $overflows = !$decision->allowed && ($verb === Verb::Check || $verb === Verb::Reserve);
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
        return $this->document($policy)->key;
    }

    public function close(float $seconds): void
    {
    }

    private function document(string $policy): Document
    {
        return $this->policies[$policy] ?? throw InvalidRequest::unknownPolicy($policy);
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
