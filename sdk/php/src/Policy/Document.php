<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\FallbackResponse;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * A policy as its document says it.
 */
final readonly class Document
{
    /** The longest document that is read, in bytes. */
    public const BYTES_MAX = 8_388_608;

    private const FIELDS = [
        'name', 'rules', 'apps', 'overrides', 'carry', 'overflow', 'on_store_failure', 'on_overload', 'on_key_quota',
        'leases', 'match', 'key',
    ];

    private const ATTRIBUTES = ['remote_ip', 'path', 'method', 'host', 'user_agent', 'status'];

    /**
     * @param string $name the policy's name
     * @param array<string, RuleSet> $overrides by the key that has rules of its own
     * @param array<string, int> $ends by key, when its own rules end, in ms since 1970; absent: never
     * @param list<string>|null $apps the apps that may use it; null if the document does not say
     * @param list<string> $key the attributes of a request that make its key
     */
    private function __construct(
        public string $name,
        public RuleSet $rules,
        public array $overrides,
        public array $ends,
        public ?array $apps,
        public Overflow $overflow,
        public OnStoreFailure $onStoreFailure,
        public array $key,
    ) {
    }

    /**
     * The document of a JSON text.
     *
     * @throws InvalidRequest if it cannot be read; the message has the path of what is wrong
     */
    public static function parse(string $json): self
    {
        if (strlen($json) > self::BYTES_MAX) {
            throw InvalidRequest::rules('the document is longer than ' . self::BYTES_MAX . ' bytes');
        }
        try {
            $value = json_decode($json, false, 17, JSON_THROW_ON_ERROR);
        } catch (\JsonException $e) {
            throw InvalidRequest::rules(lcfirst($e->getMessage()));
        }
        $document = self::read(new Node($value, ''), $json);
        $document->checkPermits(new Node($value, ''));
        return $document;
    }

    /** Rejects `overflow: queue` and `match` beside rules that hand out permits: an acquire never waits, a gateway only checks. */
    private function checkPermits(Node $node): void
    {
        $holds = static fn (RuleSet $rules): bool => $rules->kernel()->supports(Verb::Acquire);
        if (!array_filter([$this->rules, ...array_values($this->overrides)], $holds)) {
            return;
        }
        $fields = $node->fields(self::FIELDS);
        if ($this->overflow->kind === OverflowKind::Queue) {
            $wanted = 'expected `reject`, `degrade`, `divert` or `shadow`';
            $problem = '`queue` is not supported with a `concurrency` rule: acquire does not wait';
            throw $fields['overflow']->error("$problem; $wanted");
        }
        if (isset($fields['match'])) {
            $problem = 'not supported with a `concurrency` rule: gateways only check requests';
            throw $fields['match']->error($problem);
        }
    }

    /**
     * The document of a decoded value that a server has published, and perhaps took before `checkPermits()` was a rule.
     *
     * @param string $json the text from which it was decoded
     */
    public static function read(Node $node, string $json): self
    {
        // The only number that need not be whole: JSON takes `1e+1`, and documents do not.
        if (preg_match('/(?<!\\\\)"cold_factor"\s*:\s*-?[0-9.]+[eE]\+/', $json)) {
            throw $node->error('`cold_factor` has a `+`');
        }
        $fields = $node->fields(self::FIELDS);
        $need = static fn (string $name): Node => $fields[$name] ?? throw $node->missing($name);
        $name = $need('name')->name();
        $words = ['usage', 'proportional', 'reset'];
        $carry = isset($fields['carry']) ? $fields['carry']->word($words) : 'usage';
        $carry = Carry::from((int) array_search($carry, $words, true));
        $rules = RuleSet::of(RuleReader::rules($need('rules')), $carry);
        if (isset($fields['on_overload']) && $fields['on_overload']->value !== 'refuse') {
            $wait = $fields['on_overload']->fields(['wait']);
            ($wait['wait'] ?? throw $fields['on_overload']->missing('wait'))->duration(10_000_000);
        }
        if (isset($fields['on_key_quota'])) {
            $fields['on_key_quota']->word(['share', 'deny']);
        }
        if (isset($fields['match'])) {
            self::checkMatch($fields['match']);
        }
        $onStoreFailure = isset($fields['on_store_failure'])
            ? $fields['on_store_failure']->word(['local', 'allow', 'deny'])
            : 'local';
        [$overrides, $ends] = isset($fields['overrides']) ? self::overrides($fields['overrides'], $carry) : [[], []];
        $overflow = isset($fields['overflow'])
            ? self::overflow($fields['overflow'])
            : new Overflow(OverflowKind::Reject);
        if (isset($fields['leases'])) {
            Leases::check($fields['leases'], $rules, array_values($overrides), $overflow);
        }
        return new self(
            $name,
            $rules,
            $overrides,
            $ends,
            isset($fields['apps']) ? self::apps($fields['apps']) : null,
            $overflow,
            OnStoreFailure::from($onStoreFailure),
            isset($fields['key']) ? self::key($fields['key']) : [],
        );
    }

    /** The rules of a key at an instant in ms since 1970. */
    public function rulesOf(string $key, int $nowMs): RuleSet
    {
        return ($this->ends[$key] ?? PHP_INT_MAX) <= $nowMs ? $this->rules : $this->overrides[$key] ?? $this->rules;
    }

    /** @return array{array<string, RuleSet>, array<string, int>} */
    private static function overrides(Node $node, Carry $carry): array
    {
        $overrides = $ends = [];
        foreach ($node->items(0, 1000) as $item) {
            $fields = $item->fields(['key', 'until', 'rules']);
            $key = ($fields['key'] ?? throw $item->missing('key'))->text(1, 1024);
            if (isset($overrides[$key])) {
                throw $fields['key']->error('another override has the same key');
            }
            $rules = RuleReader::rules($fields['rules'] ?? throw $item->missing('rules'));
            $overrides[$key] = RuleSet::of($rules, $carry);
            if (isset($fields['until'])) {
                $ends[$key] = $fields['until']->instant();
            }
        }
        return [$overrides, $ends];
    }

    /** @return list<string> */
    private static function apps(Node $node): array
    {
        $apps = [];
        foreach ($node->items(1, 1000) as $item) {
            $app = $item->value === '*' ? '*' : $item->name();
            if (isset($apps[$app])) {
                throw $item->error("`$app` is there twice");
            }
            $apps[$app] = $app;
        }
        return array_map(strval(...), array_values($apps));
    }

    private static function overflow(Node $node): Overflow
    {
        if (is_string($node->value)) {
            return new Overflow(OverflowKind::from($node->word(['reject', 'shadow'])));
        }
        $fields = $node->fields(['queue', 'degrade', 'divert']);
        if (count($fields) !== 1) {
            throw $node->error('expected one of `queue`, `degrade`, `divert`');
        }
        $kind = OverflowKind::from((string) array_key_first($fields));
        $at = $fields[$kind->value];
        if ($kind === OverflowKind::Queue) {
            $wait = $at->fields(['max_wait'])['max_wait'] ?? throw $at->missing('max_wait');
            return new Overflow($kind, $wait->duration());
        }
        if ($kind === OverflowKind::Divert) {
            $target = $at->fields(['target'])['target'] ?? throw $at->missing('target');
            return new Overflow($kind, target: $target->plainText(1, 4096));
        }
        $what = $at->fields(['tag', 'response']);
        if (count($what) !== 1) {
            throw $at->error('expected `tag` or `response`');
        }
        return isset($what['tag'])
            ? new Overflow($kind, tag: $what['tag']->name())
            : new Overflow($kind, response: self::response($what['response']));
    }

    private static function response(Node $node): FallbackResponse
    {
        $fields = $node->fields(['status', 'body', 'headers']);
        $need = static fn (string $name): Node => $fields[$name] ?? throw $node->missing($name);
        $headers = [];
        if (isset($fields['headers'])) {
            $at = $fields['headers'];
            $given = $at->value instanceof \stdClass ? get_object_vars($at->value) : throw $at->error('no object');
            if (count($given) > 32) {
                throw $at->error('more than 32 fields');
            }
            foreach ($given as $name => $value) {
                $field = new Node($value, "$at->path.$name");
                $lower = strtolower((new Node((string) $name, $field->path))->token());
                if (isset($headers[$lower])) {
                    throw $field->error("`$lower` is there twice");
                }
                $text = $field->plainText(1, 4096);
                $headers[$lower] = preg_match('/[^\x20-\x7e]/', $text) ? throw $field->error('is not ASCII') : $text;
            }
        }
        return new FallbackResponse($need('status')->wholeNumber(200, 599), $headers, $need('body')->text(0, 65536));
    }

    private static function checkMatch(Node $node): void
    {
        $cases = is_array($node->value) && array_is_list($node->value) ? $node->items(1, 256) : [$node];
        foreach ($cases as $case) {
            $fields = $case->fields(['host', 'path', 'method', 'except']);
            self::checkConditions($case, $fields);
            foreach (isset($fields['except']) ? $fields['except']->items(1, 256) : [] as $except) {
                self::checkConditions($except, $except->fields(['host', 'path', 'method']));
            }
        }
    }

    /** @param array<string, Node> $fields */
    private static function checkConditions(Node $node, array $fields): void
    {
        if ($fields === []) {
            throw $node->error('expected at least one of `host`, `path` and `method`');
        }
        if (isset($fields['path'])) {
            $path = $fields['path']->fields(['exact', 'prefix', 'starts_with']);
            if (count($path) !== 1) {
                throw $fields['path']->error('expected exactly one of `exact`, `prefix` and `starts_with`');
            }
            $text = current($path)->plainText(1, 4096);
            if ($text[0] !== '/' || strpbrk($text, '?#') !== false) {
                throw current($path)->error('is not a path');
            }
        }
        $seen = [];
        foreach (isset($fields['host']) ? $fields['host']->items(1, 64) : [] as $item) {
            $host = $item->text(1, 253);
            if (!preg_match('/^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/D', $host) || isset($seen["h$host"])) {
                throw $item->error('is there twice, or is not a host in small letters');
            }
            $seen["h$host"] = true;
        }
        foreach (isset($fields['method']) ? $fields['method']->items(1, 40) : [] as $item) {
            $method = $item->token();
            if (preg_match('/[a-z]/', $method) || isset($seen["m$method"])) {
                throw $item->error('is there twice, or has small letters');
            }
            $seen["m$method"] = true;
        }
    }

    /** @return list<string> */
    private static function key(Node $node): array
    {
        $key = [];
        foreach ($node->items(1, 8) as $item) {
            $attribute = is_string($item->value) ? $item->value : '';
            if (str_starts_with($attribute, 'header:')) {
                $attribute = 'header:' . strtolower((new Node(substr($attribute, 7), $item->path))->token());
            } elseif (!in_array($attribute, self::ATTRIBUTES, true)) {
                throw $item->error('is not an attribute');
            }
            if (in_array($attribute, $key, true)) {
                throw $item->error("`$attribute` is there twice");
            }
            $key[] = $attribute;
        }
        return $key;
    }
}
