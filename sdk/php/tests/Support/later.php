<?php

/**
 * php later.php laravel|symfony: loads the bridge with the signatures of later versions, uses it, and says what came.
 */

declare(strict_types=1);

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Limit;
use Illuminate\Cache\RateLimiting\Unlimited;
use Illuminate\Cache\Repository;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Sluicegate\Bridge\Laravel\ThrottleRequests;
use Sluicegate\Bridge\Symfony\DependencyInjection\Configuration;
use Sluicegate\Bridge\Symfony\DependencyInjection\SluicegateExtension;
use Sluicegate\Bridge\Symfony\PolicyWarmer;
use Sluicegate\Bridge\Symfony\RateLimitListener;
use Sluicegate\Bridge\Symfony\SluicegateLimiter;
use Sluicegate\Bridge\Symfony\SluicegateLimiterFactory;
use Sluicegate\Limit as OwnLimit;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;

// They are declared before the libraries can load their own.
require __DIR__ . '/../stubs/' . ['laravel' => 'laravel13', 'symfony' => 'symfony7-kernel'][$argv[1]] . '.php';
$argv[1] === 'laravel' ?: require __DIR__ . '/../stubs/symfony7.php';
require __DIR__ . '/../bootstrap.php';

if ($argv[1] === 'symfony') {
    $gate = InMemoryGate::with(new ManualClock(), ['orders' => OwnLimit::slidingLog(1, '1m')]);
    $answers = [
        (new PolicyWarmer($gate, ['orders']))->warmUp('/tmp', '/tmp'),
        (new PolicyWarmer($gate, []))->isOptional(),
        array_keys(RateLimitListener::getSubscribedEvents()),
        (new ReflectionMethod(Configuration::class, 'getConfigTreeBuilder'))->hasReturnType(),
        (string) (new ReflectionMethod(SluicegateExtension::class, 'load'))->getReturnType(),
        (new SluicegateLimiter($gate->policy('orders'), 'a'))->consume()->isAccepted(),
        (new SluicegateLimiterFactory($gate->policy('orders')))->create('a')->consume()->isAccepted(),
    ];
    echo json_encode($answers), "\n";
    return;
}

$limiter = new RateLimiter(new Repository(new ArrayStore()));
$limiter->for('api', static fn (): array => [new Limit('u', 3, 60), new Limit('u', 2, 1)]);
$failed = new Limit('f', 2, 60);
$failed->afterCallback = static fn (Response $response): bool => $response->getStatusCode() === 404;
$limiter->for('failed', static fn (): array => [$failed, new Limit('g', 9, 60)]);
$limiter->for('free', static fn (): Unlimited => new Unlimited());
$gate = InMemoryGate::with(new ManualClock());
$status = 200;
$check = static function (mixed ...$arguments) use ($limiter, $gate, &$status): array {
    try {
        $response = (new ThrottleRequests($limiter, $gate))->handle(
            Request::create('/'),
            static function () use (&$status): Response {
                return new Response('ok', $status);
            },
            ...$arguments,
        );
        return [$response->getStatusCode(), $response->headers->get('X-RateLimit-Remaining')];
    } catch (ThrottleRequestsException $e) {
        return [$e->getStatusCode(), $e->getHeaders()['Retry-After']];
    }
};
$answers = [$check(2, 1), $check(2, 1), $check(2, 1), $check('api'), $check('api'), $check('api'), $check('free')];
// Only what is not found counts under `failed`; the other limit of it counts all that pass.
foreach ([404, 200, 404, 404] as $status) {
    $answers[] = $check('failed')[0];
}
$others = $gate->limit('laravel.throttle.60', OwnLimit::rules([
    ['name' => 'every-60s', 'fixed_window' => ['limit' => 9, 'window' => '60s', 'align' => 'first']],
]));
$answers[] = $others->peek(md5('failedg'))->remaining;
echo json_encode($answers), "\n";
