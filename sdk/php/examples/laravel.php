<?php

/**
 * Laravel's `throttle`, decided in Redis in one call: three requests a minute of an address.
 *
 * php -S 127.0.0.1:8000 examples/laravel.php
 * curl -i http://127.0.0.1:8000/
 *
 * In an application of Laravel the provider, the configuration and the routes are all that you write.
 */

declare(strict_types=1);

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Limit;
use Illuminate\Cache\Repository as Cache;
use Illuminate\Config\Repository as Config;
use Illuminate\Container\Container;
use Illuminate\Events\Dispatcher;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Routing\Router;
use Sluicegate\Bridge\Laravel\SluicegateServiceProvider;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;

require __DIR__ . '/load.php';

// What Laravel does by itself.
$app = new Container();
Container::setInstance($app);
$router = new Router(new Dispatcher($app), $app);
$limiter = new RateLimiter(new Cache(new ArrayStore()));
$app->instance('router', $router);
$app->instance(RateLimiter::class, $limiter);

// config/sluicegate.php
$port = (int) (getenv('REDIS_PORT') ?: 6379);
$app->instance('config', new Config(['sluicegate' => [
    'host' => '127.0.0.1',
    'port' => $port,
    'app' => 'shop',
    'deadline_ms' => (int) (getenv('DEADLINE_MS') ?: 50),
]]));

// config/app.php: providers
$provider = new SluicegateServiceProvider($app);
$provider->register();
$provider->boot();

// The routes, and a limit of two rules that are decided together.
$limiter->for('api', static fn (Request $request): array => [
    Limit::perMinute(3)->by($request->ip()),
    Limit::perDay(100)->by($request->ip()),
]);
$router->get('/', static fn (): string => "an order\n")->middleware('throttle:api');
$router->get('/report', static fn (): string => "a report\n")->middleware('throttle:1,1');

$request = Request::capture();
$app->instance('request', $request);
try {
    $response = $router->dispatch($request);
} catch (HttpResponseException $e) {
    $response = $e->getResponse();
} catch (HttpExceptionInterface $e) {
    $response = new Response($e->getMessage() . "\n", $e->getStatusCode(), $e->getHeaders());
}
$response->prepare($request)->send();
