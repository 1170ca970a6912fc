<?php

declare(strict_types=1);

namespace Sluicegate;

use Closure;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Remote\Explanation;
use Sluicegate\Remote\Settlement;

/**
 * Tells a function of the program what became of each request.
 */
final class Observer
{
    /** @var Closure(Observation): void|null */
    private readonly ?Closure $tell;

    /** @param callable(Observation): void|null $tell null: nobody is told. What it throws goes to the caller */
    public function __construct(?callable $tell)
    {
        $this->tell = $tell === null ? null : $tell(...);
    }

    /**
     * What `$ask` gives, after the function was told.
     *
     * @template T of Decision|Settlement|Explanation
     * @param callable(): T $ask
     * @return T
     * @throws SluicegateException as `$ask` does
     */
    public function watch(string $policy, string $verb, callable $ask): mixed
    {
        if ($this->tell === null) {
            return $ask();
        }
        $begin = hrtime(true);
        [$result, $decision, $error] = [null, null, null];
        try {
            $result = $ask();
            $decision = $result instanceof Decision ? $result : $result->decision;
        } catch (SluicegateException $e) {
            $error = $e;
        }
        ($this->tell)(new Observation($policy, $verb, $decision, $error, intdiv(hrtime(true) - $begin, 1000)));
        return $error === null ? $result : throw $error;
    }
}
