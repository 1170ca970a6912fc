<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Limit;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Rules\Unreadable;
use Sluicegate\Verb;

/**
 * A published policy, as this host took it over.
 *
 * @internal
 */
final readonly class Policy
{
    /**
     * @param string $app the app that owns it; empty: none
     * @param list<string> $apps the apps that may use it; `*` is every app
     * @param array<string, string> $overrides by key, its own rules and their end in ms since 1970, serialized, since
     *   few are ever used
     * @param list<string> $key the attributes of a request that make its key
     */
    private function __construct(
        public Version $version,
        private string $app,
        private array $apps,
        private SealedRules $rules,
        private array $overrides,
        public Overflow $overflow,
        public OnStoreFailure $onStoreFailure,
        public array $key,
    ) {
    }

    /**
     * Reads a policy from its record.
     *
     * @param int $nowMs this host's clock, in ms since 1970
     * @param self|null $before the version that this host held until now
     * @throws Unreadable if it cannot be read
     */
    public static function read(string $name, string $json, int $nowMs, ?self $before = null): self
    {
        $record = Record::parse($json);
        $number = $record->wholeNumber('version', 0, PHP_INT_MAX);
        $takenOverMs = self::instant($record->sinceMs(), $number, $nowMs, $before?->version);
        return new self(
            new Version($number, $takenOverMs, hash('xxh128', $json)),
            $record->text('app'),
            $record->texts('apps'),
            SealedRules::ofPolicy($name, $record->rules(), $takenOverMs),
            array_map(serialize(...), $record->overrides()),
            $record->overflow(),
            $record->onStoreFailure(),
            $record->has('key') ? $record->texts('key') : [],
        );
    }

    /** A policy that is made in code, for all apps. */
    public static function ofLimit(string $name, Limit $limit): self
    {
        $rules = SealedRules::ofPolicy($name, $limit->rules, 0);
        $reject = new Overflow(OverflowKind::Reject);
        return new self(new Version(1, 0, ''), '', ['*'], $rules, [], $reject, $limit->onStoreFailure, []);
    }

    /**
     * Checks that an app may use a verb of this policy.
     *
     * @param string $app empty: the program has none
     * @throws InvalidRequest if it may not
     */
    public function checkApp(string $app, Verb $verb): void
    {
        $mayUse = $app !== '' && in_array($app, $this->apps, true);
        $everyone = in_array('*', $this->apps, true);
        $changes = $verb === Verb::Refund || $verb === Verb::Reset;
        $isOwner = $app !== '' && $app === $this->app;
        $may = $mayUse || ($changes ? $isOwner || ($everyone && $this->app === '') : $everyone);
        if (!$may) {
            throw InvalidRequest::notAvailable((string) $this->rules->policy, $app);
        }
    }

    /**
     * Returns the rules of a caller's key.
     *
     * @param int $nowMs in ms since 1970: from the end of an override on, the rules of the policy apply
     */
    public function rulesOf(string $key, int $nowMs): SealedRules
    {
        if ($key === '' || !isset($this->overrides[$key])) {
            return $this->rules;
        }
        [$set, $end] = unserialize($this->overrides[$key], ['allowed_classes' => true]);
        [$set, $since] = $end <= $nowMs
            ? [$this->rules->set, max($this->version->takenOverMs, $end)]
            : [$set, $this->version->takenOverMs];
        return SealedRules::ofPolicy((string) $this->rules->policy, $set, $since);
    }

    /**
     * Returns the instant from which a version decides, in ms since 1970: the same for all programs, if the record has
     * it. A version that is held keeps its instant: with an earlier one, its own states would look like those of a
     * later version.
     */
    private static function instant(?int $sinceMs, int $number, int $nowMs, ?Version $before): int
    {
        if ($before?->number === $number) {
            return $before->takenOverMs;
        }
        return max($sinceMs ?? $nowMs, ($before?->takenOverMs ?? -1) + 1);
    }
}
