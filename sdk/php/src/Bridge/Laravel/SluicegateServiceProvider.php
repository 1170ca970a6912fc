<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Illuminate\Support\ServiceProvider;
use Sluicegate\Gate;
use Sluicegate\Redis\PhpRedis;

/**
 * Registers a `Gate`, and the middlewares `throttle` and `sluicegate`.
 *
 * `config/sluicegate.php`: `server` (the URL of a server, with `token`), or else `host`, `port` and `auth` of Redis;
 * `app`, `nodes`, `deadline_ms`; `cache`, the name of a cache store that keeps policies in place of APCu; and
 * `throttle` (false: Laravel's own stays).
 */
final class SluicegateServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Gate::class, static function ($app): Gate {
            $config = $app->make('config')->get('sluicegate', []);
            if (isset($config['server'])) {
                return Gate::remote($config['server'], $config['token'] ?? null, $config['app'] ?? '');
            }
            $redis = PhpRedis::persistent(
                $config['host'] ?? '127.0.0.1',
                (int) ($config['port'] ?? 6379),
                $config['auth'] ?? null,
            );
            $logger = $app->bound('log') ? $app->make('log') : null;
            return Gate::direct(
                $redis,
                $config['app'] ?? '',
                nodes: $config['nodes'] ?? null,
                deadlineMs: (int) ($config['deadline_ms'] ?? 50),
                logger: $logger,
                cache: isset($config['cache']) ? $app->make('cache')->store($config['cache']) : null,
            );
        });
    }

    public function boot(): void
    {
        $router = $this->app->make('router');
        $router->aliasMiddleware('sluicegate', RateLimit::class);
        // Limits in code need Redis itself.
        $config = $this->app->make('config')->get('sluicegate', []);
        if (($config['throttle'] ?? true) && !isset($config['server'])) {
            $router->aliasMiddleware('throttle', ThrottleRequests::class);
        }
    }
}
