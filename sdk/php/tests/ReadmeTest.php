<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Bridge\Symfony\DependencyInjection\Configuration;
use Sluicegate\Limit;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\Config\Definition\Processor;
use Symfony\Component\Yaml\Yaml;

/**
 * The examples of the README are valid code, and the same in both languages.
 */
final class ReadmeTest extends TestCase
{
    private const DIR = __DIR__ . '/..';

    /** @return iterable<string, array{string}> */
    public static function readmes(): iterable
    {
        yield 'English' => ['README.md'];
        yield 'Chinese' => ['README.zh.md'];
    }

    /** @dataProvider readmes */
    public function testPhpAndYamlCanBeRead(string $file): void
    {
        foreach (self::blocks($file) as [$language, $code]) {
            if ($language === 'php') {
                $code = str_starts_with($code, 'public function') ? "class C {\n$code}" : $code;
                self::assertNotEmpty(token_get_all("<?php\n$code", TOKEN_PARSE));
            } elseif ($language === 'yaml') {
                $config = Yaml::parse($code);
                self::assertIsArray($config);
                if (isset($config['sluicegate'])) {
                    (new Processor())->processConfiguration(new Configuration(), $config);
                }
            }
        }
    }

    /** @dataProvider readmes */
    public function testTheRulesOfTheTablesAreRules(string $file): void
    {
        preg_match_all('/`((?:token_bucket|fixed_window|sliding_\w+): \{[^`]*\})`/', self::text($file), $found);
        self::assertCount(3, $found[1]);
        foreach ($found[1] as $rule) {
            self::assertCount(1, Limit::rules([Yaml::parse($rule)])->rules->rules);
        }
    }

    public function testBothLanguagesHaveTheSameCode(): void
    {
        $code = static fn (array $block): string =>
            $block[0] . "\n" . preg_replace('~[ \t]*(//|#) .*$~m', '', $block[1]);
        self::assertSame(array_map($code, self::blocks('README.md')), array_map($code, self::blocks('README.zh.md')));
        $rows = static fn (string $file): int => (int) preg_match_all('/^\|/m', self::text($file));
        self::assertSame($rows('README.md'), $rows('README.zh.md'));
        $sections = static fn (string $file): int => (int) preg_match_all('/^## /m', self::text($file));
        self::assertSame($sections('README.md'), $sections('README.zh.md'));
    }

    /** @dataProvider readmes */
    public function testLinksLead(string $file): void
    {
        $text = self::text($file);
        preg_match_all('/^#+ (.*)$/m', $text, $headings);
        $anchors = array_map(static fn (string $heading): string => str_replace(
            ' ',
            '-',
            (string) preg_replace('/[^\p{L}\p{N} _-]/u', '', mb_strtolower($heading)),
        ), $headings[1]);
        preg_match_all('/\]\(([^)]+)\)/', $text, $links);
        self::assertGreaterThan(15, count($links[1]));
        foreach ($links[1] as $link) {
            $link[0] === '#'
                ? self::assertContains(substr($link, 1), $anchors)
                : self::assertFileExists(self::DIR . '/' . explode('#', $link)[0]);
        }
    }

    public function testTheLinesForPlainPhpAnswer(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        [[, $gate], [, $check]] = array_values(array_filter(
            self::blocks('README.md'),
            static fn (array $block): bool => $block[0] === 'php',
        ));
        $gate = strtr(explode("\n\n\$decision", $gate)[0], [
            "'127.0.0.1')" => "'127.0.0.1', $redis->port), deadlineMs: 10000",
            "policy('orders')" => "policy(substr(\$_SERVER['REQUEST_URI'], 1))",
        ]);
        $file = (string) tempnam(sys_get_temp_dir(), 'sg');
        $autoload = var_export((string) realpath(self::DIR . '/autoload.php'), true);
        $begin = "<?php\nini_set('display_errors', '1');\nrequire $autoload;";
        file_put_contents($file, "$begin\n$gate\n$check\necho 'ok';\n");
        $server = new HttpServer($file, []);
        $get = static fn (string $path, string ...$fields): object => HttpServer::get("$server->url$path", ...$fields);
        try {
            $first = $get('/orders', 'X-User: alice-of-the-page');
            self::assertSame([200, 'ok'], [$first->status, $first->body], $server->complaints());
            self::assertStringStartsWith('"hour";r=1;', $first->headers['ratelimit']);
            self::assertSame(200, $get('/orders', 'X-User: alice-of-the-page')->status);
            self::assertSame(429, $get('/orders', 'X-User: alice-of-the-page')->status);
            self::assertSame(200, $get('/orders', 'X-User: bob-of-the-page')->status);
            self::assertSame(400, $get('/orders')->status);
            self::assertSame(400, $get('/orders', 'X-User: alice-of-the-page', 'X-User: 1')->status);
            $unknown = $get('/none-of-these', 'X-User: alice-of-the-page');
            self::assertSame(500, $unknown->status);
            self::assertStringNotContainsString('none-of-these', $unknown->text);
        } finally {
            unlink($file);
        }
    }

    private static function text(string $file): string
    {
        return (string) file_get_contents(self::DIR . "/$file");
    }

    /** @return list<array{string, string}> the language and the code of each block */
    private static function blocks(string $file): array
    {
        preg_match_all('/^```(\w+)\n(.*?)^```$/ms', self::text($file), $found, PREG_SET_ORDER);
        return array_map(static fn (array $block): array => [$block[1], $block[2]], $found);
    }
}
