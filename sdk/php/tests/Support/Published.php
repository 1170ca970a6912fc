<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Redis;

/**
 * Publishes policies in Redis as a server does.
 */
final class Published
{
    /**
     * @param array<string, mixed> ...$policies documents; with `#state`, `#app`, `#version`, `#since_ms` beside them
     */
    public static function in(Redis $client, int $revision, array ...$policies): void
    {
        $fields = ['#format' => '1', '#revision' => (string) $revision, '#clock' => 'server'];
        foreach ($policies as $policy) {
            $about = [
                'version' => $policy['#version'] ?? $revision,
                'state' => $policy['#state'] ?? 'active',
                'app' => $policy['#app'] ?? '',
            ];
            if (array_key_exists('#since_ms', $policy)) {
                $about['since_ms'] = $policy['#since_ms'];
            }
            unset($policy['#version'], $policy['#state'], $policy['#app'], $policy['#since_ms']);
            $policy += ['apps' => ['*']];
            $fields[$policy['name']] = json_encode($about + ['document' => $policy], JSON_PRESERVE_ZERO_FRACTION);
        }
        $client->del('sg:{policies}');
        $client->hMSet('sg:{policies}', $fields);
    }
}
