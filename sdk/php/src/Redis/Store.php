<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Memory\Memory;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Rules\Unreadable;

/**
 * Decides in Redis. A call is sent again only if Redis refused it before it began.
 *
 * @internal
 */
final class Store
{
    /** The most calls of the script for one request; more mean that others convert the key between any two. */
    private const CALLS_MAX = 8;

    /** The most times that a call is sent again after NOSCRIPT or TRYAGAIN, which mean that it did not begin. */
    private const REPEATS_MAX = 3;

    /** The time after which rules that are in use are written again, in s. */
    private const ANNOUNCE_EVERY_S = 600;

    private const DAY_MS = 86_400_000;
    private const GRACE_MS = 1_200_000;

    /**
     * The deadline of requests right after a start, in µs: all workers compile and connect at once then, and the
     * machine is busy with that, not Redis.
     */
    private const COLD_DEADLINE_US = 500_000;

    /** The time after the start of a host for which that deadline applies, in ns. */
    private const COLD_NS = 5_000_000_000;

    /** The least lateness of this process by which it counts as busy itself, in ns: timers of PHP count ms. */
    private const LATE_MIN_NS = 5_000_000;

    /** The deadlines since the last reply to this host after which Redis is silent, however late this process is. */
    private const SILENT_DEADLINES = 10;

    /** The calls on end without a reply of this process from which Redis counts as silent for it. */
    private const SLOW_MAX = 3;

    /** The time for which a host remembers its last reply, in s. */
    private const REPLIED_S = 60;

    private int $beganNs = 0;
    private int $endsNs = 0;
    private bool $answered = false;

    /** The calls on end of this process that had no reply in time. */
    private int $slow = 0;

    /** The start of this host, in ns of `hrtime`; null: not known yet; 0: it does not count. */
    private ?int $startedNs = null;

    /**
     * @param int $deadlineUs the longest time of all calls of a request together
     * @param bool $startsCold whether the first seconds of the host have a longer deadline; its memory must outlive
     *   requests, or each request would be a start
     */
    public function __construct(
        private readonly Runner $runner,
        private readonly Memory $memory,
        private readonly int $deadlineUs,
        private readonly bool $startsCold = false,
    ) {
    }

    /** Returns the address of Redis, for errors and logs: without credentials, and without database 0. */
    public function address(): string
    {
        return (string) preg_replace('~(?::0)?/0$~D', '', $this->runner->endpoint());
    }

    /**
     * Returns the decision of Redis.
     *
     * @throws StoreFailure if Redis does not decide
     * @throws InvalidRequest if the rules do not support the verb
     */
    public function decide(StoreRequest $request): Answer
    {
        $this->begin();
        $this->announce($request);
        [$rules, $before] = [$request->rules, ''];
        for ($call = 0; $call < self::CALLS_MAX; $call++) {
            $reply = $this->call($request, $rules, $before);
            if ($reply->kind !== Reply::UNKNOWN_RULES) {
                return $this->answer($request, $rules, $reply);
            }
            [$rules, $before] = $this->rulesFor($request, $reply->text);
        }
        throw new StoreFailure(FailureKind::Contended, false, 'the rules of the key changed with every call');
    }

    /**
     * Runs a command beside decisions, with its own deadline.
     *
     * @param non-empty-list<string|int> $command
     * @throws StoreFailure if Redis does not answer
     */
    public function read(string $key, array $command): mixed
    {
        $this->begin();
        $reply = $this->run($key, $command);
        return $reply instanceof ErrorReply ? throw StoreFailure::of($reply) : $reply;
    }

    private function announce(StoreRequest $request): void
    {
        $key = $request->rules->key;
        if ($key === null) {
            return;
        }
        $last = $this->memory->get("announced:$key");
        $since = $last === null ? -1 : $request->nowUs - $last;
        if ($since >= 0 && $since < 1_000_000 * self::ANNOUNCE_EVERY_S) {
            return;
        }
        $this->memory->set("announced:$key", $request->nowUs, self::ANNOUNCE_EVERY_S);
        $set = $request->rules->set;
        $life = $set->lifeMs + self::GRACE_MS + ($request->time === TimeSource::Server ? 0 : self::DAY_MS);
        try {
            $reply = $this->run($key, ['SET', $key, $set->bytes, 'PX', min($life, RuleSet::LIFE_MAX_MS)]);
            if ($reply instanceof ErrorReply) {
                throw StoreFailure::of($reply);
            }
        } catch (StoreFailure $failure) {
            $this->memory->delete("announced:$key");
            // The rules are not the key's state: whatever happened to them, nothing was charged.
            $keeps = in_array($failure->kind, [FailureKind::ThisKey, FailureKind::Overloaded], true);
            $kind = $keeps ? $failure->kind : FailureKind::NoAnswer;
            throw new StoreFailure($kind, false, $failure->getMessage(), $failure, $failure->word);
        }
    }

    private function call(StoreRequest $request, SealedRules $rules, string $before): Reply
    {
        $windows = $this->windows($request, $rules->set);
        $count = count($rules->set->rules);
        $debts = $request->debts;
        if ($debts !== [] && $rules->set !== $request->rules->set) {
            // Where another version's rules decide, each of them is charged the most that any rule owes.
            $debts = array_fill(0, $count, max($debts));
        }
        $keys = $debts === []
            ? [1, $request->key]
            : [2, $request->key, Keys::debt($request->key, $request->debtId)];
        $encoded =
            Request::encode($request->kernelRequest, $request->time, $request->nowUs, $windows, $before, $debts);
        $command = ['EVALSHA', Script::SHA1, ...$keys, $rules->blob, $encoded];
        $bytes = $this->evaluate($request->key, $command);
        $isSupported = $rules->set->kernel()->supports($request->kernelRequest->verb);
        $reply = is_string($bytes) ? Reply::decode($bytes, $count, $debts !== [], $isSupported) : null;
        if ($reply === null) {
            $kind = is_string($bytes) ? FailureKind::ThisKey : FailureKind::NoAnswer;
            $word = is_string($bytes) ? '' : ConnectionFailure::NOT_REDIS;
            throw new StoreFailure($kind, !is_string($bytes), 'not a reply of the script', word: $word);
        }
        return $reply;
    }

    /** @param non-empty-list<string|int> $command */
    private function evaluate(string $key, array $command): mixed
    {
        for ($repeat = 0;; $repeat++) {
            $reply = $this->run($key, $command);
            if (!$reply instanceof ErrorReply) {
                return $reply;
            }
            $code = $repeat < self::REPEATS_MAX ? $reply->code() : '';
            if ($code === 'NOSCRIPT') {
                $this->run($key, ['SCRIPT', 'LOAD', Script::text()]);
            } elseif ($code === 'TRYAGAIN') {
                usleep(1000);
            } else {
                throw StoreFailure::of($reply);
            }
        }
    }

    private function answer(StoreRequest $request, SealedRules $rules, Reply $reply): Answer
    {
        if ($reply->kind === Reply::UNSUPPORTED) {
            throw InvalidRequest::unsupportedVerb(
                $request->kernelRequest->verb->text(),
                $request->rules->policy ?? 'limit',
            );
        }
        if ($reply->outcome === null) {
            throw new StoreFailure(FailureKind::ThisKey, false, "malformed $reply->text");
        }
        $own = $request->rules->set;
        $place = $reply->outcome->place;
        $limit = $rules->set->rules[$place]->limit;
        if ($rules->set === $own) {
            return new Answer($reply->outcome, $limit, $reply->inUse($own), $reply->charged);
        }
        // The report of another version's rule applies to the own rule of the same name.
        $places = array_flip(array_column($own->rules, 'nameHash'));
        $decided = $places[$rules->set->rules[$place]->nameHash] ?? 0;
        $inUse = [];
        $reported = $reply->inUse($rules->set);
        foreach ($reported as $later => $used) {
            $named = $places[$rules->set->rules[$later]->nameHash] ?? null;
            if ($named !== null) {
                $inUse[$named] = $used;
            }
        }
        if ($inUse === []) {
            $inUse = [$reported[$place]];
        }
        // Each own rule counts as charged the least that any of the deciding rules was charged.
        $charged = $reply->charged === [] ? [] : array_fill(0, count($own->rules), min($reply->charged));
        return new Answer($reply->outcome->at($decided), $limit, $inUse, $charged);
    }

    /**
     * Returns the rules of the next call, given the first bytes of the state.
     *
     * @return array{SealedRules, string} the rules to decide by, and the part of a request about the rules before them
     */
    private function rulesFor(StoreRequest $request, string $state): array
    {
        $own = $request->rules;
        if ($own->policy === null) {
            $writer = SealedRules::atBeginOf($state);
            return [$own, $writer === null ? "\2" : "\1" . $writer->blob];
        }
        $head = substr($state, 0, 11);
        $writer = strlen($head) === 11 ? $this->find($request, $own->policy, $head) : null;
        if ($writer === null) {
            return [$own, "\2"];
        }
        return self::isLater($head, $own->head) ? [$writer, ''] : [$own, "\1" . $writer->blob];
    }

    /** Finds the rules of a generation, in the memory of the host or at their key. */
    private function find(StoreRequest $request, string $policy, string $head): ?SealedRules
    {
        $generation = substr($head, 0, 6);
        $key = Keys::rules($policy, $generation);
        $bytes = $this->memory->get("rules:$key");
        if (!is_string($bytes)) {
            $bytes = $this->run($request->key, ['GET', $key]);
            if ($bytes instanceof ErrorReply) {
                throw StoreFailure::of($bytes);
            }
            if (is_string($bytes)) {
                $this->memory->set("rules:$key", $bytes, self::ANNOUNCE_EVERY_S);
            }
        }
        try {
            $set = is_string($bytes) ? RuleSet::read($bytes) : null;
        } catch (Unreadable) {
            return null;
        }
        return $set?->generation === $generation ? SealedRules::underHead($policy, $set, $head) : null;
    }

    private static function isLater(string $head, string $own): bool
    {
        $instant = strrev(substr($head, 6, 5)) <=> strrev(substr($own, 6, 5));
        return ($instant ?: strcmp(substr($head, 0, 6), substr($own, 0, 6))) > 0;
    }

    /**
     * Returns the calendar windows around now; later rules take those of the own rules with the same unit and zone.
     *
     * @return list<array{int, int}|null>
     */
    private function windows(StoreRequest $request, RuleSet $set): array
    {
        $own = $request->rules->set;
        if ($set === $own) {
            return $set->windowsAround($request->nowUs);
        }
        return array_map(static function (Rule $rule) use ($own, $request): ?array {
            if (!($rule->flags & Rule::HAS_CALENDAR)) {
                return null;
            }
            foreach ($own->rules as $ownRule) {
                $same = array_slice($ownRule->numbers, 3) === array_slice($rule->numbers, 3);
                if ($ownRule->calendar instanceof Calendar && $same) {
                    return $ownRule->calendar->windowAround($request->nowUs);
                }
            }
            throw new StoreFailure(FailureKind::ThisKey, false, 'later rules have another calendar');
        }, $set->rules);
    }

    /** Begins a request: its calls end together. */
    private function begin(): void
    {
        $this->beganNs = hrtime(true);
        $this->startedNs ??= $this->startsCold ? $this->start() : 0;
        $isCold = $this->startedNs > 0 && $this->beganNs < $this->startedNs + self::COLD_NS;
        $deadlineUs = $isCold ? max($this->deadlineUs, self::COLD_DEADLINE_US) : $this->deadlineUs;
        $this->endsNs = $this->beganNs + 1000 * $deadlineUs;
        $this->answered = false;
    }

    /** Returns the instant of the first request of this host, in ns of `hrtime`. */
    private function start(): int
    {
        return $this->memory->add('started', $this->beganNs, 0)
            ? $this->beganNs
            : (int) ($this->memory->get('started') ?? $this->beganNs);
    }

    /** @param non-empty-list<string|int> $command */
    private function run(string $key, array $command): mixed
    {
        $now = hrtime(true);
        $leftUs = intdiv($this->endsNs - $now, 1000);
        if ($leftUs <= 0) {
            throw new StoreFailure($this->failureKind($now), false, 'the deadline has passed');
        }
        try {
            $reply = $this->runner->run($key, $command, $leftUs);
        } catch (ConnectionFailure $e) {
            throw new StoreFailure($this->failureKind($now), $e->sent, $e->getMessage(), $e, $e->word);
        }
        $this->answered = true;
        $this->slow = 0;
        $this->memory->set($this->replied(), hrtime(true), self::REPLIED_S);
        return $reply;
    }

    /** Returns the key of the last reply to this host: of the server that got the last command, since others are not it. */
    private function replied(): string
    {
        return 'replied' . ($this->runner instanceof Nodes ? ':' . $this->runner->lastNode() : '');
    }

    /**
     * Returns the kind of a call without a reply: failure.md, "Silent or busy". A connection that fails before the time
     * is over is no answer. Else it is contended if Redis answered another call of the request. It is overloaded if
     * another process of the host got a reply since this call began; or if this process itself ran too late to see one,
     * and the host got a reply of Redis lately.
     *
     * @param int $since the begin of the call, in ns of `hrtime`
     */
    private function failureKind(int $since): FailureKind
    {
        $now = hrtime(true);
        if ($now < $this->endsNs - 1_000_000) {
            return FailureKind::NoAnswer;
        }
        if ($this->answered) {
            return FailureKind::Contended;
        }
        $deadlineNs = $this->endsNs - $this->beganNs;
        $repliedNs = (int) ($this->memory->get($this->replied()) ?? $this->startedNs);
        $othersGotReplies = ++$this->slow < self::SLOW_MAX && $repliedNs > $since;
        $isLate = $now - $this->endsNs > max(intdiv($deadlineNs, 4), self::LATE_MIN_NS)
            && $now - $repliedNs < self::SILENT_DEADLINES * $deadlineNs;
        return $othersGotReplies || $isLate ? FailureKind::Overloaded : FailureKind::NoAnswer;
    }
}
