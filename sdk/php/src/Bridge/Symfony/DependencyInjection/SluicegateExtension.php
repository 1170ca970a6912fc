<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony\DependencyInjection;

use Sluicegate\Bridge\Symfony\CheckCommand;
use Sluicegate\Bridge\Symfony\ConcurrencyListener;
use Sluicegate\Bridge\Symfony\PolicyWarmer;
use Sluicegate\Bridge\Symfony\RateLimitListener;
use Sluicegate\Bridge\Symfony\SluicegateLimiterFactory;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\OnStoreFailure;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Runner;
use Symfony\Component\Console\Command\Command;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\Definition;
use Symfony\Component\DependencyInjection\Extension\Extension;
use Symfony\Component\DependencyInjection\Reference;
use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

/**
 * Registers `Sluicegate\Gate` and, for each limiter, these services.
 *
 * `limiter.NAME` makes limiters of Symfony, by `SluicegateLimiterFactory $nameLimiter` or, from Symfony 7.3 on,
 * `RateLimiterFactoryInterface $nameLimiter`; `sluicegate.limiter.NAME` is the `Sluicegate\Limiter $nameLimiter`.
 *
 * @internal
 */
final class SluicegateExtension extends Extension
{
    public function load(array $configs, ContainerBuilder $container): void
    {
        $config = $this->processConfiguration(new Configuration(), $configs);
        $container->setDefinition(Gate::class, self::gate($config, $container));
        // Symfony 7.3 has an interface for factories.
        $hasInterface = interface_exists(RateLimiterFactoryInterface::class);
        $factory = SluicegateLimiterFactory::class;
        foreach ($config['limiters'] as $name => $limiter) {
            $name = (string) $name;
            $container->setDefinition("sluicegate.limiter.$name", self::limiter($name, $limiter));
            $container->register("limiter.$name", $factory)->addArgument(new Reference("sluicegate.limiter.$name"));
            $container->registerAliasForArgument("sluicegate.limiter.$name", Limiter::class, "$name.limiter");
            $container->registerAliasForArgument("limiter.$name", $factory, "$name.limiter");
            if ($hasInterface) {
                $interface = RateLimiterFactoryInterface::class;
                $container->registerAliasForArgument("limiter.$name", $interface, "$name.limiter");
            }
        }
        $listeners = ['requests' => RateLimitListener::class, 'concurrency' => ConcurrencyListener::class];
        foreach ($listeners as $name => $class) {
            if ($config[$name] !== []) {
                $container->register($class)
                    ->addArgument(array_map(self::limit(...), array_values($config[$name])))
                    ->addTag('kernel.event_subscriber');
            }
        }
        $required = self::required($config);
        if (class_exists(Command::class)) {
            $all = array_unique([...$required, ...array_values(array_column($config['limiters'], 'policy'))]);
            $container->register(CheckCommand::class)
                ->setArguments([new Reference(Gate::class), array_values($all)])
                ->addTag('console.command', ['command' => 'sluicegate:check']);
        }
        if ($required !== []) {
            $container->register(PolicyWarmer::class)
                ->setArguments([new Reference(Gate::class), $required])
                ->addTag('kernel.cache_warmer');
        }
    }

    /**
     * Returns what a listener takes for an entry of `requests` or `concurrency`.
     *
     * @return list<mixed>
     */
    private static function limit(array $entry): array
    {
        $limit = [
            $entry['path'], new Reference("sluicegate.limiter.{$entry['limiter']}"), $entry['key'], $entry['shared'],
        ];
        return isset($entry['max_wait_ms']) ? [...$limit, 1000 * $entry['max_wait_ms']] : $limit;
    }

    /**
     * Returns the names of the policies that must be published.
     *
     * @return list<string>
     */
    private static function required(array $config): array
    {
        $ofLimiters = array_column($config['limiters'], 'policy');
        $names = array_map(
            static fn (mixed $name): array => $name === '*' ? $ofLimiters : [(string) $name],
            $config['required_policies'],
        );
        return array_values(array_unique(array_merge(...array_values($names))));
    }

    private static function gate(array $config, ContainerBuilder $container): Definition
    {
        $gate = new Definition(Gate::class);
        $service = static fn (?string $id): ?Reference => $id === null ? null : new Reference($id);
        $logger = new Reference('logger', ContainerInterface::NULL_ON_INVALID_REFERENCE);
        if (isset($config['server'])) {
            return $gate->setFactory([Gate::class, 'remote'])->setArguments([
                $config['server'], $config['token'], $config['app'], $config['timeout_ms'],
                $service($config['observer']), $logger,
            ]);
        }
        if (isset($config['redis'])) {
            $container->register('sluicegate.redis', Runner::class)
                ->setFactory([PhpRedis::class, 'ofUrl'])
                ->addArgument($config['redis']);
        }
        return $gate->setFactory([Gate::class, 'direct'])->setArguments([
            '$redis' => new Reference($config['runner'] ?? 'sluicegate.redis'),
            '$app' => $config['app'],
            '$nodes' => $config['nodes'],
            '$deadlineMs' => $config['deadline_ms'],
            '$maxHoldMs' => $config['max_hold_ms'],
            '$accountsMax' => $config['accounts_max'],
            '$logger' => $logger,
            '$clock' => $service($config['clock']),
            '$cache' => $service($config['cache']),
            '$observer' => $service($config['observer']),
        ]);
    }

    private static function limiter(string $name, array $config): Definition
    {
        $limiter = new Definition(Limiter::class);
        if (isset($config['policy'])) {
            return $limiter->setFactory([new Reference(Gate::class), 'policy'])->addArgument($config['policy']);
        }
        $limit = (new Definition(Limit::class))
            ->setFactory([Limit::class, 'rules'])
            ->addArgument($config['rules'])
            ->addMethodCall('onStoreFailure', [OnStoreFailure::from($config['on_store_failure'])], true);
        return $limiter->setFactory([new Reference(Gate::class), 'limit'])->setArguments([$name, $limit]);
    }
}
