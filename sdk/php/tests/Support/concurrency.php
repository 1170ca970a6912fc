<?php

/**
 * A request that holds a permit of the policy `jobs`, and ends as its path says.
 *
 * SERVER is the URL of a server that decides, with WAIT_US; else REDIS_PORT says where Redis is. Requests of `/meet`
 * wait for the file `go` in the folder MEET, and answer how many met there.
 */

declare(strict_types=1);

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;
use Nyholm\Psr7\Stream;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Gate;
use Sluicegate\Http\ConcurrencyMiddleware;
use Sluicegate\Http\Key;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/../bootstrap.php';

$server = (string) getenv('SERVER');
$gate = $server === ''
    ? Gate::direct(PhpRedis::persistent('127.0.0.1', (int) getenv('REDIS_PORT')), deadlineMs: 10_000)
    : Gate::remote($server, timeoutMs: 10_000);
$wait = (int) getenv('WAIT_US');
$jobs = $gate->policy('jobs');
$middleware = new ConcurrencyMiddleware($jobs, Key::shared(), new Psr17Factory(), maxWaitUs: $wait ?: null);
$handler = new class implements RequestHandlerInterface {
    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        return new Response(200, [], match ($request->getUri()->getPath()) {
            '/meet' => $this->meet((string) getenv('MEET')),
            '/exception' => throw new RuntimeException('broken'),
            '/exit' => exit('gone'),
            '/memory' => str_repeat('x', 1 << 40),
            '/time' => $this->work(),
            '/stream' => Stream::create(popen('printf later', 'r')),
            '/endless' => Stream::create(popen('cat /dev/zero', 'r')),
            default => 'done',
        });
    }

    private function meet(string $dir): string
    {
        touch("$dir/in." . getmypid());
        $met = count(glob("$dir/in.*") ?: []);
        while (!file_exists("$dir/go")) {
            usleep(1000);
            clearstatcache();
        }
        unlink("$dir/in." . getmypid());
        return "met $met";
    }

    private function work(): never
    {
        set_time_limit(1);
        while (true) {
            hash('sha256', 'work');
        }
    }
};
$response = $middleware->process(new ServerRequest('GET', $_SERVER['REQUEST_URI']), $handler);
if ($_SERVER['REQUEST_URI'] === '/fork') {
    $pid = pcntl_fork();
    if ($pid === 0) {
        exit(0);
    }
    pcntl_waitpid($pid, $status);
    echo 'left ', $jobs->peek(null)->remaining, ', then ';
}
http_response_code($response->getStatusCode());
if ($response->getBody()->isSeekable()) {
    $response->getBody()->rewind();
}
while (!$response->getBody()->eof()) {
    echo $response->getBody()->read(8192);
    flush();
}
