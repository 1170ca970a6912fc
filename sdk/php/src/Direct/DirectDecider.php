<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Clock;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Health;
use Sluicegate\HealthStatus;
use Sluicegate\Kernel\Ask;
use Sluicegate\Limit;
use Sluicegate\Log;
use Sluicegate\Memory\Memory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policies;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\Answer;
use Sluicegate\Redis\FailureKind;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\Question;
use Sluicegate\Redis\Store;
use Sluicegate\Redis\StoreFailure;
use Sluicegate\Verb;

/**
 * Decides in Redis; while Redis does not answer, by `on_store_failure`.
 *
 * @internal
 */
final class DirectDecider extends PolicyDecider
{
    /** The most questions of one decision while its key owes permits. */
    private const QUESTIONS_MAX = 4;

    private const DENY_RETRY_US = 1_000_000;
    private const SHED_RETRY_US = 100_000;

    /** The shortest time between two payments of other keys' debts beside decisions. */
    private const PAY_EVERY_US = 100_000;

    /** The pause of `close` after a payment without an answer. */
    private const CLOSE_PAUSE_US = 10_000;

    /** The most keys that a `close` without waiting pays: about 10 ms. */
    private const CLOSE_MAX = 64;

    private readonly Breaker $breaker;
    private readonly Denials $denials;
    private readonly Known $known;
    private readonly Accounts $accounts;
    private readonly Share $share;

    public function __construct(
        private readonly Policies $policies,
        private readonly Store $store,
        private readonly Memory $memory,
        Clock $clock,
        private readonly Options $options,
        private readonly ?Log $log = null,
    ) {
        parent::__construct($clock, $options->maxHoldUs);
        $this->breaker = new Breaker($memory, $log, $store->address(), $options->hasShare
            ? 'on_store_failure of each policy decides, `local` by this host\'s share'
            : 'on_store_failure of each policy decides, `local` as `deny`, since requests share no memory');
        $this->denials = new Denials($memory);
        $this->known = new Known($memory);
        $this->accounts = new Accounts($memory, $options->accountsMax);
        $this->share = new Share($this->accounts, $this->known);
    }

    public function decide(string $policy, ?Limit $limit, string $key, Ask $ask): Decision
    {
        $decision = parent::decide($policy, $limit, $key, $ask);
        if ($decision->mode === Mode::Store) {
            $this->payOthers();
        }
        return $decision;
    }

    /**
     * Pays until `$seconds` have passed or all debts are paid; payments without an answer are tried again, even while
     * the breaker is open. With 0, some keys are paid, and the first payment without an answer is the last.
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

    public function require(array $policies): void
    {
        foreach ($policies as $name) {
            $this->policy($name, Verb::Check);
        }
    }

    public function warmUp(): void
    {
        $this->policies->look();
        $this->trial();
    }

    public function health(array $policies): Health
    {
        array_map($this->policies->use(...), $policies);
        $this->policies->look();
        $address = $this->store->address();
        $problem = $this->policies->problem(array_values($policies));
        if ($problem !== null) {
            return new Health($problem[1] ? HealthStatus::Degraded : HealthStatus::Down, $address, $problem[0]);
        }
        // Reading may work where deciding does not: without the rights, or while Redis is full.
        $cause = $this->trial();
        return $cause === null
            ? new Health(HealthStatus::Up, $address)
            : new Health(HealthStatus::Degraded, $address, SluicegateException::cut($cause));
    }

    /** Has Redis decide a check of a limit that nothing else uses, and write; returns why it did not, null if it did. */
    private function trial(): ?string
    {
        $limit = Limit::tokenBucket('1000/s');
        $reject = new Overflow(OverflowKind::Reject);
        $budget = new Budget('', Keys::state('limit:', ''), $limit->sealed, $reject, $limit->onStoreFailure);
        try {
            $this->question($budget, new Ask(Verb::Check), $this->clock->nowUs());
        } catch (StoreFailure $e) {
            return $e->getMessage();
        }
        return null;
    }

    protected function policy(string $name, ?Verb $verb = null): Policy
    {
        $policy = $this->policies->get($name);
        try {
            if ($verb !== null) {
                $policy->checkApp($this->options->app, $verb);
            }
        } catch (InvalidRequest $e) {
            // Clients do not see which policy and which app it is.
            $this->log?->trouble("app:$name", "{$e->getMessage()}; requests get no decision");
            throw $e;
        }
        return $policy;
    }

    /** Decides by the first of these that applies: failure.md, "The order". */
    protected function ask(Budget $budget, Ask $ask, int $now): Decision
    {
        if ($ask->verb === Verb::Check && $refusal = $this->denials->find($budget, $ask->cost, $now)) {
            return $budget->decision($refusal->outcome, $refusal->limit, Mode::Remembered);
        }
        if ($ask->verb === Verb::Release || $ask->verb === Verb::Renew) {
            $decision = $this->share->onPermit($budget, $ask, $now);
            if ($decision !== null) {
                return $decision;
            }
        }
        try {
            $answer = $this->answer($budget, $ask, $now);
            return $budget->decision($answer->outcome, $answer->limit, Mode::Store);
        } catch (StoreFailure $e) {
            return $this->without($budget, $ask, $now, $e);
        } finally {
            if ($ask->verb === Verb::Refund || $ask->verb === Verb::Reset) {
                $this->denials->forget($budget);
            }
        }
    }

    /**
     * Asks Redis, after paying the debt of the key.
     *
     * @throws StoreFailure if Redis does not answer, or the breaker is open
     */
    private function answer(Budget $budget, Ask $ask, int $now): Answer
    {
        if (!$this->breaker->allows($now)) {
            throw new StoreFailure(FailureKind::NoAnswer, false, $this->breaker->failing()[0] ?? 'no answer');
        }
        $failure = null;
        try {
            $answer = $this->accounts->has($budget->stateKey)
                ? $this->payAndAsk($budget, $ask, $now)
                : $this->question($budget, $ask, $now);
        } catch (StoreFailure $failure) {
            throw $failure;
        } finally {
            $this->count($failure, $now);
        }
        if ($ask->verb === Verb::Check) {
            $this->denials->note($budget, $ask->cost, $now, $answer);
        }
        if ($this->options->hasShare) {
            $this->known->note($budget, $answer, $now);
        }
        return $answer;
    }

    /** Counts a decision for the breaker, and logs one that Redis did not make. */
    private function count(?StoreFailure $failure, int $now): void
    {
        if ($failure === null) {
            $this->breaker->succeeded($now);
            return;
        }
        if ($failure->kind === FailureKind::NoAnswer) {
            $this->breaker->failed($now, $failure->getMessage(), $failure->word);
            return;
        }
        $this->breaker->succeeded($now);
        $what = $failure->kind === FailureKind::ThisKey
            ? 'cannot read a key; on_store_failure decides it, `local` as `deny`'
            : 'is busy; requests are shed';
        $cause = SluicegateException::cut($failure->getMessage());
        $this->log?->trouble('busy', "Redis at {$this->store->address()} $what: $cause", $failure->kind->name);
    }

    /** @param list<int> $debts */
    private function question(Budget $budget, Ask $ask, int $now, string $debtId = '', array $debts = []): Answer
    {
        $time = $this->policies->whoseTime();
        return $this->store->ask(new Question($budget->stateKey, $budget->rules, $ask, $time, $now, $debtId, $debts));
    }

    /** Has Redis charge the debt of the key, and then decide. */
    private function payAndAsk(Budget $budget, Ask $ask, int $now): Answer
    {
        for ($question = 0; $question < self::QUESTIONS_MAX; $question++) {
            [$id, $debts, $isOlder] = $this->bill($budget, $now) ?? ['', [], false];
            // A bill that was perhaps charged is sent without the request, if more passed here since.
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
        throw new StoreFailure(FailureKind::Contended, true, 'more was owed than was sent to Redis');
    }

    /** @return array{string, list<int>, bool}|null the id of the bill, its permits, and whether more passed since */
    private function bill(Budget $budget, int $now): ?array
    {
        return $this->accounts->with($budget, $now, static function (Account $account) use ($now): ?array {
            $isSent = $account->bill !== null;
            $bill = $account->bill($now);
            if ($bill === null) {
                return null;
            }
            $more = static fn (int $owed, int $billed): int => $owed - $billed;
            $isOlder = $isSent && max(array_map($more, $account->owed($now), $bill[1])) > 0;
            return [$bill[0], $bill[1], $isOlder];
        });
    }

    /** Notes that Redis charged a bill; returns whether the key still owes. */
    private function paid(Budget $budget, string $id, Answer $answer, int $now): bool
    {
        $paid = static function (Account $account) use ($id, $answer, $now): bool {
            $account->paid($id, $answer->charged, $now);
            $account->raise($answer->inUse, $now);
            return max($account->owed($now)) > 0;
        };
        return (bool) $this->accounts->with($budget, $now, $paid);
    }

    private function dropBill(Budget $budget, string $id, int $now): void
    {
        $this->accounts->with($budget, $now, static function (Account $account) use ($id): void {
            if (($account->bill[0] ?? null) === $id) {
                $account->bill = null;
            }
        });
    }

    /** Pays debts of other keys, a few beside decisions. */
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

    /** Pays the debt of the account that waits longest, if it owes; returns false if there was no answer in time. */
    private function payNext(): bool
    {
        $now = $this->clock->nowUs();
        $budget = $this->accounts->next($now);
        if ($budget === null) {
            return true;
        }
        try {
            $this->payAndAsk($budget, new Ask(Verb::Peek), $now);
            $this->breaker->succeeded($now);
        } catch (StoreFailure $e) {
            if ($e->kind === FailureKind::NoAnswer) {
                $this->breaker->failed($now, $e->getMessage(), $e->word);
            }
            return $e->kind === FailureKind::ThisKey;
        }
        return true;
    }

    /** Decides without Redis: failure.md, "Without Redis". */
    private function without(Budget $budget, Ask $ask, int $now, StoreFailure $failure): Decision
    {
        if ($ask->verb->isForStoreOnly()) {
            $why = "Redis at {$this->store->address()}: {$failure->getMessage()}";
            throw new StoreUnavailable($why, $failure->perhapsCharged, $failure);
        }
        if ($failure->kind === FailureKind::Contended || $failure->kind === FailureKind::Overloaded) {
            return $budget->unknown(Mode::Shed, 0, self::SHED_RETRY_US);
        }
        $hasShare = $this->options->hasShare;
        $decides = $budget->onStoreFailure;
        if ($decides === OnStoreFailure::Allow) {
            if ($ask->verb->value <= Verb::AtMost->value && $hasShare) {
                $this->share->note($budget, $ask->cost, $now);
            }
            return $budget->unknown(Mode::Allow, $ask->cost, 0);
        }
        if ($decides === OnStoreFailure::Local && $failure->kind === FailureKind::NoAnswer && $hasShare) {
            return $this->share->decide($budget, $ask, $now, $this->options->nodes ?? $this->policies->nodes() ?? 1);
        }
        return $budget->unknown(Mode::Deny, 0, self::DENY_RETRY_US);
    }
}
