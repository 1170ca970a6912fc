<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Symfony\Component\HttpKernel\CacheWarmer\CacheWarmerInterface;

/**
 * Looks for the policies of `sluicegate.required_policies` when the cache is warmed up, which fails without them. So a
 * wrong name ends a deployment, not a request.
 *
 * @internal
 */
final class PolicyWarmer implements CacheWarmerInterface
{
    /** @param list<string> $policies */
    public function __construct(private readonly Gate $gate, private readonly array $policies)
    {
    }

    /** Not optional: the program set it. */
    public function isOptional(): bool
    {
        return false;
    }

    /**
     * @return list<string> no classes to preload
     * @throws SluicegateException if a policy cannot be used
     */
    public function warmUp(string $cacheDir, ?string $buildDir = null): array
    {
        $this->gate->require(...$this->policies);
        return [];
    }
}
