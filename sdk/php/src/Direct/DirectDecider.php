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
use Sluicegate\Kernel\KernelRequest;
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
use Sluicegate\Redis\StoreRequest;
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
    /** The most requests to the store for one decision while its key owes permits. */
    private const STORE_REQUESTS_MAX = 4;

    private const DENY_RETRY_US = 1_000_000;
    private const SHED_RETRY_US = 100_000;

    /** The shortest time between two payments of other keys' debts beside decisions. */
    private const PAY_EVERY_US = 100_000;

    /**
     * The time after which a request that waits for a permit asks again. A free permit is nobody else's meanwhile, so
     * it is much shorter than the 3 s for which the ticket counts.
     */
    private const LOOK_EVERY_US = 100_000;

    /** The shortest retry of a request that waits no longer. */
    private const LOOK_MIN_US = 1000;

    /** The pause of `close` after a payment without an answer. */
    private const CLOSE_PAUSE_US = 10_000;

    /** The most keys that a `close` without waiting pays: about 10 ms. */
    private const CLOSE_MAX = 64;

    private readonly Breaker $breaker;
    private readonly Denials $denials;
    private readonly UsageCache $usage;
    private readonly Accounts $accounts;
    private readonly Share $share;
    private readonly Asked $asked;

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
        $this->usage = new UsageCache($memory);
        $this->accounts = new Accounts($memory, $options->accountsMax);
        $this->asked = new Asked($memory);
        $this->share = new Share($this->accounts, $this->usage, $this->asked);
    }

    public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        $decision = parent::decide($policy, $limit, $key, $request);
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
            : new Health(HealthStatus::Degraded, $address, SluicegateException::truncate($cause));
    }

    /** Has Redis decide a check of a limit that nothing else uses, and write; returns why it did not, null if it did. */
    private function trial(): ?string
    {
        $limit = Limit::tokenBucket('1000/s');
        $reject = new Overflow(OverflowKind::Reject);
        $budget = new Budget('', Keys::state('limit:', ''), $limit->sealed, $reject, $limit->onStoreFailure);
        try {
            $this->decideInStore($budget, new KernelRequest(Verb::Check), $this->clock->nowUs());
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
            $this->log?->warn("app:$name", "{$e->getMessage()}; requests get no decision", ends: true);
            throw $e;
        }
        $this->log?->recovered("app:$name", "policy `$name` is available to this program again");
        return $policy;
    }

    /** Decides by the first of these that applies: failure.md, "The order". */
    protected function decideByRules(Budget $budget, KernelRequest $request, int $now): Decision
    {
        if ($request->verb === Verb::Check && $refusal = $this->denials->find($budget, $request->cost, $now)) {
            return $budget->decision($refusal->outcome, $refusal->limit, Mode::Remembered);
        }
        if ($request->verb === Verb::Release || $request->verb === Verb::Renew) {
            $decision = $this->share->onPermit($budget, $request, $now);
            if ($decision !== null) {
                return $decision;
            }
        }
        $maxWaitUs = $request->verb === Verb::Acquire ? $this->maxWaitUs($budget, $request) : null;
        if ($maxWaitUs !== null) {
            return $this->acquire($budget, $request, $maxWaitUs);
        }
        try {
            return $this->ask($budget, $request, $request, $now);
        } finally {
            if ($request->verb === Verb::Refund || $request->verb === Verb::Reset) {
                $this->denials->forget($budget);
            }
        }
    }

    /**
     * Returns the longest time that an acquire waits; null: it does not.
     *
     * @throws InvalidRequest if it is to wait, and its rules have no queue
     */
    private function maxWaitUs(Budget $budget, KernelRequest $request): ?int
    {
        $hasQueue = $budget->rules->set->kernel()->supports(Verb::Wait);
        if ($request->maxWaitUs !== null) {
            return $hasQueue
                ? $request->maxWaitUs
                : throw InvalidRequest::unsupportedVerb(Verb::Wait->text(), $budget->policy);
        }
        return $hasQueue && $budget->overflow->kind === OverflowKind::Queue
            ? min($budget->overflow->maxWaitUs, $this->options->maxHoldUs)
            : null;
    }

    /**
     * Acquires a permit, and waits for it: redis.md, "Waiting for a permit". The request waits in the name of a process
     * of its own, so its ticket lapses if this process ends. Under `local` it waits for the share while Redis is away.
     */
    private function acquire(Budget $budget, KernelRequest $request, int $maxWaitUs): Decision
    {
        $process = random_bytes(8);
        $wait = $request->as(Verb::Wait, $process);
        $isUnsure = false;
        for ($held = 0;; $held += $pause) {
            $decision = $this->ask($budget, $wait, $request, $this->clock->nowUs())->held($held);
            $isQueued = $decision->allowed && $decision->granted === 0;
            $isHeld = $decision->mode === Mode::Store && $decision->retryAfterUs === null;
            if ($isHeld && $isUnsure) {
                // An earlier call without a reply got the permit.
                $renew = $request->as(Verb::Renew, '');
                return $this->ask($budget, $renew, $renew, $this->clock->nowUs())->held($held);
            }
            $isUnsure = $isUnsure || $decision->mode !== Mode::Store;
            $goesOn = $isQueued || !$decision->allowed && match ($decision->mode) {
                Mode::Local => $decision->retryAfterUs !== null,
                Mode::Shed, Mode::Deny => $held > 0,
                default => false,
            };
            $pause = min(self::LOOK_EVERY_US, $maxWaitUs - $held);
            if (!$goesOn || $pause <= 0) {
                break;
            }
            $this->clock->sleep($pause);
        }
        if (!$isQueued) {
            return $decision;
        }
        try {
            $this->decideInStore($budget, $request->as(Verb::Leave, $process), $this->clock->nowUs());
        } catch (StoreFailure) {
            // It lapses in 3 s.
        }
        return $decision->givenUp(self::LOOK_MIN_US);
    }

    /** Asks Redis for the answer to a request; without it, `$withoutRedis` is decided. */
    private function ask(Budget $budget, KernelRequest $request, KernelRequest $withoutRedis, int $now): Decision
    {
        try {
            $answer = $this->decideInRedis($budget, $request, $now);
            return $budget->decision($answer->outcome, $answer->limit, Mode::Store);
        } catch (StoreFailure $e) {
            return $this->decideWithoutRedis($budget, $withoutRedis, $now, $e);
        }
    }

    /**
     * Decides in Redis, after paying the debt of the key.
     *
     * @throws StoreFailure if Redis does not answer, or the breaker is open
     */
    private function decideInRedis(Budget $budget, KernelRequest $request, int $now): Answer
    {
        if (!$this->breaker->allows($now)) {
            throw new StoreFailure(FailureKind::NoAnswer, false, $this->breaker->failing()[0] ?? 'no answer');
        }
        $failure = null;
        // Until Redis has answered, the share counts these permits as ones that Redis may grant.
        $takes = $request->verb->value <= Verb::AtMost->value
            || in_array($request->verb, [Verb::Acquire, Verb::Wait], true);
        $asked = $takes && $this->options->hasShare ? $this->asked->ask($budget->stateKey, $request->cost) : null;
        try {
            $answer = $this->accounts->has($budget->stateKey)
                ? $this->decideWithDebt($budget, $request, $now)
                : $this->decideInStore($budget, $request, $now);
            if ($this->options->hasShare) {
                $this->learn($budget, $answer, $now);
            }
        } catch (StoreFailure $failure) {
            throw $failure;
        } finally {
            $asked === null ?: $this->asked->answered($asked, $request->cost);
            $this->countResult($failure, $now);
        }
        if ($request->verb === Verb::Check) {
            $this->denials->record($budget, $request->cost, $now, $answer);
        }
        return $answer;
    }

    /** Records what Redis reported, also in an account that was opened while the request was under way. */
    private function learn(Budget $budget, Answer $answer, int $now): void
    {
        $this->usage->record($budget, $answer, $now);
        if ($this->accounts->has($budget->stateKey)) {
            $raise = static fn (Account $account) => $account->raise($answer->inUse, $now);
            $this->accounts->with($budget, $now, $raise);
        }
    }

    /** Counts a decision for the breaker, and logs one that Redis did not make. */
    private function countResult(?StoreFailure $failure, int $now): void
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
        $cause = SluicegateException::truncate($failure->getMessage());
        $this->log?->warn('busy', "Redis at {$this->store->address()} $what: $cause", $failure->kind->name);
    }

    /** @param list<int> $debts */
    private function decideInStore(
        Budget $budget,
        KernelRequest $request,
        int $now,
        string $debtId = '',
        array $debts = [],
    ): Answer {
        $time = $this->policies->timeSource();
        return $this->store->decide(
            new StoreRequest($budget->stateKey, $budget->rules, $request, $time, $now, $debtId, $debts),
        );
    }

    /** Has Redis charge the debt of the key, and then decide. */
    private function decideWithDebt(Budget $budget, KernelRequest $request, int $now): Answer
    {
        for ($try = 0; $try < self::STORE_REQUESTS_MAX; $try++) {
            [$id, $debts, $isOlder] = $this->bill($budget, $now) ?? ['', [], false];
            // A bill that was perhaps charged is sent without the request, if more passed here since.
            $sent = $isOlder ? new KernelRequest(Verb::Peek) : $request;
            try {
                $answer = $this->decideInStore($budget, $sent, $now, $id, $debts);
            } catch (StoreFailure $e) {
                if (!$e->perhapsCharged) {
                    $this->dropBill($budget, $id, $now);
                }
                throw $e;
            }
            $owes = $this->paid($budget, $id, $answer, $now);
            if (!$isOlder && !($owes && $answer->outcome->allowed && $request->verb->value <= Verb::AtMost->value)) {
                return $answer;
            }
        }
        throw new StoreFailure(FailureKind::Contended, true, 'more was owed than was sent to Redis');
    }

    /**
     * @return array{string, list<int>, bool}|null the id of the bill, its permits, and whether more passed since; null
     *   if nothing is owed
     * @throws StoreFailure if another process has the account: without the bill, Redis would grant what is owed
     */
    private function bill(Budget $budget, int $now): ?array
    {
        $isRead = false;
        $bill = $this->accounts->with($budget, $now, static function (Account $account) use ($now, &$isRead): ?array {
            $isRead = true;
            $isSent = $account->bill !== null;
            $bill = $account->bill($now);
            if ($bill === null) {
                return null;
            }
            $more = static fn (int $owed, int $billed): int => $owed - $billed;
            $isOlder = $isSent && max(array_map($more, $account->owed($now), $bill[1])) > 0;
            return [$bill[0], $bill[1], $isOlder];
        });
        return $isRead || !$this->accounts->exists($budget->stateKey)
            ? $bill
            : throw new StoreFailure(FailureKind::Contended, false, 'another process has the account of the key');
    }

    /** Records that Redis charged a bill; returns whether the key still owes. */
    private function paid(Budget $budget, string $id, Answer $answer, int $now): bool
    {
        $paid = function (Account $account) use ($id, $answer, $now): bool {
            // Before the account is dropped, also after a payment: the next one begins with it.
            $this->usage->record($account->budget, $answer, $now);
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
            $this->decideWithDebt($budget, new KernelRequest(Verb::Peek), $now);
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
    private function decideWithoutRedis(
        Budget $budget,
        KernelRequest $request,
        int $now,
        StoreFailure $failure,
    ): Decision {
        if ($request->verb->isForStoreOnly()) {
            $message = "Redis at {$this->store->address()}: {$failure->getMessage()}";
            throw new StoreUnavailable($message, $failure->perhapsCharged, $failure);
        }
        if ($failure->kind === FailureKind::Contended || $failure->kind === FailureKind::Overloaded) {
            return $budget->unknown(Mode::Shed, 0, self::SHED_RETRY_US);
        }
        $hasShare = $this->options->hasShare;
        $mode = $budget->onStoreFailure;
        if ($mode === OnStoreFailure::Allow) {
            if ($request->verb->value <= Verb::AtMost->value && $hasShare) {
                $this->share->recordAdmitted($budget, $request->cost, $now);
            }
            return $budget->unknown(Mode::Allow, $request->cost, 0);
        }
        if ($mode === OnStoreFailure::Local && $failure->kind === FailureKind::NoAnswer && $hasShare) {
            $nodes = $this->options->nodes ?? $this->policies->nodes() ?? 1;
            return $this->share->decide($budget, $request, $now, $nodes);
        }
        return $budget->unknown(Mode::Deny, 0, self::DENY_RETRY_US);
    }
}
