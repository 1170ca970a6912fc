<?php

declare(strict_types=1);

namespace Sluicegate;

use Closure;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Remote\Explanation;
use Sluicegate\Remote\Settlement;
use Throwable;

/**
 * Calls a function of the program after each request, with its result.
 *
 * @internal
 */
final class Observer
{
    /** @var Closure(Observation): void|null */
    private readonly ?Closure $observe;

    /**
     * @param callable(Observation): void|null $observe null: none. Its exceptions change no result
     * @param Log|null $log logs its exceptions
     */
    public function __construct(?callable $observe, private readonly ?Log $log = null)
    {
        $this->observe = $observe === null ? null : $observe(...);
    }

    /**
     * Calls `$call`, then the function of the program, and returns the result of `$call`.
     *
     * @template T of Decision|Settlement|Explanation
     * @param callable(): T $call
     * @return T
     * @throws SluicegateException as `$call` does
     */
    public function watch(string $policy, string $verb, callable $call): mixed
    {
        if ($this->observe === null) {
            return $call();
        }
        $begin = hrtime(true);
        [$result, $decision, $error] = [null, null, null];
        try {
            $result = $call();
            $decision = $result instanceof Decision ? $result : $result->decision;
        } catch (SluicegateException $e) {
            $error = $e;
        }
        $observation = new Observation($policy, $verb, $decision, $error, intdiv(hrtime(true) - $begin, 1000));
        try {
            ($this->observe)($observation);
        } catch (Throwable $e) {
            // The permits are taken: the caller must hear of them.
            $what = $e::class . ': ' . SluicegateException::truncate($e->getMessage());
            $this->log?->warn('observer', "the observer throws $what", exception: $e);
        }
        return $error === null ? $result : throw $error;
    }
}
