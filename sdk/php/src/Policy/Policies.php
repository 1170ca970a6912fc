<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Clock;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\Log;
use Sluicegate\Memory\Memory;
use Sluicegate\Ranges;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\Store;
use Sluicegate\Redis\StoreFailure;
use Sluicegate\Redis\TimeSource;
use Sluicegate\Rules\Unreadable;

/**
 * Follows the policies that are published in Redis: one process of a host reads them for all, every ten seconds.
 *
 * @internal
 * @phpstan-type Held array{revision: int|null, time: int, nodes: int|null, next: int, looked: int,
 *   earlier: bool, stamp: int, found: string, cause: string}
 */
final class Policies
{
    /** The format of what is published that this package reads. */
    private const FORMAT = '1';

    private const LOOK_EVERY_US = 10_000_000;

    /** The most that a look is earlier or later than that, so that hosts do not look at the same time, in µs. */
    private const JITTER_US = 1_000_000;

    /** The most policies that a host uses; as many as servers hold. */
    private const NAMES_MAX = 10_000;

    private const NONE = [
        'revision' => null, 'time' => 0, 'nodes' => null, 'next' => 0, 'looked' => 0,
        'earlier' => false, 'stamp' => 0, 'found' => '', 'cause' => '',
    ];

    /** Result of the last look: nothing yet; no answer; no policies; an unknown format; policies. */
    private const NEVER = '';
    private const AWAY = 'away';
    private const NOTHING = 'nothing';
    private const LATER_FORMAT = 'format';
    private const PUBLISHED = 'published';

    /** @var array<string, Policy> */
    private array $policies = [];
    private int $stamp = -1;

    /** @var Held|null the state that `get` has just read, for the same decision */
    private ?array $read = null;

    public function __construct(
        private readonly Store $store,
        private readonly Memory $memory,
        private readonly Clock $clock,
        private readonly ?Log $log = null,
    ) {
    }

    /**
     * Returns the policy of a name, as this host holds it.
     *
     * @throws InvalidRequest if it is not published
     * @throws UnreadablePolicy if its record is of a later version, or damaged and no earlier version is held
     * @throws NothingPublished if no policies are published in this Redis
     * @throws StoreUnavailable if nothing is held, and Redis does not answer
     */
    public function get(string $name): Policy
    {
        if (!Ranges::isName($name)) {
            // `#revision` and others are fields of the same hash.
            throw InvalidRequest::unknownPolicy($name);
        }
        $held = $this->held();
        $now = $this->clock->nowUs();
        $isDue = $now >= $held['next'] || $now < $held['looked'];
        if ($isDue && ($held['revision'] === null || $this->memory->add('looking', 1, 2))) {
            $this->use($name);
            $this->look();
            $this->memory->delete('looking');
            $held = $this->held();
        }
        if ($this->stamp !== $held['stamp']) {
            [$this->policies, $this->stamp] = [[], $held['stamp']];
        }
        $policy = $this->policies[$name] ?? null;
        if ($policy === null) {
            return $this->policies[$name] = $this->find($name);
        }
        $this->read = $held;
        return $policy;
    }

    /** Returns the clock by which servers decide. */
    public function timeSource(): TimeSource
    {
        [$held, $this->read] = [$this->read ?? $this->held(), null];
        return TimeSource::from($held['time']);
    }

    /** Returns the number of nodes that share limits without Redis; null if servers do not publish it. */
    public function nodes(): ?int
    {
        return $this->held()['nodes'];
    }

    /**
     * Reads the published policies, even if that is not due.
     *
     * @return bool whether Redis answered
     */
    public function look(): bool
    {
        $names = array_map(strval(...), array_keys($this->memory->get('names') ?? []));
        $now = $this->clock->nowUs();
        $held = $this->held();
        $held['looked'] = $now;
        $held['next'] = $now + self::LOOK_EVERY_US + random_int(-self::JITTER_US, self::JITTER_US);
        $fields = ['#format', '#revision', '#clock', '#nodes', ...$names];
        try {
            $values = $this->store->read(Keys::POLICIES, ['HMGET', Keys::POLICIES, ...$fields]);
        } catch (StoreFailure $e) {
            $cause = $e->what() . ': ' . SluicegateException::truncate($e->getMessage());
            [$held['found'], $held['cause']] = [self::AWAY, $cause];
            $this->logProblem($this->noAnswerText($held['cause']), $held, $e->word);
            $this->memory->set('policies', $held, 0);
            return false;
        }
        $found = is_array($values) ? array_combine($fields, $values) : [];
        $held = $this->after($held, $found, $names);
        $this->memory->set('policies', $held, 0);
        if ($held['found'] === self::PUBLISHED) {
            $this->log?->recovered('policies', "policies are read again from the Redis at {$this->store->address()}");
        }
        return true;
    }

    /**
     * Returns what is wrong with the policies after the last look; null if nothing is, or if none is needed.
     *
     * @param list<string> $required names of policies that must be there; others that this host uses may be gone
     * @return array{string, bool}|null the cause, and whether policies that are held decide nevertheless: one of those
     *   that are required, else any
     */
    public function problem(array $required): ?array
    {
        $held = $this->held();
        $used = array_map(strval(...), array_keys($this->memory->get('names') ?? []));
        [$causes, $decides] = [[], $used === [] && $required === []];
        foreach (array_unique([...$required, ...$used]) as $name) {
            $policy = $this->memory->get("policy:$name");
            $counts = $required === [] || in_array($name, $required, true);
            $decides = $decides || ($policy instanceof Policy && $counts);
            $damage = $policy instanceof Policy ? $this->memory->get("unreadable:$name") : null;
            if ($damage !== null) {
                $causes[] = (new UnreadablePolicy($name, $damage))->getMessage() . '; the version before decides';
            }
            if (is_string($policy) || ($policy === null && in_array($name, $required, true))) {
                $causes[] = $this->missing($name, $policy, $held)->getMessage();
            }
        }
        $ofAll = match ($held['found']) {
            self::NEVER, self::PUBLISHED => null,
            self::AWAY => $this->noAnswerText($held['cause']),
            self::NOTHING => $used === [] ? null : NothingPublished::text($this->store->address()),
            default => $this->laterFormat(),
        };
        $cause = $ofAll ?? $causes[0] ?? null;
        return $cause === null ? null : [$cause, $decides];
    }

    /** Adds a policy to those that this host uses. */
    public function use(string $name): void
    {
        $names = $this->memory->get('names') ?? [];
        if (!isset($names[$name]) && count($names) < self::NAMES_MAX) {
            $this->memory->set('names', $names + [$name => true], 0);
        }
    }

    /** @return Held */
    private function held(): array
    {
        return $this->memory->get('policies') ?? self::NONE;
    }

    private function find(string $name): Policy
    {
        // Each time: two processes that add names at once may overwrite each other's.
        $this->use($name);
        $policy = $this->memory->get("policy:$name");
        if ($policy === null && $this->memory->get("sought:$name") === null) {
            // Another process may be looking at this moment; its result is not here yet.
            $this->look();
            $policy = $this->memory->get("policy:$name");
            $policy !== null ?: $this->memory->set("sought:$name", 1, 1);
        }
        if ($policy instanceof Policy) {
            return $policy;
        }
        $reason = $this->missing($name, $policy, $this->held());
        if ($reason instanceof InvalidRequest) {
            // Clients do not see which policy it is.
            $where = "in the Redis at {$this->store->address()}";
            $text = "policy `$name` is not published $where; requests get no decision";
            $this->log?->warn("policy:$name", $text, ends: true);
        }
        throw $reason;
    }

    /**
     * Returns the reason why a policy is not held.
     *
     * @param mixed $kept what is held in its place: why its record cannot be read, or null
     * @param Held $held
     */
    private function missing(string $name, mixed $kept, array $held): SluicegateException
    {
        return match (true) {
            is_string($kept) => new UnreadablePolicy($name, $kept),
            $held['found'] === self::NOTHING => new NothingPublished($this->store->address()),
            $held['found'] === self::LATER_FORMAT => new UnreadablePolicy($name, $this->laterFormat()),
            $held['found'] === self::PUBLISHED => InvalidRequest::unknownPolicy($name),
            default => new StoreUnavailable(
                $this->noAnswerText($held['cause']) . ", and policy `$name` is not held",
                false,
            ),
        };
    }

    private function noAnswerText(string $cause): string
    {
        return "Redis at {$this->store->address()} " . ($cause === '' ? 'does not answer' : $cause);
    }

    private function laterFormat(): string
    {
        return "the policies in the Redis at {$this->store->address()} are of a later format than this program reads";
    }

    /**
     * Returns the state after a look.
     *
     * @param Held $held
     * @param list<string> $names
     * @return Held
     */
    private function after(array $held, array $found, array $names): array
    {
        $revision = self::decimal($found['#revision'] ?? null);
        if ($revision === null) {
            $held['found'] = self::NOTHING;
            if ($names !== []) {
                $this->logProblem(NothingPublished::text($this->store->address()), $held, 'nothing');
            }
            return $held;
        }
        if (($found['#format'] ?? null) !== self::FORMAT) {
            $held['found'] = self::LATER_FORMAT;
            $this->logProblem($this->laterFormat(), $held, 'format');
            return $held;
        }
        $held['found'] = self::PUBLISHED;
        $time = ($found['#clock'] ?? 'server') === 'client' ? TimeSource::Caller : TimeSource::Server;
        $held['time'] = $time->value;
        $held['nodes'] = self::decimal($found['#nodes'] ?? null) ?: null;
        if ($held['revision'] !== null && $revision < $held['revision'] && !$held['earlier']) {
            // A failover loses the last writes, and servers write them again within seconds.
            $held['earlier'] = true;
            return $held;
        }
        foreach ($names as $name) {
            $text = $found[$name] ?? null;
            if ($revision === $held['revision'] && $this->memory->get("policy:$name") !== null) {
                continue;
            }
            $this->takeOver($name, is_string($text) ? $text : null);
        }
        // Two processes that look at once make two stamps, so neither goes on with the policies that it read before.
        return ['revision' => $revision, 'earlier' => false, 'stamp' => random_int(0, PHP_INT_MAX)] + $held;
    }

    private function takeOver(string $name, ?string $text): void
    {
        if ($text === null) {
            $this->memory->delete("policy:$name");
            $this->memory->delete("unreadable:$name");
            return;
        }
        $before = $this->memory->get("policy:$name");
        $before = $before instanceof Policy ? $before : null;
        if ($before?->version->textHash === hash('xxh128', $text)) {
            $this->isGood($name);
            return;
        }
        try {
            $kept = Policy::read($name, $text, intdiv($this->clock->nowUs(), 1000), $before);
        } catch (Unreadable $e) {
            $error = new UnreadablePolicy($name, $e->getMessage());
            $isHeld = $before !== null && !$e->isLater;
            $where = ", as the Redis at {$this->store->address()} has it";
            $this->log?->warn("unreadable:$name", $error->getMessage() . $where . (
                $isHeld ? '; the version before decides' : '; requests under it get no decision'
            ), $isHeld ? 'held' : '', true);
            if ($isHeld) {
                $this->memory->set("unreadable:$name", $error->cause, 0);
                return;
            }
            $kept = $error->cause;
        }
        $this->memory->set("policy:$name", $kept, 0);
        if ($kept instanceof Policy) {
            $this->isGood($name);
        }
    }

    /** Ends what was wrong with a policy. */
    private function isGood(string $name): void
    {
        $this->memory->delete("unreadable:$name");
        $where = "in the Redis at {$this->store->address()}";
        $this->log?->recovered("policy:$name", "policy `$name` is published again $where");
        $this->log?->recovered("unreadable:$name", "policy `$name` can be read again $where");
    }

    /**
     * Logs a problem of all policies, and what decides meanwhile.
     *
     * @param Held $held
     * @param string $word the kind of problem
     */
    private function logProblem(string $what, array $held, string $word): void
    {
        $meanwhile = $held['revision'] === null
            ? 'none is held, so requests that need a policy get no decision'
            : 'policies that are held stay in force';
        $this->log?->warn('policies', "policies: $what; $meanwhile", $word, true);
    }

    private static function decimal(mixed $text): ?int
    {
        if (!is_string($text) || !preg_match('/^[0-9]{1,16}$/D', $text)) {
            return null;
        }
        $number = (int) $text;
        return $number <= 9007199254740991 ? $number : null;
    }
}
