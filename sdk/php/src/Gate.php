<?php

declare(strict_types=1);

namespace Sluicegate;

use InvalidArgumentException;
use Psr\Clock\ClockInterface;
use Psr\Log\LoggerInterface;
use Psr\SimpleCache\CacheInterface;
use Sluicegate\Direct\DirectDecider;
use Sluicegate\Direct\Options;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\PolicyCache;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Policy\Policies;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Runner;
use Sluicegate\Redis\Store;
use Sluicegate\Remote\HttpGate;
use Sluicegate\Remote\RespDecider;

/**
 * Where limiters come from: the policies of one Redis or of one server.
 */
abstract class Gate
{
    /** How long `close` pays debts at most, in s. */
    private const CLOSE_S = 1.0;

    /** Debts of other keys that are paid beside a decision: some 0.2 ms for the request that pays. */
    private const PAY_MAX = 4;

    private readonly ?Observer $observer;

    /**
     * @param callable(Observation): void|null $observer called after each request
     * @param float $closeSeconds how long `close` goes on paying by default
     */
    protected function __construct(
        private readonly Decider $decider,
        ?callable $observer,
        private readonly float $closeSeconds = self::CLOSE_S,
    ) {
        $this->observer = $observer === null ? null : new Observer($observer);
    }

    /**
     * A gate by a decider, such as one of your own for tests.
     *
     * @param callable(Observation): void|null $observer called after each request
     * @param float $closeSeconds how long `close` goes on paying by default
     */
    public static function of(
        Decider $decider,
        ?callable $observer = null,
        float $closeSeconds = self::CLOSE_S,
    ): self {
        return new class ($decider, $observer, $closeSeconds) extends Gate {
        };
    }

    /**
     * Decides in Redis, without a server between.
     *
     * @param string $app the program's app, by which policies know it; empty: none
     * @param Memory|null $memory what the host keeps for itself. Null: APCu, apart for each Redis (a host with several
     *   clusters gives each an `Apcu` with a prefix of its own); without it, on command lines the process'
     *   own memory, and elsewhere that of the request, and then `on_store_failure: local` is decided as `deny`
     * @param int|null $nodes among how many hosts and servers a limit is shared while Redis does not answer; null: as
     *   servers publish it, else 1
     * @param int $deadlineMs how long a question to Redis may take, 1 to 10,000 ms
     * @param int $maxHoldMs how long `overflow: queue` holds a request (and this process) at most
     * @param int $accountsMax keys at a time that are decided without Redis; each takes some 2 KB of memory
     * @param Clock|ClockInterface|null $clock null: the machine's; a clock of PSR-20 will do
     * @param CacheInterface|null $cache of PSR-16, which keeps policies in place of `$memory`; the rest stays there
     * @param LoggerInterface|null $logger hears when the breaker opens and closes, and of policies that cannot be read,
     *   each once a minute at most; never of keys
     * @param callable(Observation): void|null $observer called after each request: for metrics and traces
     * @throws InvalidRequest if an option is out of its range
     */
    public static function direct(
        Runner $redis,
        string $app = '',
        ?Memory $memory = null,
        ?int $nodes = null,
        int $deadlineMs = 50,
        int $maxHoldMs = 1000,
        int $accountsMax = 10_000,
        ?LoggerInterface $logger = null,
        Clock|ClockInterface|null $clock = null,
        ?CacheInterface $cache = null,
        ?callable $observer = null,
    ): self {
        Ranges::app($app);
        Ranges::number('nodes', $nodes ?? 1, 1, 4294967295);
        Ranges::number('deadline', $deadlineMs, 1, 10_000, ' ms');
        $hasShare = $memory !== null || Apcu::isAvailable() || PHP_SAPI === 'cli';
        $memory ??= Apcu::isAvailable() ? new Apcu('sg:' . $redis->endpoint() . ':') : new ProcessMemory();
        // On command lines APCu, too, is the process' own.
        $endsWithProcess = PHP_SAPI === 'cli' || $memory instanceof ProcessMemory;
        $clock = PsrClock::of($clock ?? new SystemClock());
        $store = new Store($redis, $memory, 1000 * $deadlineMs);
        $ofPolicies = $cache === null ? $memory : new PolicyCache($cache, $memory, $redis->endpoint());
        $policies = new Policies($store, $ofPolicies, $clock, $logger);
        $options = new Options($app, $nodes, 1000 * $maxHoldMs, self::PAY_MAX, $accountsMax, $hasShare);
        $decider = new DirectDecider($policies, $store, $memory, $clock, $options, $logger);
        return self::of($decider, $observer, $endsWithProcess ? self::CLOSE_S : 0.0);
    }

    /**
     * Decides by a server.
     *
     * `http://` and `https://` (or `http+unix:/PATH`) ask with JSON, by an `HttpGate`, which has what only such a
     * server does. `resp://HOST:PORT`, `resps://` (TLS) and `unix:/PATH` are for servers nearby: RESP keeps its
     * connection between requests of a worker; it has times in ms, and neither `at_most` nor the time that header
     * fields report for a rule.
     *
     * @param string|null $token of the app; it needs the scope `check`, and `refund` to give back
     * @param string $app the program's app, for servers without tokens
     * @param int|null $timeoutMs how long an answer is awaited: by default 200 ms over HTTP and 50 ms over RESP. A
     *   policy with `overflow: queue` holds its answers back for as long as it says
     * @param callable(Observation): void|null $observer called after each request
     */
    public static function remote(
        string $url,
        ?string $token = null,
        string $app = '',
        ?int $timeoutMs = null,
        ?callable $observer = null,
    ): self {
        Ranges::app($app);
        if (preg_match('~^(https?://|http\+unix:)~', $url)) {
            return HttpGate::at($url, $token, $app, $timeoutMs ?? 200, $observer);
        }
        if (!preg_match('~^(?:unix:(?<path>/.+)|resp(?<tls>s?)://(?<host>[^/]+):(?<port>\d+))$~', $url, $part)) {
            throw new InvalidArgumentException('the URL of a server begins with http:, https:, resp:, resps: or unix:');
        }
        $host = $part['path'] !== '' ? $part['path'] : ($part['tls'] === 's' ? 'tls://' : '') . $part['host'];
        $runner = PhpRedis::persistent($host, (int) ($part['port'] ?? 0), $token);
        return self::of(new RespDecider($runner, $app, $timeoutMs ?? 50), $observer);
    }

    /** The budgets of a policy that is published. Whether there is one shows when it is asked. */
    public function policy(string $name): Limiter
    {
        return new Limiter($this->decider, $name, null, $this->observer);
    }

    /**
     * The budgets of a limit that is made in code. Programs that name it alike share them.
     *
     * @param string $name 1 to 128 bytes of `[a-z0-9._-]`
     */
    public function limit(string $name, Limit $limit): Limiter
    {
        Ranges::name($name);
        return new Limiter($this->decider, $name, $limit, $this->observer);
    }

    /**
     * Pays what this host owes Redis. A program calls it before it ends.
     *
     * On command lines, and with a memory of the process alone, debts end with the process: until a second has passed
     * or all are paid, what Redis did not answer is tried again each 10 ms. What is owed then is lost. Elsewhere (FPM
     * with APCu) debts are the host's and outlive the request, which is not held up: up to 64 keys are paid, not while
     * the breaker is open, and the first that gets no answer is the last. What is left is paid beside later decisions.
     *
     * @param float|null $seconds how long it goes on; 0: without waiting, as under FPM. A worker's last question to
     *   Redis may take its deadline beyond that
     */
    public function close(?float $seconds = null): void
    {
        $this->decider->close($seconds ?? $this->closeSeconds);
    }
}
