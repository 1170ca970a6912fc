<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Illuminate\Support\ServiceProvider;
use InvalidArgumentException;
use Sluicegate\Gate;
use Sluicegate\Redis\PhpRedis;

/**
 * Registers a `Gate`, the middlewares `throttle`, `sluicegate` and `sluicegate.concurrency`, and the command
 * `sluicegate:check`.
 *
 * `config/sluicegate.php`: `server` (the URL of a server, with `token` and `timeout_ms`), or else `url` of Redis, or
 * its `host`, `port` and `auth`; `app`, `nodes`, `deadline_ms`; `cache`, the name of a cache store that keeps policies
 * in place of APCu; `observer`, the class of a function that is called after each request; `required`, the names of
 * policies that `sluicegate:check` looks for; and `throttle` (false: Laravel's own stays).
 */
final class SluicegateServiceProvider extends ServiceProvider
{
    private const SETTINGS = [
        'server', 'token', 'timeout_ms', 'url', 'host', 'port', 'auth', 'app', 'nodes', 'deadline_ms', 'cache',
        'observer', 'required', 'throttle',
    ];

    public function register(): void
    {
        $this->app->singleton(Gate::class, static function ($app): Gate {
            $config = self::settings($app);
            $logger = $app->bound('log') ? $app->make('log') : null;
            $observer = isset($config['observer']) ? $app->make($config['observer']) : null;
            if (isset($config['server'])) {
                $timeoutMs = isset($config['timeout_ms']) ? self::number($config, 'timeout_ms', 0) : null;
                return self::named('server', static fn (): Gate => Gate::remote(
                    $config['server'],
                    $config['token'] ?? null,
                    $config['app'] ?? '',
                    $timeoutMs,
                    $observer,
                    $logger,
                ));
            }
            $redis = isset($config['url'])
                ? self::named('url', static fn (): PhpRedis => PhpRedis::ofUrl((string) $config['url']))
                : PhpRedis::persistent(
                    $config['host'] ?? '127.0.0.1',
                    self::number($config, 'port', 6379),
                    $config['auth'] ?? null,
                );
            return Gate::direct(
                $redis,
                $config['app'] ?? '',
                nodes: isset($config['nodes']) ? self::number($config, 'nodes', 1) : null,
                deadlineMs: self::number($config, 'deadline_ms', 50),
                logger: $logger,
                cache: isset($config['cache']) ? $app->make('cache')->store($config['cache']) : null,
                observer: $observer,
            );
        });
    }

    public function boot(): void
    {
        $router = $this->app->make('router');
        $router->aliasMiddleware('sluicegate', RateLimit::class);
        $router->aliasMiddleware('sluicegate.concurrency', Concurrency::class);
        // Limits in code need Redis itself.
        $config = $this->app->make('config')->get('sluicegate', []);
        if (($config['throttle'] ?? true) && !isset($config['server'])) {
            $router->aliasMiddleware('throttle', ThrottleRequests::class);
        }
        // A container that is not an application has no command line.
        if (method_exists($this->app, 'runningInConsole') && $this->app->runningInConsole()) {
            $this->commands([CheckCommand::class]);
        }
    }

    /**
     * Returns the configuration.
     *
     * @param \Illuminate\Contracts\Container\Container $app
     * @return array<string, mixed>
     * @throws InvalidArgumentException if it has a setting that does not exist
     */
    private static function settings($app): array
    {
        $config = $app->make('config')->get('sluicegate', []);
        $unknown = array_key_first(array_diff_key($config, array_flip(self::SETTINGS)));
        if ($unknown !== null) {
            $settings = '`' . implode('`, `', self::SETTINGS) . '`';
            $problem = "there is no such setting; expected one of $settings";
            throw new InvalidArgumentException("sluicegate.$unknown: $problem");
        }
        return $config;
    }

    /** @param array<string, mixed> $config */
    private static function number(array $config, string $name, int $default): int
    {
        $number = filter_var($config[$name] ?? $default, FILTER_VALIDATE_INT);
        if ($number === false) {
            $value = $config[$name];
            $shown = is_scalar($value) ? substr((string) $value, 0, 100) : get_debug_type($value);
            throw new InvalidArgumentException("sluicegate.$name: `$shown` is not a whole number");
        }
        return $number;
    }

    /**
     * Names the setting in the error of a function that reads it.
     *
     * @template T
     * @param callable(): T $read
     * @return T
     */
    private static function named(string $name, callable $read): mixed
    {
        try {
            return $read();
        } catch (InvalidArgumentException $e) {
            throw new InvalidArgumentException("sluicegate.$name: {$e->getMessage()}", 0, $e);
        }
    }
}
