<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Sluicegate\Decision;
use Sluicegate\Exception\Charged;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Limiter;
use Sluicegate\Mode;

/**
 * The permit that a filter holds for a request until that ends.
 *
 * The end is the first of these: a call of `release`; the end of this object; and the end of the script, also by an
 * `exit`, an error, a time limit or a client that is gone. Its id is known before it is acquired, so one of which no
 * answer came is released as well.
 *
 * @internal
 */
final class RequestPermit
{
    /**
     * The permits that may be held, by their ids. An error such as that of the memory limit frees objects without
     * calling their destructors, so these are not objects of this class.
     *
     * @var array<string, array{Limiter, string|null, int}> the limiter, the key and the process
     */
    private static array $open = [];
    private static bool $isRegistered = false;

    private readonly string $id;

    public function __construct(private readonly Limiter $limiter)
    {
        $this->id = bin2hex(random_bytes(16));
    }

    public function __destruct()
    {
        $this->release();
    }

    /**
     * Asks for the permit, once.
     *
     * @throws SluicegateException if there is no decision
     */
    public function acquire(?string $key, int $cost = 1, ?int $maxWaitUs = null): Decision
    {
        self::register();
        self::$open[$this->id] = [$this->limiter, $key, (int) getmypid()];
        try {
            $decision = $this->limiter->acquire($key, $cost, $this->id, $maxWaitUs)->decision;
        } catch (SluicegateException $e) {
            if ($e->charged() === Charged::No) {
                unset(self::$open[$this->id]);
            }
            throw $e;
        }
        // Where an answer came too late, the host has refused, and Redis may have granted it. In shadow, it is none.
        $isRefused = !$decision->allowed && $decision->mode === Mode::Store;
        if ($isRefused || $decision->overflow !== null) {
            unset(self::$open[$this->id]);
        }
        return $decision;
    }

    /** Returns whether it is held, or perhaps held. */
    public function isOpen(): bool
    {
        return isset(self::$open[$this->id]);
    }

    /** Releases the permit if it may be held; a second call does nothing. */
    public function release(): void
    {
        self::releaseOpen($this->id);
    }

    private static function releaseOpen(string $id): void
    {
        [$limiter, $key, $pid] = self::$open[$id] ?? [null, null, 0];
        // A fork is not the end of a request of its parent.
        if ($limiter === null || $pid !== getmypid()) {
            return;
        }
        try {
            $limiter->releaseSurely($key, $id);
        } finally {
            unset(self::$open[$id]);
        }
    }

    /** Registers the end of the script: once in a process, so that workers of many requests collect no functions. */
    private static function register(): void
    {
        if (!self::$isRegistered) {
            self::$isRegistered = true;
            register_shutdown_function(static function (): void {
                array_map(self::releaseOpen(...), array_keys(self::$open));
            });
        }
    }
}
