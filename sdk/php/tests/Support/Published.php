<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Redis;
use Sluicegate\Limit;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;

/**
 * Publishes policies in Redis as a server does.
 */
final class Published
{
    /**
     * @param array<string, mixed> ...$policies records with their `name`, as `record` and the fixture have them
     */
    public static function in(Redis $client, int $revision, array ...$policies): void
    {
        $fields = ['#format' => '1', '#revision' => (string) $revision, '#clock' => 'server'];
        foreach ($policies as $policy) {
            $fields[$policy['name']] = self::record($policy + ['version' => $revision]);
        }
        $client->del('sg:{policies}');
        $client->hMSet('sg:{policies}', $fields);
    }

    /**
     * The text of a record.
     *
     * @param array<string, mixed> $policy its members, or `rules` as `Limit::rules` takes them in place of `blob`,
     *   `life_ms` and `each`; the others have defaults
     */
    public static function record(array $policy): string
    {
        $rules = isset($policy['rules']) ? self::rules(Limit::rules($policy['rules'])->rules) : [];
        $members = array_diff_key($policy, ['name' => null, 'rules' => null]) + $rules + [
            'record' => 1, 'version' => 1, 'app' => '', 'apps' => ['*'], 'on_store_failure' => 'local',
            'overflow' => ['kind' => 'reject'], 'leases' => true,
        ];
        return json_encode($members, JSON_THROW_ON_ERROR);
    }

    /** @return array<string, mixed> what a record says of rules */
    public static function rules(RuleSet $set): array
    {
        $each = array_map(static fn (Rule $rule): array => array_filter([
            'name' => $rule->name,
            'limit' => $rule->limit,
            'window_us' => $rule->windowUs,
            'calendar' => $rule->calendar,
        ], static fn (mixed $value): bool => $value !== null), $set->rules);
        $blob = rtrim(strtr(base64_encode($set->bytes), '+/', '-_'), '=');
        return ['blob' => $blob, 'life_ms' => $set->lifeMs, 'each' => $each];
    }
}
