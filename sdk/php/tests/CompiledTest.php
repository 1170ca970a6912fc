<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\RuleEncoder;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RandomRules;
use Sluicegate\Tests\Support\Server;

/**
 * Rules made in code come to the bytes that servers make of the same rules in a policy.
 */
final class CompiledTest extends TestCase
{
    private const POLICIES = 600;
    private const CARRIES = ['usage' => Carry::Usage, 'proportional' => Carry::Proportional, 'reset' => Carry::Reset];

    public function testRandomRulesComeToTheBytesThatAServerPublishes(): void
    {
        Server::require();
        $seed = (int) (getenv('SEED') ?: random_int(1, 1_000_000));
        mt_srand($seed);
        $policies = [];
        for ($number = 0; $number < self::POLICIES; $number++) {
            $policies["p$number"] = [
                'name' => "p$number",
                'rules' => RandomRules::rules(),
                'carry' => RandomRules::one(array_keys(self::CARRIES)),
            ];
        }
        $file = (string) tempnam(sys_get_temp_dir(), 'sgp');
        $text = json_encode(['policies' => array_values($policies)], JSON_PRESERVE_ZERO_FRACTION);
        file_put_contents($file, $text);
        $records = json_decode(Server::run('policies compile ' . escapeshellarg($file)), true);
        unlink($file);
        foreach ($policies as $name => $policy) {
            $made = Published::rules(RuleEncoder::set($policy['rules'], self::CARRIES[$policy['carry']]));
            $made = json_decode((string) json_encode($made), true);
            $expected = array_intersect_key($records[$name], $made);
            self::assertEquals($expected, $made, "seed $seed: " . json_encode($policy));
        }
    }
}
