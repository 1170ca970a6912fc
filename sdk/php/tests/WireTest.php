<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Decision;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Refusal;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\Reply;
use Sluicegate\Redis\Request;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Redis\TimeSource;
use Sluicegate\Rules\Fnv;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Tests\Support\Vectors;
use Sluicegate\Verb;

/**
 * The bytes and texts of `spec/wire`.
 */
final class WireTest extends TestCase
{
    public function testKeys(): void
    {
        foreach (self::entries('keys') as $entry) {
            if (isset($entry->state_key)) {
                $key = (string) hex2bin($entry->key_hex);
                self::assertSame($entry->state_key, Keys::state($entry->policy, $key));
            } elseif (isset($entry->rules_key)) {
                $generation = (string) hex2bin($entry->generation);
                self::assertSame($entry->rules_key, Keys::rules($entry->policy, $generation));
            } else {
                self::assertSame($entry->permit_hex, bin2hex(Fnv::hash128($entry->permit_id)));
            }
        }
    }

    public function testRequests(): void
    {
        foreach (self::entries('requests') as $entry) {
            $verb = Vectors::verb($entry->verb);
            $wait = $verb === Verb::Reserve ? $entry->max_wait_us ?? KernelRequest::MAX_WAIT_US : null;
            $kernelRequest = new KernelRequest($verb, $entry->cost ?? 1, $wait, $entry->id ?? '');
            $before = match ($entry->before) {
                'unsaid' => '',
                'lost' => "\2",
                default => "\1" . hex2bin($entry->before->blob_hex),
            };
            $time = ['server' => TimeSource::Server, 'given' => TimeSource::Given, 'client' => TimeSource::Caller];
            $request = Request::encode($kernelRequest, $time[$entry->clock], $entry->at_us, $entry->windows, $before);
            self::assertSame($entry->request_hex, bin2hex($request), self::json($entry));
        }
    }

    public function testReplies(): void
    {
        $sets = [];
        foreach (self::entries('replies') as $entry) {
            $set = $sets[$entry->policy] ??= self::rules(Vectors::record($entry->policy));
            $isSupported = $set->kernel()->supports(Vectors::verb($entry->verb));
            $bytes = (string) hex2bin($entry->reply_hex);
            $reply = Reply::decode($bytes, count($set->rules), isSupported: $isSupported);
            $about = self::json($entry);
            if ($entry->means === 'foreign') {
                self::assertNull($reply, $about);
                continue;
            }
            self::assertNotNull($reply, $about);
            if ($reply->outcome === null) {
                self::assertFalse(isset($entry->means->allowed), $about);
                continue;
            }
            $rule = $set->rules[$reply->outcome->place];
            $means = (array) $entry->means;
            if (isset($means['in_use'])) {
                $means['in_use'] = (array) $means['in_use'];
            }
            $names = array_column($set->rules, 'name');
            self::assertEquals($means, [
                'in_use' => array_combine($names, $reply->inUse($set)),
                'allowed' => $reply->outcome->allowed,
                'granted' => $reply->outcome->granted,
                'wait_us' => $reply->outcome->waitUs,
                'limit' => $rule->limit,
                'remaining' => $reply->outcome->remaining,
                'retry_after_us' => $reply->outcome->retryAfterUs,
                'reset_after_us' => $reply->outcome->resetAfterUs,
                'rule' => $rule->name,
            ], $about);
        }
    }

    public function testCalendars(): void
    {
        foreach (self::entries('calendars') as $entry) {
            $window = (new Calendar($entry->unit, $entry->zone))->windowAround($entry->now_us);
            self::assertSame([$entry->start_us, $entry->end_us], $window, self::json($entry));
        }
    }

    public function testKeysOfAttributes(): void
    {
        foreach (self::entries('attribute-keys') as $entry) {
            $request = (array) $entry->request;
            $headers = array_change_key_case((array) $entry->request->headers);
            $values = array_map(static fn (string $attribute): string => str_starts_with($attribute, 'header:')
                ? $headers[substr($attribute, 7)] ?? ''
                : $request[$attribute] ?? '', $entry->key);
            self::assertSame($entry->made, (string) Key::joined($values), self::json($entry));
        }
    }

    public function testHeaders(): void
    {
        foreach (self::entries('headers') as $entry) {
            $d = $entry->decision;
            $outcome = new Outcome(
                $d->allowed,
                0,
                $d->granted,
                $d->wait_us,
                $d->retry_after_us,
                $d->remaining,
                $d->reset_after_us,
            );
            $quotas = self::rules($entry->record)->quotas;
            $decision = new Decision($outcome, $d->limit, 'p', $d->rule, quotas: $quotas);
            $headers = Headers::of($decision);
            self::assertSame(
                [$entry->{'ratelimit-policy'}, $entry->ratelimit, $entry->{'retry-after'}],
                [$headers['RateLimit-Policy'], $headers['RateLimit'], $headers['Retry-After'] ?? null],
                self::json($entry),
            );
            if ($entry->problem !== null) {
                self::assertEquals($entry->problem, json_decode(Refusal::of($decision)->body), self::json($entry));
            }
        }
    }

    public function testLimitsThatCallersBringAlong(): void
    {
        foreach (Vectors::wire('limits.json') as $entry) {
            ['rules' => $rules, 'carry' => $carry] = $entry['document'];
            $json = self::json($rules);
            $sealed = Limit::rules($rules, $carry)->sealed;
            $read = SealedRules::atBeginOf($sealed->head . "\0\1\2");
            self::assertSame($entry['blob_hex'], bin2hex($read->blob ?? ''), $json);
            self::assertSame($entry['blob_hex'], bin2hex($sealed->blob), $json);
            self::assertSame($entry['head_hex'], bin2hex($sealed->head), $json);
        }
    }

    /** @return list<\stdClass> */
    private static function entries(string $file): array
    {
        $text = (string) file_get_contents(Vectors::DIR . "/wire/$file.json");
        return json_decode($text, false, 64, JSON_THROW_ON_ERROR)->entries;
    }

    private static function json(mixed $value): string
    {
        return (string) json_encode($value, JSON_PRESERVE_ZERO_FRACTION | JSON_UNESCAPED_UNICODE);
    }

    private static function rules(string $record): RuleSet
    {
        return Policy::read('p', $record, 0)->rulesOf('', 0)->set;
    }
}
