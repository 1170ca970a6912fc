<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

/**
 * The policies of `tests/data/policies.yaml`, as `sluicegate policies compile` writes them to `policies.json`.
 */
final class Fixture
{
    public static function text(): string
    {
        return (string) file_get_contents(dirname(__DIR__) . '/data/policies.json');
    }

    /**
     * The record of a policy, with its name.
     *
     * @param array<string, mixed> $changed members in place of those of the record
     * @return array<string, mixed>
     */
    public static function record(string $name, array $changed = []): array
    {
        $record = (array) json_decode(self::text(), false, 16, JSON_THROW_ON_ERROR)->$name;
        unset($record['version']);
        return ['name' => $name] + $changed + $record;
    }
}
