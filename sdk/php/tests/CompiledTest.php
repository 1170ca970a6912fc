<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Policy\Document;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Tests\Support\RandomRules;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * Documents come to the same rules here and in a server, to the byte.
 */
final class CompiledTest extends TestCase
{
    private const POLICIES = 600;

    public function testRandomDocumentsComeToTheRulesThatAServerPublishes(): void
    {
        RedisServer::require();
        Server::require();
        $seed = (int) (getenv('SEED') ?: random_int(1, 1_000_000));
        mt_srand($seed);
        $policies = [];
        for ($number = 0; $number < self::POLICIES; $number++) {
            $policies[] = self::policy("p$number");
        }
        $redis = RedisServer::shared();
        $server = new Server($policies, ['SLUICEGATE__STORE__PUBLISH' => 'files'], [
            '--store', Server::store($redis->port),
        ]);
        $client = $redis->client();
        Patience::until(static fn (): bool => $client->hExists('sg:{policies}', '#revision'), 'the server publishes');
        $compared = 0;
        foreach ($client->hGetAll('sg:{policies}') as $name => $json) {
            if (str_starts_with((string) $name, '#')) {
                continue;
            }
            $published = json_decode($json);
            $document = Document::parse((string) json_encode($published->document, JSON_PRESERVE_ZERO_FRACTION));
            $expected = [$published->compiled->rules, ...($published->compiled->overrides ?? [])];
            $overrides = $document->overrides;
            ksort($overrides, SORT_STRING);
            foreach ([$document->rules, ...array_values($overrides)] as $place => $set) {
                self::assertEquals(
                    self::of($expected[$place]),
                    self::ofSet($set),
                    "seed $seed: " . json_encode($published->document),
                );
                $compared++;
            }
        }
        unset($server);
        self::assertGreaterThanOrEqual(self::POLICIES, $compared, "seed $seed");
    }

    /** @return array<mixed> */
    private static function of(\stdClass $compiled): array
    {
        $each = array_map(static fn (\stdClass $rule): array => [
            $rule->name,
            $rule->limit,
            $rule->window_us ?? null,
            isset($rule->calendar) ? [$rule->calendar->unit, $rule->calendar->zone] : null,
        ], $compiled->each);
        $bytes = (string) base64_decode(strtr($compiled->blob, '-_', '+/'), true);
        return [bin2hex($bytes), $compiled->life_ms, $each];
    }

    /** @return array<mixed> */
    private static function ofSet(RuleSet $set): array
    {
        $each = [];
        foreach ($set->rules as $rule) {
            $calendar = $rule->calendar === null ? null : [$rule->calendar->unit, $rule->calendar->zone];
            $each[] = [$rule->name, $rule->limit, $rule->windowUs, $calendar];
        }
        return [bin2hex($set->bytes), $set->lifeMs, $each];
    }

    /** @return array<mixed> */
    private static function policy(string $name): array
    {
        $policy = ['name' => $name, 'rules' => RandomRules::rules()];
        if (mt_rand(0, 4) === 0) {
            $policy['overrides'] = [
                ['key' => 'é' . mt_rand(), 'rules' => RandomRules::rules()],
                ['key' => (string) mt_rand(), 'rules' => RandomRules::rules()],
            ];
        }
        if (mt_rand(0, 2) === 0) {
            $policy['carry'] = RandomRules::one(['usage', 'proportional', 'reset']);
        }
        return $policy;
    }
}
