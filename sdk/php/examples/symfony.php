<?php

/**
 * Symfony with the bundle: the service `limiter.api`, three requests a minute of an address.
 *
 * php -S 127.0.0.1:8000 examples/symfony.php
 * curl -i http://127.0.0.1:8000/
 */

declare(strict_types=1);

use Sluicegate\Bridge\Symfony\SluicegateBundle;
use Sluicegate\Bridge\Symfony\SluicegateLimiterFactory;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\HttpKernel\Log\Logger;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

require __DIR__ . '/load.php';

final class ShopKernel extends Kernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new SluicegateBundle()];
    }

    /** The parameter's name chooses the limiter: `$apiLimiter` is `limiter.api`. */
    public function order(Request $request, SluicegateLimiterFactory $apiLimiter): Response
    {
        $limit = $apiLimiter->create($request->getClientIp())->consume();
        if (!$limit->isAccepted()) {
            $seconds = max($limit->getRetryAfter()->getTimestamp() - time(), 1);
            return new Response("try again in $seconds s\n", 429, ['Retry-After' => (string) $seconds]);
        }
        return new Response("an order, {$limit->getRemainingTokens()} left\n");
    }

    // As config/packages/sluicegate.yaml would say it. `'api' => 'orders'` is a policy that servers publish.
    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'example', 'test' => false]);
        $container->extension('sluicegate', [
            'redis' => '%env(REDIS_URL)%',
            'deadline_ms' => (int) (getenv('DEADLINE_MS') ?: 50),
            'limiters' => ['api' => ['rules' => [['sliding_window' => ['limit' => 3, 'window' => '1m']]]]],
        ]);
        // Without a level, Symfony's own logger leaves out warnings, and with them what this package has to say.
        $container->services()->set('logger', Logger::class)->args(['notice']);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('order', '/')->controller('kernel::order');
    }
}

// Symfony reads the environment here; PHP's own web server keeps it apart.
$_SERVER += getenv();
$_SERVER['REDIS_URL'] ??= 'redis://127.0.0.1:' . (getenv('REDIS_PORT') ?: 6379);
$kernel = new ShopKernel('dev', true);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
