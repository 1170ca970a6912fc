<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Limiter;
use Sluicegate\Tests\Support\FastCgi;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * The example under FPM, driven by `cgi-fcgi` and behind nginx: workers share policies and the breaker by APCu, and
 * keep connections.
 */
final class FpmTest extends TestCase
{
    private const WORKERS = 3;

    private string $dir;
    /** @var list<resource> */
    private array $processes = [];
    /** @var array<string, string> */
    private array $jobEnvironment = [];
    private ?Server $server = null;

    protected function tearDown(): void
    {
        $this->server = null;
        foreach (array_reverse($this->processes) as $process) {
            proc_terminate($process, SIGQUIT);
            proc_close($process);
        }
        if ($this->processes !== []) {
            array_map(unlink(...), array_filter(glob("$this->dir/*") ?: [], is_file(...)));
            array_map(rmdir(...), glob("$this->dir/*") ?: []);
            rmdir($this->dir);
        }
    }

    public function testWorkersShareWhatTheyKnow(): void
    {
        $redis = new RedisServer();
        $this->start($redis->port);
        $client = $redis->client();
        Published::in($client, 1, ['name' => 'orders', 'on_store_failure' => 'deny', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 20, 'window' => '1h']],
        ]]);
        $before = (int) $client->info('stats')['total_connections_received'];
        for ($number = 0; $number < 30; $number++) {
            $answer = $this->get('192.0.2.1');
            $status = $number < 20 ? '' : '429 Too Many Requests';
            self::assertSame($status, self::field($answer, 'Status'), $answer);
            self::assertSame('"hour";q=20;w=3600', self::field($answer, 'RateLimit-Policy'), $answer);
            self::assertDoesNotMatchRegularExpression('/Warning|Notice|Deprecated|Fatal/', $answer);
        }
        self::assertStringContainsString('quota-exceeded', $this->get('192.0.2.1'));
        self::assertStringContainsString('an order, decided by store', $this->get('192.0.2.2'));
        $stats = $client->info('commandstats');
        $calls = static fn (string $name): int =>
            (int) preg_replace('/^calls=(\d+).*/', '$1', $stats["cmdstat_$name"] ?? 'calls=0');
        // One process looked for all, once when a policy was first named; refusals were remembered by all.
        self::assertLessThanOrEqual(2, $calls('hmget'));
        self::assertLessThanOrEqual(24, $calls('evalsha'));
        // The states of 21 requests that passed, and the rules.
        self::assertSame(22, $calls('set'));
        $connections = (int) $client->info('stats')['total_connections_received'] - $before;
        self::assertLessThanOrEqual(self::WORKERS, $connections);
        $redis->stop();
        for ($number = 0; $number < 10; $number++) {
            $answer = $this->get('192.0.2.3');
            self::assertSame('503 Service Unavailable', self::field($answer, 'Status'), $answer);
        }
        self::assertStringContainsString('does not answer', (string) file_get_contents("$this->dir/php.log"));
        $redis->start();
        Patience::until(
            fn (): bool => str_contains($this->get('192.0.2.4'), 'decided by store'),
            'Redis decides again',
        );
        self::assertStringContainsString('decided by store', $this->get('192.0.2.3'));
    }

    /** As each release of a busy service: no worker has compiled a class, connected, or read a policy. */
    public function testTheFirstRequestsOfAColdFpmPassTheLimitAndNoMore(): void
    {
        $redis = RedisServer::shared();
        for ($start = 0; $start < (getenv('SLUICEGATE_LONG') === '1' ? 20 : 2); $start++) {
            $client = $redis->client();
            $client->flushAll();
            $client->script('flush');
            Published::in($client, 1, ['name' => 'orders', 'rules' => [
                ['name' => 'hour', 'sliding_log' => ['limit' => 20, 'window' => '1h']],
            ]]);
            $this->start($redis->port, deadlineMs: 50, workers: 50);
            $env = self::env('192.0.2.1');
            $answers = FastCgi::all("$this->dir/socket", ...array_fill(0, 50, $env));
            $modes = array_count_values(array_map(static fn (string $answer): string => preg_match(
                '/decided by (\w+)/',
                $answer,
                $found,
            ) ? $found[1] : self::field($answer, 'Status'), $answers));
            $passed = array_sum(array_intersect_key($modes, ['store' => 0, 'local' => 0, 'allow' => 0]));
            self::assertSame(20, $passed, "start $start: " . json_encode($modes));
            self::assertSame(20, $modes['store'] ?? 0, "start $start: " . json_encode($modes));
            $this->tearDown();
            $this->processes = [];
        }
    }

    public function testWorkersLogAnOutageOnceForAll(): void
    {
        $redis = new RedisServer();
        $this->start($redis->port);
        $ask = fn (): string => $this->get('192.0.2.1', 'tests/Support/logged.php');
        $orders = ['name' => 'orders', 'rules' => [['sliding_log' => ['limit' => 90, 'window' => '1h']]]];
        Published::in($redis->client(), 1, $orders);
        self::assertStringContainsString('decided by store', $ask());
        $redis->stop();
        for ($number = 0; $number < 20; $number++) {
            self::assertStringContainsString('decided by local', $ask());
        }
        $log = fn (): string => (string) file_get_contents("$this->dir/php.log");
        $line = "sluicegate: Redis at 127.0.0.1:$redis->port does not answer: ";
        self::assertSame(1, substr_count($log(), $line), $log());
        $redis->start();
        Published::in($redis->client(), 1, $orders);
        Patience::until(static fn (): bool => str_contains($ask(), 'decided by store'), 'Redis decides again');
        $ask();
        $line = "sluicegate: Redis at 127.0.0.1:$redis->port decides again";
        self::assertSame(1, substr_count($log(), $line), $log());
        // Of the policies there may be a line, too, if a look was due in that time.
        self::assertLessThanOrEqual(4, substr_count($log(), 'sluicegate: '), $log());
    }

    public function testWithoutRedisAllRequestsPassForWhichTheShareHasRoom(): void
    {
        $redis = new RedisServer();
        $this->start($redis->port, workers: 50);
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_counter' => ['limit' => 10_000, 'window' => '1h']],
        ]]);
        $ask = fn (int $requests): array => FastCgi::all(
            "$this->dir/socket",
            ...array_fill(0, $requests, self::env('192.0.2.1')),
        );
        self::assertStringContainsString('decided by store', $ask(1)[0]);
        $redis->stop();
        foreach (range(1, 6) as $round) {
            foreach ($ask(50) as $answer) {
                self::assertStringContainsString('decided by local', $answer, "round $round");
            }
        }
    }

    public function testWithoutApcuTheLogIsBounded(): void
    {
        $redis = new RedisServer();
        $ask = fn (): string => $this->get('192.0.2.1', 'tests/Support/logged.php');
        $this->start($redis->port, apcu: false);
        $client = $redis->client();
        Published::in($client, 1, ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 20, 'window' => '1h']],
        ]]);
        self::assertStringContainsString('decided by store', $ask());
        $redis->stop();
        for ($number = 0; $number < 20; $number++) {
            self::assertStringStartsWith('503', self::field($ask(), 'Status'));
        }
        $log = (string) file_get_contents("$this->dir/php.log");
        $line = "sluicegate: policies: Redis at 127.0.0.1:$redis->port does not answer: ";
        self::assertSame(1, substr_count($log, $line), $log);
        self::assertSame(1, substr_count($log, 'sluicegate: '), $log);
        $redis->start();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 20, 'window' => '1h']],
        ]]);
        for ($number = 0; $number < 3; $number++) {
            self::assertStringContainsString('decided by store', $ask());
        }
        $log = (string) file_get_contents("$this->dir/php.log");
        self::assertSame(1, substr_count($log, 'policies are read again from the Redis at '), $log);
    }

    public function testAnUnknownPolicyIsAnErrorWithoutNames(): void
    {
        $redis = new RedisServer();
        $this->start($redis->port);
        Published::in($redis->client(), 1, ['name' => 'login', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 20, 'window' => '1h']],
        ]]);
        $answer = $this->get('192.0.2.1');
        self::assertSame(
            ['500 Internal Server Error', 'application/problem+json'],
            [self::field($answer, 'Status'), self::field($answer, 'Content-Type')],
            $answer,
        );
        self::assertDoesNotMatchRegularExpression('/orders|fpm\.php|Fatal/', $answer);
        $log = (string) file_get_contents("$this->dir/php.log");
        self::assertSame(1, substr_count($log, 'sluicegate: policy: unknown policy `orders`'), $log);
    }

    public function testBehindNginxTheAddressIsThatOfTheClient(): void
    {
        $redis = RedisServer::shared();
        $this->start($redis->port, '127.0.0.0/8');
        $port = $this->startNginx();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        foreach ([200, 200, 429] as $status) {
            $answer = HttpServer::get("http://127.0.0.1:$port/orders?page=2", 'X-Forwarded-For: 192.0.2.1');
            self::assertSame($status, $answer->status, $answer->text);
        }
        self::assertSame('application/problem+json', $answer->headers['content-type']);
        self::assertSame('3600', $answer->headers['retry-after']);
        self::assertSame('"hour";q=2;w=3600', $answer->headers['ratelimit-policy']);
        self::assertStringContainsString('quota-exceeded', $answer->body);
        // Another client of the proxy; and what a client writes itself is not believed.
        $other = HttpServer::get("http://127.0.0.1:$port/", 'X-Forwarded-For: 192.0.2.9');
        self::assertSame([200, "an order, decided by store\n"], [$other->status, $other->body]);
        $lies = HttpServer::get("http://127.0.0.1:$port/", 'X-Forwarded-For: 192.0.2.8, 192.0.2.1');
        self::assertSame(429, $lies->status);
    }

    public function testNginxTakesManyRequestsAtOnce(): void
    {
        $redis = RedisServer::shared();
        $this->start($redis->port, '127.0.0.0/8');
        $port = $this->startNginx();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 1000, 'window' => '1h']],
        ]]);
        $sockets = [];
        for ($number = 0; $number < 100; $number++) {
            $sockets[] = $socket = stream_socket_client("tcp://127.0.0.1:$port", $code, $text, 10);
            stream_set_timeout($socket, 20);
            fwrite($socket, "GET / HTTP/1.0\r\nX-Forwarded-For: 192.0.2.77\r\n\r\n");
        }
        $status = static fn ($socket): string => substr((string) stream_get_contents($socket), 9, 3);
        $answers = array_map($status, $sockets);
        self::assertSame(['200' => 100], array_count_values($answers));
    }

    /** @return iterable<string, array{bool}> */
    public static function deciders(): iterable
    {
        yield 'Redis' => [false];
        yield 'a server' => [true];
    }

    /** @dataProvider deciders */
    public function testWorkersHandleNoMoreRequestsAtOnceThanTheLimit(bool $byServer): void
    {
        $jobs = $this->startJobs($byServer, workers: 6);
        $open = [];
        for ($number = 0; $number < 6; $number++) {
            $open[] = FastCgi::open("$this->dir/socket", $this->job('/meet'));
        }
        foreach (FastCgi::first(4, $open) as $answer) {
            self::assertSame('429 Too Many Requests', self::field($answer, 'Status'), $answer);
        }
        Patience::until(fn (): bool => count(glob("$this->dir/in.*") ?: []) === 2, 'two are handled');
        self::assertSame(0, $jobs->peek(null)->remaining);
        touch("$this->dir/go");
        foreach (FastCgi::first(2, $open) as $answer) {
            self::assertMatchesRegularExpression('/\r\n\r\nmet [12]$/', $answer);
        }
        Patience::until(static fn (): bool => $jobs->peek(null)->remaining === 2, 'both permits are free');
    }

    /** @dataProvider deciders */
    public function testWorkersWaitForTheirTurn(bool $byServer): void
    {
        $jobs = $this->startJobs($byServer, workers: 6, waitUs: 60_000_000);
        $open = [];
        for ($number = 0; $number < 6; $number++) {
            $open[] = FastCgi::open("$this->dir/socket", $this->job('/meet'));
        }
        Patience::until(fn (): bool => count(glob("$this->dir/in.*") ?: []) === 2, 'two are handled');
        touch("$this->dir/go");
        foreach (FastCgi::first(6, $open) as $answer) {
            self::assertMatchesRegularExpression('/\r\n\r\nmet [12]$/', $answer);
        }
        Patience::until(static fn (): bool => $jobs->peek(null)->remaining === 2, 'both permits are free');
    }

    /** @dataProvider deciders */
    public function testHoweverARequestEndsItsPermitIsReleased(bool $byServer): void
    {
        $jobs = $this->startJobs($byServer, workers: 2);
        $ends = [
            '/exception' => 'RuntimeException: broken', '/exit' => 'gone', '/memory' => 'Allowed memory size',
            '/time' => 'Maximum execution time', '/stream' => 'later', '/' => 'done',
        ];
        foreach ($ends as $path => $text) {
            [$answer] = FastCgi::all("$this->dir/socket", $this->job($path));
            self::assertStringContainsString($text, $answer, $path);
            Patience::until(static fn (): bool => $jobs->peek(null)->remaining === 2, "$path releases its permit");
        }
        $client = FastCgi::open("$this->dir/socket", $this->job('/endless'));
        self::assertNotEmpty(fread($client, 8192));
        self::assertSame(1, $jobs->peek(null)->remaining, 'the response is sent still');
        fclose($client);
        Patience::until(static fn (): bool => $jobs->peek(null)->remaining === 2, 'the client is gone');
    }

    public function testAForkIsNotTheEndOfARequest(): void
    {
        $jobs = $this->startJobs(byServer: true, workers: 1);
        $env = $this->jobEnvironment + $this->job('/fork');
        $process = proc_open([PHP_BINARY, $env['SCRIPT_FILENAME']], [1 => ['pipe', 'w']], $pipes, null, $env)
            ?: throw new \RuntimeException('php');
        self::assertSame('left 1, then done', stream_get_contents($pipes[1]));
        proc_close($process);
        self::assertSame(2, $jobs->peek(null)->remaining);
    }

    /** Starts FPM with `tests/Support/concurrency.php`, and returns the limiter of its two permits. */
    private function startJobs(bool $byServer, int $workers, int $waitUs = 0): Limiter
    {
        $rules = [['concurrency' => ['limit' => 2, 'ttl' => '1h', 'queue' => 9]]];
        $redis = RedisServer::shared();
        if ($byServer) {
            Server::require();
            $this->server = new Server([['name' => 'jobs', 'rules' => $rules]]);
            $url = "http://{$this->server->address('http')}";
            $this->jobEnvironment = ['SERVER' => $url];
            $gate = Gates::remote($url);
        } else {
            Published::in($redis->client(), 1, ['name' => 'jobs', 'rules' => $rules]);
            $gate = Gates::direct($redis->port);
        }
        $this->start($redis->port, workers: $workers);
        $this->jobEnvironment += ['MEET' => $this->dir, 'WAIT_US' => (string) $waitUs];
        return $gate->policy('jobs');
    }

    /** @return array<string, string> */
    private function job(string $path): array
    {
        return ['REQUEST_URI' => $path] + $this->jobEnvironment
            + self::env('192.0.2.1', 'tests/Support/concurrency.php');
    }

    private function startNginx(): int
    {
        $nginx = self::program('nginx');
        $port = RedisServer::freePort();
        $conf = strtr((string) file_get_contents(dirname(__DIR__) . '/examples/nginx.conf'), [
            'SOCKET' => "$this->dir/socket", 'ROOT' => dirname(__DIR__), 'PORT' => (string) $port, 'DIR' => $this->dir,
        ]);
        file_put_contents("$this->dir/nginx.conf", (posix_geteuid() === 0 ? "user root;\n" : '') . $conf);
        $this->spawn([$nginx, '-e', "$this->dir/nginx.log", '-c', "$this->dir/nginx.conf"]);
        Patience::until(static fn (): bool => (bool) @fsockopen('127.0.0.1', $port, $code, $text, 1), 'nginx answers');
        return $port;
    }

    /** @param list<string> $command */
    private function spawn(array $command): void
    {
        $null = ['file', '/dev/null', 'w'];
        $this->processes[] = proc_open($command, [['file', '/dev/null', 'r'], $null, $null], $pipes)
            ?: throw new \RuntimeException($command[0]);
    }

    private function start(
        int $redisPort,
        string $trusted = '',
        int $deadlineMs = 10_000,
        int $workers = self::WORKERS,
        bool $apcu = true,
    ): void {
        $fpm = self::program('php-fpm' . PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION);
        self::program('cgi-fcgi');
        RedisServer::require();
        $this->dir = sys_get_temp_dir() . '/sgfpm' . getmypid();
        mkdir($this->dir);
        $environment = $trusted === '' ? '' : "env[TRUSTED] = \"$trusted\"";
        $user = posix_geteuid() === 0 ? "user = root\ngroup = root\n" : '';
        file_put_contents("$this->dir/fpm.conf", <<<CONF
            [global]
            error_log = $this->dir/log
            daemonize = no
            [www]
            {$user}listen = $this->dir/socket
            pm = static
            pm.max_children = $workers
            env[REDIS_PORT] = $redisPort
            env[DEADLINE_MS] = $deadlineMs
            {$environment}
            php_admin_value[error_reporting] = 32767
            php_admin_value[display_errors] = 1
            php_admin_value[error_log] = $this->dir/php.log
            CONF);
        $options = ['-d', 'apc.enabled=' . (int) $apcu, '-d', "sys_temp_dir=$this->dir"];
        $options = posix_geteuid() === 0 ? ['-R', ...$options] : $options;
        $this->spawn([$fpm, '-F', '-y', "$this->dir/fpm.conf", ...$options]);
        // Its socket is there a moment before it listens.
        Patience::until(fn (): bool => (bool) @stream_socket_client("unix://$this->dir/socket"), 'FPM listens');
    }

    private function get(string $address, string $script = 'examples/fpm.php'): string
    {
        $env = self::env($address, $script);
        $command = ['cgi-fcgi', '-bind', '-connect', "$this->dir/socket"];
        $out = ['pipe', 'w'];
        $process = proc_open($command, [['file', '/dev/null', 'r'], $out, $out], $pipes, null, $env)
            ?: throw new \RuntimeException('cgi-fcgi');
        $answer = (string) stream_get_contents($pipes[1]);
        proc_close($process);
        return $answer;
    }

    /** @return array<string, string> */
    private static function env(string $address, string $script = 'examples/fpm.php'): array
    {
        return [
            'SCRIPT_FILENAME' => dirname(__DIR__) . "/$script", 'REQUEST_METHOD' => 'GET',
            'REQUEST_URI' => '/', 'REMOTE_ADDR' => $address, 'SERVER_PROTOCOL' => 'HTTP/1.1',
            'PATH' => (string) getenv('PATH'),
        ];
    }

    private static function field(string $answer, string $name): string
    {
        return preg_match("/^$name: (.*?)\r$/mi", $answer, $found) ? $found[1] : '';
    }

    private static function program(string $name): string
    {
        foreach (['/usr/sbin', '/usr/bin', '/usr/local/sbin', '/usr/local/bin'] as $dir) {
            if (is_executable("$dir/$name")) {
                return "$dir/$name";
            }
        }
        $reason = "$name is not installed";
        getenv('CI') === 'true' ? self::fail($reason) : self::markTestSkipped($reason);
    }
}
