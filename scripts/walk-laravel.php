<?php

/**
 * The skeleton of a Laravel application around the files of docs/start-php.md: Debian packages Laravel without it, and scripts/walk
 * serves the files by this one.
 */

declare(strict_types=1);

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\Repository as Cache;
use Illuminate\Config\Repository as Config;
use Illuminate\Container\Container;
use Illuminate\Events\Dispatcher;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Routing\Router;
use Illuminate\Support\Facades\Facade;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;

require 'vendor/autoload.php';

$app = new Container();
Container::setInstance($app);
Facade::setFacadeApplication($app);
$router = new Router(new Dispatcher($app), $app);
$app->instance('router', $router);
$app->instance(RateLimiter::class, new RateLimiter(new Cache(new ArrayStore())));
$app->instance('config', new Config(['sluicegate' => require getcwd() . '/config/sluicegate.php']));
foreach (require getcwd() . '/bootstrap/providers.php' as $class) {
    $provider = new $class($app);
    $provider->register();
    $provider->boot();
}
require getcwd() . '/routes/web.php';

$request = Request::capture();
$app->instance('request', $request);
try {
    $response = $router->dispatch($request);
} catch (HttpResponseException $e) {
    $response = $e->getResponse();
} catch (HttpExceptionInterface $e) {
    $response = new Response($e->getMessage(), $e->getStatusCode(), $e->getHeaders());
}
$response->prepare($request)->send();
