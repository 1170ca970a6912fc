<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Psr\Log\LoggerInterface;
use Sluicegate\Clock;
use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Kernel\Ask;
use Sluicegate\Limit;
use Sluicegate\Memory\Memory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policies;
use Sluicegate\Redis\Answer;
use Sluicegate\Redis\FailureKind;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\PermitId;
use Sluicegate\Redis\Question;
use Sluicegate\Redis\Store;
use Sluicegate\Redis\StoreFailure;
use Sluicegate\Verb;

/**
 * Decides in Redis, and by the host's share while Redis does not answer.
 */
final class DirectDecider implements Decider
{
    /** Questions of one decision where something is owed. */
    private const QUESTIONS_MAX = 4;

    /** Tries of a request in a queue. */
    private const TRIES_MAX = 64;

    private const DENY_RETRY_US = 1_000_000;
    private const SHED_RETRY_US = 100_000;

    /** How often debts of other keys are paid beside decisions. */
    private const PAY_EVERY_US = 100_000;

    /** After how long `close` tries again to pay what got no answer. */
    private const CLOSE_PAUSE_US = 10_000;

    /** Keys that a `close` pays that does not wait: some 10 ms. */
    private const CLOSE_MAX = 64;

    private readonly Overflow $reject;
    private readonly Breaker $breaker;
    private readonly Denials $denials;
    private readonly Known $known;
    private readonly Accounts $accounts;
    private readonly Share $share;

    public function __construct(
        private readonly Policies $policies,
        private readonly Store $store,
        private readonly Memory $memory,
        private readonly Clock $clock,
        private readonly Options $options,
        ?LoggerInterface $logger = null,
    ) {
        $this->reject = new Overflow(OverflowKind::Reject);
        $this->breaker = new Breaker($memory, $logger);
        $this->denials = new Denials($memory);
        $this->known = new Known($memory);
        $this->accounts = new Accounts($memory, $options->accountsMax);
        $this->share = new Share($this->accounts, $this->known);
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
        $ask = new Ask($verb, $cost, $maxWaitUs, $verb->namesPermit() ? PermitId::hash($id) : '');
        $budget = $this->budget($policy, $limit, $verb, $key);
        if (!$budget->rules->set->kernel()->supports($verb)) {
            throw InvalidRequest::unsupportedVerb($verb->text(), $policy);
        }
        if ($verb === Verb::Check && $budget->overflow->kind === OverflowKind::Queue) {
            $decision = $this->queue($budget, $ask, $policy, $limit, $key);
        } else {
            $decision = $this->overflown($budget, $verb, $this->ask($budget, $ask, $this->clock->nowUs()));
        }
        if ($decision->mode === Mode::Store) {
            $this->payOthers();
        }
        return $decision;
    }

    public function keyOf(string $policy): ?array
    {
        return $this->policies->get($policy)->key;
    }

    /**
     * Until `$seconds` have passed or all are paid, a payment without an answer is tried again, whatever the breaker
     * says. With 0, some keys are paid, and the first payment without an answer is the last.
     */
    public function close(float $seconds): void
    {
        $ends = hrtime(true) + (int) ($seconds * 1e9);
        $left = $this->accounts->waiting();
        if ($seconds <= 0) {
            $isOpen = $left > 0 && !$this->breaker->allows($this->clock->nowUs());
            for ($left = $isOpen ? 0 : min($left, self::CLOSE_MAX); $left > 0 && $this->payNext(); $left--) {
                continue;
            }
            return;
        }
        for (; $left > 0 && hrtime(true) < $ends; $left--) {
            if (!$this->payNext()) {
                usleep(self::CLOSE_PAUSE_US);
                $left = 1 + $this->accounts->waiting();
            }
        }
    }

    private function budget(string $policy, ?Limit $limit, Verb $verb, string $key): Budget
    {
        if ($limit !== null) {
            // No policy has a colon in its name, so a limit in code never shares the budget of a policy.
            return new Budget(
                $policy,
                Keys::state("limit:$policy", $key),
                $limit->sealed,
                $this->reject,
                $limit->onStoreFailure,
            );
        }
        $held = $this->policies->get($policy);
        $held->checkApp($this->options->app, $verb);
        return new Budget(
            $policy,
            Keys::state($policy, $key),
            $held->rulesOf($key, intdiv($this->clock->nowUs(), 1000)),
            $held->overflow,
            $held->onStoreFailure,
        );
    }

    /** The first of these that says something decides: failure.md, "The order". */
    private function ask(Budget $budget, Ask $ask, int $now): Decision
    {
        if ($ask->verb === Verb::Check && $refusal = $this->denials->find($budget, $ask->cost, $now)) {
            return $budget->decision($refusal, Mode::Remembered);
        }
        if ($ask->verb === Verb::Release || $ask->verb === Verb::Renew) {
            $decision = $this->share->onPermit($budget, $ask, $now);
            if ($decision !== null) {
                return $decision;
            }
        }
        if (!$this->breaker->allows($now)) {
            if ($ask->verb === Verb::Refund || $ask->verb === Verb::Reset) {
                $this->denials->forget($budget);
            }
            return $this->without($budget, $ask, $now, FailureKind::NoAnswer, 'the breaker is open', false);
        }
        try {
            $answer = $this->accounts->has($budget->stateKey)
                ? $this->payAndAsk($budget, $ask, $now)
                : $this->question($budget, $ask, $now);
        } catch (StoreFailure $e) {
            if ($e->kind === FailureKind::NoAnswer) {
                $this->breaker->failed($now);
            } else {
                $this->breaker->succeeded($now);
            }
            if ($ask->verb === Verb::Refund || $ask->verb === Verb::Reset) {
                $this->denials->forget($budget);
            }
            return $this->without($budget, $ask, $now, $e->kind, $e->getMessage(), $e->perhapsCharged);
        } catch (InvalidRequest $e) {
            $this->breaker->succeeded($now);
            throw $e;
        }
        $this->breaker->succeeded($now);
        if ($ask->verb === Verb::Check) {
            $this->denials->note($budget, $ask->cost, $now, $answer);
        } elseif ($ask->verb === Verb::Refund || $ask->verb === Verb::Reset) {
            $this->denials->forget($budget);
        }
        if ($this->options->hasShare) {
            $this->known->note($budget, $answer, $now);
        }
        return $budget->decision($answer, Mode::Store);
    }

    /** @param list<int> $debts */
    private function question(Budget $budget, Ask $ask, int $now, string $debtId = '', array $debts = []): Answer
    {
        $time = $this->policies->whoseTime();
        return $this->store->ask(new Question($budget->stateKey, $budget->rules, $ask, $time, $now, $debtId, $debts));
    }

    /** Redis charges what is owed for the key, and then decides. */
    private function payAndAsk(Budget $budget, Ask $ask, int $now): Answer
    {
        for ($question = 0; $question < self::QUESTIONS_MAX; $question++) {
            [$id, $debts, $isOlder] = $this->bill($budget, $now) ?? ['', [], false];
            // A bill that was perhaps charged goes alone, if more passed here since.
            $asked = $isOlder ? new Ask(Verb::Peek) : $ask;
            try {
                $answer = $this->question($budget, $asked, $now, $id, $debts);
            } catch (StoreFailure $e) {
                if (!$e->perhapsCharged) {
                    $this->dropBill($budget, $id, $now);
                }
                throw $e;
            }
            $owes = $this->paid($budget, $id, $answer, $now);
            if (!$isOlder && !($owes && $answer->outcome->allowed && $ask->verb->value <= Verb::AtMost->value)) {
                return $answer;
            }
        }
        throw new StoreFailure(FailureKind::Contended, true, 'more was owed than Redis was told');
    }

    /** @return array{string, list<int>, bool}|null the id of the bill, its permits, and whether more passed since */
    private function bill(Budget $budget, int $now): ?array
    {
        return $this->accounts->with(
            $budget->stateKey,
            $now,
            static function (?Account $account) use ($budget, $now): array {
                $account = $account?->under($budget, $now);
                $isSent = $account?->bill !== null;
                $id = $account?->bill($now);
                if ($account === null || $id === null || $account->bill === null) {
                    return [$account, null];
                }
                $more = max(array_map(
                    static fn (int $owed, int $billed): int => $owed - $billed,
                    $account->owed($now),
                    $account->bill[1],
                ));
                return [$account, [$id, $account->bill[1], $isSent && $more > 0]];
            },
        );
    }

    /** Notes that Redis charged a bill; gives whether the key still owes. */
    private function paid(Budget $budget, string $id, Answer $answer, int $now): bool
    {
        return (bool) $this->accounts->with(
            $budget->stateKey,
            $now,
            static function (?Account $account) use ($budget, $id, $answer, $now): array {
                $account = $account?->under($budget, $now);
                if ($account === null) {
                    return [null, false];
                }
                $account->paid($id, $answer->charged, $now);
                $account->raise($answer->inUse, $now);
                return [$account, max($account->owed($now)) > 0];
            },
        );
    }

    private function dropBill(Budget $budget, string $id, int $now): void
    {
        $this->accounts->with($budget->stateKey, $now, static function (?Account $account) use ($id): array {
            if ($account !== null && ($account->bill[0] ?? null) === $id) {
                $account->bill = null;
            }
            return [$account, true];
        });
    }

    /** Pays debts of keys that nobody asks for, a few beside decisions. */
    private function payOthers(): void
    {
        if ($this->accounts->waiting() <= 0) {
            return;
        }
        $now = $this->clock->nowUs();
        $last = (int) $this->memory->get('paid');
        if ($now >= $last && $now < $last + self::PAY_EVERY_US) {
            return;
        }
        $this->memory->set('paid', $now, 60);
        $count = min($this->accounts->waiting(), $this->options->payMax);
        for (; $count > 0 && $this->payNext(); $count--) {
            continue;
        }
    }

    /** Pays the debt of the account that waits longest, if it owes; false if that got no answer. */
    private function payNext(): bool
    {
        $key = $this->accounts->next();
        if ($key === null) {
            return true;
        }
        $now = $this->clock->nowUs();
        $budget = $this->accounts->with($key, $now, static function (?Account $account) use ($now): array {
            if ($account !== null) {
                $account->isQueued = false;
            }
            return [$account, $account?->owes($now) ? $account->budget : null];
        });
        if (!$budget instanceof Budget || !$this->accounts->has($key)) {
            return true;
        }
        try {
            $this->payAndAsk($budget, new Ask(Verb::Peek), $now);
            $this->breaker->succeeded($now);
        } catch (StoreFailure $e) {
            if ($e->kind === FailureKind::NoAnswer) {
                $this->breaker->failed($now);
            }
            return $e->kind === FailureKind::ThisKey;
        }
        return true;
    }

    /** What is decided without Redis: failure.md, "Without Redis". */
    private function without(
        Budget $budget,
        Ask $ask,
        int $now,
        FailureKind $kind,
        string $cause,
        bool $perhapsCharged,
    ): Decision {
        if ($ask->verb->isForStoreOnly()) {
            throw new StoreUnavailable($cause, $perhapsCharged);
        }
        if ($kind === FailureKind::Contended) {
            return $budget->unknown(Mode::Shed, 0, self::SHED_RETRY_US);
        }
        $decides = $budget->onStoreFailure;
        if ($decides === OnStoreFailure::Allow) {
            if ($ask->verb->value <= Verb::AtMost->value && $this->options->hasShare) {
                $this->share->note($budget, $ask->cost, $now);
            }
            return $budget->unknown(Mode::Allow, $ask->cost, 0);
        }
        if ($decides === OnStoreFailure::Local && $kind === FailureKind::NoAnswer && $this->options->hasShare) {
            return $this->share->decide($budget, $ask, $now, $this->options->nodes ?? $this->policies->nodes() ?? 1);
        }
        return $budget->unknown(Mode::Deny, 0, self::DENY_RETRY_US);
    }

    /** What the policy makes of a request over the limit. */
    private function overflown(Budget $budget, Verb $verb, Decision $decision): Decision
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

    /** Holds a check back until it passes, for the policy's `max_wait` at most. It holds this process, too. */
    private function queue(Budget $budget, Ask $ask, string $policy, ?Limit $limit, string $key): Decision
    {
        $held = 0;
        for ($try = 1;; $try++) {
            $left = max(min($budget->overflow->maxWaitUs, $this->options->maxHoldUs) - $held, 0);
            $reserve = new Ask(Verb::Reserve, $ask->cost, $left);
            $decision = $this->ask($budget, $reserve, $this->clock->nowUs());
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
                $budget = $this->budget($policy, $limit, Verb::Check, $key);
            } catch (\Sluicegate\Exception\SluicegateException) {
                return $decision->held($held);
            }
            if ($budget->overflow->kind !== OverflowKind::Queue) {
                $last = $this->ask($budget, $ask, $this->clock->nowUs());
                return $this->overflown($budget, Verb::Check, $last)->held($held);
            }
        }
    }
}
