<?php

/**
 * Middleware of PSR-15: three requests a minute of an address, and then 429 with a problem.
 *
 * php -S 127.0.0.1:8000 examples/psr15.php
 * curl -i http://127.0.0.1:8000/
 */

declare(strict_types=1);

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\ServerRequest;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Gate;
use Sluicegate\Http\Key;
use Sluicegate\Http\RateLimitMiddleware;
use Sluicegate\Limit;
use Sluicegate\Redis\PhpRedis;

require __DIR__ . '/load.php';

$gate = Gate::direct(
    PhpRedis::persistent('127.0.0.1', (int) (getenv('REDIS_PORT') ?: 6379)),
    deadlineMs: (int) (getenv('DEADLINE_MS') ?: 50),
    logger: require __DIR__ . '/logger.php',
);
$middleware = new RateLimitMiddleware(
    $gate->limit('psr15', Limit::slidingWindow(3, '1m')),
    Key::remoteIp(trusted: ['10.0.0.0/8']),
    new Psr17Factory(),
);

// A framework makes the request, pipes the middleware before the handler, and sends the response.
$request = new ServerRequest(
    $_SERVER['REQUEST_METHOD'],
    $_SERVER['REQUEST_URI'],
    getallheaders(),
    serverParams: $_SERVER,
);
$handler = new class implements RequestHandlerInterface {
    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        $response = (new Psr17Factory())->createResponse();
        $response->getBody()->write("an order\n");
        return $response;
    }
};
$response = $middleware->process($request, $handler);
http_response_code($response->getStatusCode());
foreach ($response->getHeaders() as $name => $values) {
    header("$name: " . implode(', ', $values));
}
echo $response->getBody();
