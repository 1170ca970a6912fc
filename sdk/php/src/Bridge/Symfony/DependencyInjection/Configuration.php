<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony\DependencyInjection;

use Symfony\Component\Config\Definition\Builder\ArrayNodeDefinition;
use Symfony\Component\Config\Definition\Builder\TreeBuilder;
use Symfony\Component\Config\Definition\ConfigurationInterface;

/**
 * The configuration `sluicegate`.
 *
 * @internal
 */
final class Configuration implements ConfigurationInterface
{
    public function getConfigTreeBuilder(): TreeBuilder
    {
        $tree = new TreeBuilder('sluicegate');
        $tree->getRootNode()
            ->validate()
                ->ifTrue(static fn (array $c): bool => count(array_filter([
                    $c['redis'] ?? null, $c['runner'] ?? null, $c['server'] ?? null,
                ])) !== 1)
                ->thenInvalid('expected one of "redis", "runner" and "server"')
            ->end()
            ->validate()
                ->ifTrue(static fn (array $c): bool => isset($c['server'])
                    && array_filter($c['limiters'], static fn (array $l): bool => isset($l['rules'])) !== [])
                ->thenInvalid('limiters with "rules" need "redis" or "runner"; a server decides by its policies')
            ->end()
            ->validate()
                ->ifTrue(static fn (array $c): bool => array_diff(
                    array_column([...$c['requests'], ...$c['concurrency']], 'limiter'),
                    array_map(strval(...), array_keys($c['limiters'])),
                ) !== [])
                ->thenInvalid('each of "requests" and "concurrency" names one of "limiters"')
            ->end()
            ->children()
                ->scalarNode('redis')
                    ->info('The URL of Redis: redis://[user:password@]host[:port], rediss://… or unix:/path.')
                ->end()
                ->scalarNode('runner')->info('The service id of a Sluicegate\Redis\Runner, such as Predis.')->end()
                ->scalarNode('server')->info('The URL of a Sluicegate server that decides instead.')->end()
                ->scalarNode('token')->info('The token of the app at the server.')->defaultNull()->end()
                ->integerNode('timeout_ms')->info('How long an answer of the server is awaited.')->defaultNull()->end()
                ->scalarNode('app')->info('The app, by which policies know this program.')->defaultValue('')->end()
                ->integerNode('nodes')
                    ->info('Among how many hosts limits are shared without Redis; null: as servers publish it.')
                    ->defaultNull()
                ->end()
                ->integerNode('deadline_ms')->defaultValue(50)->end()
                ->integerNode('max_hold_ms')->defaultValue(1000)->end()
                ->integerNode('accounts_max')->defaultValue(10_000)->end()
                ->scalarNode('cache')
                    ->info('The service id of a cache of PSR-16 for policies, in place of APCu.')
                    ->defaultNull()
                ->end()
                ->scalarNode('observer')
                    ->info('The service id of a function that gets an Observation after each request, for metrics.')
                    ->defaultNull()
                ->end()
                ->arrayNode('required_policies')
                    ->info('Policies that the cache warmer looks for: names, or true for those of "limiters".')
                    ->beforeNormalization()
                        ->ifTrue(static fn (mixed $value): bool => is_bool($value))
                        ->then(static fn (bool $all): array => $all ? ['*'] : [])
                    ->end()
                    ->scalarPrototype()->end()
                ->end()
                ->scalarNode('clock')->info('The service id of a clock of PSR-20, for tests.')->defaultNull()->end()
                ->append(self::requests('requests', 'Requests whose rate is limited before a controller is called'))
                ->append(self::requests('concurrency', 'Requests of which so many are handled at once', waits: true))
                ->arrayNode('limiters')
                    ->info('The services limiter.NAME: each the name of a policy, or rules that are made here.')
                    ->normalizeKeys(false)
                    ->useAttributeAsKey('name')
                    ->arrayPrototype()
                        ->beforeNormalization()
                            ->ifString()->then(static fn (string $policy): array => ['policy' => $policy])
                        ->end()
                        ->validate()
                            ->ifTrue(static fn (array $l): bool => isset($l['policy']) === isset($l['rules']))
                            ->thenInvalid('expected one of "policy" and "rules"')
                        ->end()
                        ->children()
                            ->scalarNode('policy')->cannotBeEmpty()->end()
                            ->variableNode('rules')->info('A list of rules, with the parameters of a policy.')->end()
                            ->enumNode('on_store_failure')->values(['local', 'allow', 'deny'])
                                ->info('What is decided while Redis does not answer; for "rules".')
                                ->defaultValue('local')
                            ->end()
                        ->end()
                    ->end()
                ->end()
            ->end();
        return $tree;
    }

    /** @param bool $waits whether they can wait */
    private static function requests(string $name, string $info, bool $waits = false): ArrayNodeDefinition
    {
        $node = (new TreeBuilder($name))->getRootNode();
        $entry = $node
            ->info("$info: the first whose path fits.")
            ->arrayPrototype()
                ->children()
                    ->scalarNode('path')
                        ->info('A regular expression, such as ^/api/.')
                        ->defaultValue('^/')
                        ->validate()
                            ->ifTrue(static fn (mixed $path): bool => @preg_match("\1$path\1", '') === false)
                            ->thenInvalid('expected a regular expression without delimiters, not %s')
                        ->end()
                    ->end()
                    ->scalarNode('limiter')->info('A name of "limiters".')->isRequired()->end()
                    ->scalarNode('key')
                        ->info('What the key is: address, all, or header:NAME.')
                        ->defaultValue('address')
                        ->validate()
                            ->ifTrue(static fn (mixed $key): bool =>
                                !preg_match('/^(address|all|header:[\w-]+)$/D', (string) $key))
                            ->thenInvalid('expected address, all or header:NAME, not %s')
                        ->end()
                    ->end()
                    ->booleanNode('shared')
                        ->info('Whether requests without that key share one budget, in place of a 400.')
                        ->defaultFalse()
                    ->end();
        if ($waits) {
            $entry->integerNode('max_wait_ms')
                ->info('How long a request, and its process, waits for a permit; null: as the policy says.')
                ->min(0)->max(31_622_400_000)
                ->defaultNull();
        }
        return $node;
    }
}
