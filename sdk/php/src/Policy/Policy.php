<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;
use stdClass;

/**
 * A policy that is published, as this host took it over.
 */
final readonly class Policy
{
    /** The latest instant that a server says: JSON has no later whole numbers that all languages read. */
    private const SINCE_MAX_MS = 9_007_199_254_740_991;

    /**
     * @param int $version grows with every change of the policy
     * @param string $app whose it is; empty: it has no owner
     * @param list<string> $apps the apps that may use it; `*` is every app
     * @param int $takenOverMs when a server took this version over, in ms since 1970; when this host did, if the
     *   server did not say it
     * @param array<string, string> $overrides by key, the rules of the key, serialized: few are ever used
     * @param array<string, int> $ends by key, when its own rules end, in ms since 1970; absent: never
     * @param string $textHash tells the text from which it was read from others
     * @param list<string> $key the attributes of a request that make its key
     */
    private function __construct(
        public string $name,
        public int $version,
        private string $app,
        private array $apps,
        public int $takenOverMs,
        private SealedRules $rules,
        private array $overrides,
        private array $ends,
        public Overflow $overflow,
        public OnStoreFailure $onStoreFailure,
        public array $key,
        public string $textHash,
    ) {
    }

    /**
     * The policy of a field of `sg:{policies}`.
     *
     * @param int $nowMs this host's clock, in ms since 1970
     * @param self|null $before the version that this host held until now
     * @throws UnreadablePolicy if it cannot be read
     */
    public static function read(string $name, string $json, int $nowMs, ?self $before = null): self
    {
        try {
            $value = strlen($json) > Document::BYTES_MAX ? null : json_decode($json, false, 20);
            $state = $value->state ?? null;
            $version = $value->version ?? null;
            if (!$value instanceof stdClass || !isset($value->document) || !is_int($version)) {
                throw InvalidRequest::rules('not a policy');
            }
            if (!in_array($state, ['active', 'shadow'], true)) {
                throw InvalidRequest::rules('state: is neither `active` nor `shadow`');
            }
            $document = Document::read(new Node($value->document, ''), $json);
            if ($document->name !== $name) {
                throw InvalidRequest::rules("name: `$document->name` is another policy");
            }
            $app = is_string($value->app ?? null) ? $value->app : '';
            [$rules, $overrides] = self::compiled($value->compiled ?? null, $document)
                ?? [$document->rules, $document->overrides];
            foreach ([$rules, ...array_values($overrides)] as $set) {
                if ($set->isTooCostly()) {
                    throw InvalidRequest::rules('one decision could take Redis longer than 0.3 ms');
                }
            }
        } catch (InvalidRequest $e) {
            throw new UnreadablePolicy($name, (string) preg_replace('/^rules: /', '', $e->getMessage()));
        }
        $takenOverMs = self::instant($value->since_ms ?? null, $version, $nowMs, $before);
        return new self(
            $name,
            $version,
            $app,
            $document->apps ?? [$app],
            $takenOverMs,
            SealedRules::ofPolicy($name, $rules, $takenOverMs),
            array_map(serialize(...), $overrides),
            $document->ends,
            $state === 'shadow' ? new Overflow(OverflowKind::Shadow) : $document->overflow,
            $document->onStoreFailure,
            $document->key,
            hash('xxh128', $json),
        );
    }

    /**
     * Does nothing if an app may ask this.
     *
     * @param string $app empty: the program says none
     * @throws InvalidRequest if it may not
     */
    public function checkApp(string $app, Verb $verb): void
    {
        $named = $app !== '' && (in_array($app, $this->apps, true) || $app === $this->app);
        $everyone = in_array('*', $this->apps, true);
        $changes = $verb === Verb::Refund || $verb === Verb::Reset;
        $may = $changes ? $named || ($everyone && $this->app === '') : $everyone || $this->mayUse($app);
        if (!$may) {
            throw InvalidRequest::notAvailable($this->name, $app);
        }
    }

    /**
     * The rules of a caller's key.
     *
     * @param int $nowMs in ms since 1970: an override may have ended, and the rules of the policy hold since then
     */
    public function rulesOf(string $key, int $nowMs): SealedRules
    {
        if ($key === '' || !isset($this->overrides[$key])) {
            return $this->rules;
        }
        $end = $this->ends[$key] ?? PHP_INT_MAX;
        if ($end <= $nowMs) {
            return SealedRules::ofPolicy($this->name, $this->rules->set, max($this->takenOverMs, $end));
        }
        $set = unserialize($this->overrides[$key], ['allowed_classes' => true]);
        assert($set instanceof RuleSet);
        return SealedRules::ofPolicy($this->name, $set, $this->takenOverMs);
    }

    /**
     * From when on a version decides: the same for all programs, if a server says when it took it over. A version that
     * is held keeps its instant: with an earlier one, its own states would look like those of a later version.
     */
    private static function instant(mixed $sinceMs, int $version, int $nowMs, ?self $before): int
    {
        if ($before?->version === $version) {
            return $before->takenOverMs;
        }
        $afterBefore = ($before?->takenOverMs ?? -1) + 1;
        if (!is_int($sinceMs) || $sinceMs < 0 || $sinceMs > self::SINCE_MAX_MS) {
            return max($nowMs, $afterBefore);
        }
        return max($sinceMs, $afterBefore);
    }

    private function mayUse(string $app): bool
    {
        return $app !== '' && in_array($app, $this->apps, true);
    }

    /**
     * The rules that came compiled; null if there are none of a format that is known.
     *
     * @return array{RuleSet, array<string, RuleSet>}|null
     */
    private static function compiled(mixed $compiled, Document $document): ?array
    {
        if (!$compiled instanceof stdClass || ($compiled->format ?? null) !== RuleSet::FORMAT) {
            return null;
        }
        $rules = self::compiledSet($compiled->rules ?? null);
        $overrides = [];
        foreach ((array) ($compiled->overrides ?? []) as $override) {
            $set = self::compiledSet($override);
            if ($set === null || !is_string($override->key ?? null)) {
                return null;
            }
            $overrides[$override->key] = $set;
        }
        $complete = array_diff_key($document->overrides, $overrides) === [];
        return $rules === null || !$complete ? null : [$rules, $overrides];
    }

    private static function compiledSet(mixed $value): ?RuleSet
    {
        $blob = is_string($value->blob ?? null) ? base64_decode(strtr($value->blob, '-_', '+/'), true) : false;
        if ($blob === false || !is_array($value->each ?? null) || !is_int($value->life_ms ?? null)) {
            return null;
        }
        $about = [];
        foreach ($value->each as $each) {
            $calendar = $each->calendar ?? null;
            if (!is_string($each->name ?? null) || !is_int($each->limit ?? null)) {
                return null;
            }
            $about[] = [
                'name' => $each->name,
                'limit' => $each->limit,
                'windowUs' => is_int($each->window_us ?? null) ? $each->window_us : null,
                'calendar' => $calendar === null ? null : new Calendar($calendar->unit, $calendar->zone),
            ];
        }
        return RuleSet::read($blob, $about, $value->life_ms);
    }
}
