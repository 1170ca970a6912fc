<?php

/**
 * The interfaces of Symfony 7 that the bundle implements, where they are stricter than those of Debian's 5.4: no
 * registry here has its packages.
 */

declare(strict_types=1);

namespace Symfony\Component\HttpKernel\CacheWarmer {
    interface WarmableInterface
    {
        /** @return string[] */
        public function warmUp(string $cacheDir, ?string $buildDir = null): array;
    }

    interface CacheWarmerInterface extends WarmableInterface
    {
        public function isOptional(): bool;
    }
}

namespace Symfony\Component\EventDispatcher {
    interface EventSubscriberInterface
    {
        /** @return array<string, mixed> */
        public static function getSubscribedEvents(): array;
    }
}

namespace Symfony\Component\RateLimiter {
    interface LimiterInterface
    {
        public function reserve(int $tokens = 1, ?float $maxTime = null): Reservation;

        public function consume(int $tokens = 1): RateLimit;

        public function reset(): void;
    }
}

namespace Symfony\Component\Config\Definition {
    interface ConfigurationInterface
    {
        public function getConfigTreeBuilder(): Builder\TreeBuilder;
    }
}

namespace Symfony\Component\DependencyInjection\Extension {
    use Symfony\Component\DependencyInjection\ContainerBuilder;

    interface ExtensionInterface
    {
        /** @param array<array<mixed>> $configs */
        public function load(array $configs, ContainerBuilder $container): void;

        public function getNamespace(): string;

        public function getXsdValidationBasePath(): string|false;

        public function getAlias(): string;
    }

    abstract class Extension implements ExtensionInterface
    {
        public function getNamespace(): string
        {
            return '';
        }

        public function getXsdValidationBasePath(): string|false
        {
            return false;
        }

        public function getAlias(): string
        {
            return 'sluicegate';
        }
    }
}
