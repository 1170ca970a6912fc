<?php

declare(strict_types=1);

namespace Sluicegate;

use InvalidArgumentException;
use LogicException;
use Psr\Clock\ClockInterface;
use Psr\Log\LoggerInterface;
use Psr\SimpleCache\CacheInterface;
use SensitiveParameter;
use Sluicegate\Direct\DirectDecider;
use Sluicegate\Direct\Options;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\SluicegateException;
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
use Sluicegate\Remote\ServerLog;

/**
 * Makes limiters: of the policies of one Redis or one server, or of limits that are made in code.
 */
class Gate
{
    /** The longest time that `close` pays debts by default, in s. */
    private const CLOSE_S = 1.0;

    /** The most debts of other keys that are paid beside a decision: about 0.2 ms for the request that pays. */
    private const PAY_MAX = 4;

    /** The longest hold in ms: 366 days, as the longest `max_wait` of a policy. */
    private const HOLD_MAX_MS = 31_622_400_000;

    /** Accounts of this many keys take 2 GB. */
    private const ACCOUNTS_MAX = 1_000_000;

    /** @param float $closeSeconds the longest time that `close` pays by default */
    protected function __construct(
        private readonly Decider $decider,
        private readonly ?Observer $observer,
        private readonly float $closeSeconds = self::CLOSE_S,
    ) {
    }

    /**
     * Returns a gate that uses a decider. For tests of a program see `Testing\Script` and `Testing\InMemoryGate`.
     *
     * @internal
     * @param float $closeSeconds the longest time that `close` pays by default
     */
    public static function of(
        Decider $decider,
        ?Observer $observer = null,
        float $closeSeconds = self::CLOSE_S,
    ): self {
        if (static::class !== self::class) {
            throw new LogicException('this would be no `' . static::class . '`; call it on `Gate`');
        }
        return new self($decider, $observer, $closeSeconds);
    }

    /**
     * Decides in Redis, without a server between.
     *
     * @param string $app the program's app, which policies list in `apps`; empty: none
     * @param Memory|null $memory the host's own policies, refusals, breaker and debts. Null: APCu, with a prefix for
     *   each Redis (with several clusters, give each an `Apcu` with its own prefix); without APCu, on command lines the
     *   memory of the process, and elsewhere that of the request, and then `on_store_failure: local` is decided as
     *   `deny`
     * @param int|null $nodes the number of hosts and servers that share a limit while Redis does not answer; null: the
     *   number that servers publish (`store.nodes`), else 1. Programs are not counted: unless one of the two is set,
     *   each admits the whole limit while Redis is away. A process with a memory of its own counts as a host: each
     *   worker of RoadRunner, and of Swoole without APCu
     * @param int $deadlineMs the longest time that one request to Redis takes, 1 to 10,000 ms
     * @param int $maxHoldMs the longest time that `overflow: queue` holds a request (and this process) back,
     *   0 to 31,622,400,000 ms
     * @param int $accountsMax the most keys that are decided without Redis at a time, 1 to 1,000,000; each takes about
     *   2 KB of memory
     * @param Clock|ClockInterface|null $clock null: the machine's clock; a PSR-20 clock works, too
     * @param CacheInterface|null $cache a PSR-16 cache for policies; `$memory` then holds everything else
     * @param LoggerInterface|null $logger logs that Redis does not answer or decides again, with its address, the
     *   cause and what decides meanwhile; that policies are missing or cannot be read; and that the observer throws.
     *   Each once a minute at most; it never gets keys
     * @param callable(Observation): void|null $observer called after each request: for metrics and traces. Its
     *   exceptions change no decision
     * @throws InvalidRequest if the app, the nodes or the deadline are out of range
     * @throws InvalidArgumentException if another option is out of its range
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
        Ranges::deadline($deadlineMs);
        Ranges::option('maxHoldMs', $maxHoldMs, 0, self::HOLD_MAX_MS);
        Ranges::option('accountsMax', $accountsMax, 1, self::ACCOUNTS_MAX);
        $hasShare = $memory !== null || Apcu::isAvailable() || PHP_SAPI === 'cli';
        $memory ??= Apcu::isAvailable() ? new Apcu('sg:' . $redis->endpoint() . ':') : new ProcessMemory();
        // On command lines APCu, too, is the process' own.
        $endsWithProcess = PHP_SAPI === 'cli' || $memory instanceof ProcessMemory;
        $clock = PsrClock::of($clock ?? new SystemClock());
        // A memory that ends with each request knows neither the start of the host nor what was logged.
        $outlivesRequests = PHP_SAPI === 'cli' || !$memory instanceof ProcessMemory;
        $store = new Store($redis, $memory, 1000 * $deadlineMs, $outlivesRequests);
        $log = $logger === null ? null : Log::of($logger, $outlivesRequests ? $memory : null, $redis->endpoint());
        $ofPolicies = $cache === null ? $memory : new PolicyCache($cache, $memory, $redis->endpoint());
        $policies = new Policies($store, $ofPolicies, $clock, $log);
        $options = new Options($app, $nodes, 1000 * $maxHoldMs, self::PAY_MAX, $accountsMax, $hasShare);
        $decider = new DirectDecider($policies, $store, $memory, $clock, $options, $log);
        $observer = $observer === null ? null : new Observer($observer, $log);
        return self::of($decider, $observer, $endsWithProcess ? self::CLOSE_S : 0.0);
    }

    /**
     * Decides by a server.
     *
     * `http://` and `https://` (or `http+unix:/PATH`) send JSON through an `HttpGate`, which also has batches, `settle`
     * and `explain`. `resp://HOST:PORT`, `resps://` (TLS) and `unix:/PATH` are for servers nearby: RESP keeps its
     * connection between requests of a worker; its times are in ms, and it supports neither `at_most` nor the windows
     * of rules in header fields.
     *
     * @param string|null $token the app's token; it needs the scope `check`, and `refund` to give permits back
     * @param string $app the program's app, for servers without tokens
     * @param int|null $timeoutMs the longest wait for an answer, 1 to 10,000 ms: by default 200 ms over HTTP and 50 ms
     *   over RESP. With `overflow: queue`, answers take up to `max_wait` longer
     * @param callable(Observation): void|null $observer called after each request. Its exceptions change no decision
     * @param LoggerInterface|null $logger logs that the server gives no decisions, with its address and the cause, and
     *   that it decides again; and that the observer throws. Each once a minute at most; it never gets keys
     * @throws InvalidRequest if the app or the timeout (`deadline_range`) is not valid
     * @throws InvalidArgumentException if the URL is not that of a server
     */
    public static function remote(
        #[SensitiveParameter] string $url,
        #[SensitiveParameter] ?string $token = null,
        string $app = '',
        ?int $timeoutMs = null,
        ?callable $observer = null,
        ?LoggerInterface $logger = null,
    ): self {
        Ranges::app($app);
        if (preg_match('~^(https?://|http\+unix:)~', $url)) {
            return HttpGate::at($url, $token, $app, $timeoutMs ?? 200, $observer, $logger);
        }
        // Without a user: the token is an argument, and the host is part of errors.
        $host = '[^\s:/?#@\[\]]+|\[[0-9A-Fa-f:.]+\]';
        $form = "~^(?:unix:(?<path>/.+)|resp(?<tls>s?)://(?<host>$host):(?<port>\\d{1,5}))$~D";
        $isRead = preg_match($form, $url, $part);
        if (!$isRead || (int) ($part['port'] ?? 0) > 65535) {
            $wanted = 'expected one that begins with http:, https:, resp:, resps: or unix:';
            throw new InvalidArgumentException('server: `' . Secrets::without($url) . "` is not a URL; $wanted");
        }
        $host = $part['path'] !== '' ? $part['path'] : ($part['tls'] === 's' ? 'tls://' : '') . $part['host'];
        $runner = PhpRedis::persistent($host, (int) ($part['port'] ?? 0), $token);
        $timeoutMs ??= 50;
        Ranges::deadline($timeoutMs);
        $log = $logger === null ? null : Log::of($logger, null, $url);
        $observer = $observer === null ? null : new Observer($observer, $log);
        $log = new ServerLog(Secrets::without($url), $log);
        return self::of(new RespDecider($runner, $app, $timeoutMs, $log), $observer);
    }

    /** Returns the limiter of a published policy. An unknown name is reported by its first request, not here. */
    public function policy(string $name): Limiter
    {
        return new Limiter($this->decider, $name, null, $this->observer);
    }

    /**
     * Returns the limiter of a limit that is made in code. Programs that use the same name share its budgets.
     *
     * @param string $name 1 to 128 bytes of `[a-z0-9._-]`
     */
    public function limit(string $name, Limit $limit): Limiter
    {
        Ranges::name($name);
        return new Limiter($this->decider, $name, $limit, $this->observer);
    }

    /**
     * Checks that policies can be used: for the start of a program, or a command of its deployment.
     *
     * @throws SluicegateException if one is not published, cannot be read, or is for other apps; or if there is no
     *   answer
     */
    public function require(string ...$policies): void
    {
        $this->decider->require(array_values($policies));
    }

    /**
     * Opens the connection, reads the policies, and loads the script and the classes of a decision, so that the first
     * request finds all of that: for workers that serve many requests, before the first. It takes no permits, and two
     * deadlines at most; errors are left to the requests.
     */
    public function warmUp(): void
    {
        $this->decider->warmUp();
    }

    /**
     * Returns whether requests get decisions now, by asking Redis or the server: for a check of operators.
     *
     * @param string ...$policies names of policies that must be there, besides those that this host has used
     */
    public function health(string ...$policies): Health
    {
        return $this->decider->health(array_values($policies));
    }

    /**
     * Pays the permits that this host owes Redis. Call it before the program ends.
     *
     * On command lines, and with a `ProcessMemory`, debts end with the process: payments without an answer are tried
     * again every 10 ms until all are paid or a second has passed; debts that remain are lost. Elsewhere (FPM with
     * APCu) debts belong to the host and outlive the request, which does not wait: up to 64 keys are paid, unless the
     * breaker is open, and the first payment without an answer is the last. The other debts are paid beside later
     * decisions.
     *
     * @param float|null $seconds the longest time that it pays; 0: without waiting, as under FPM. The last request to
     *   Redis may exceed it by the deadline
     */
    public function close(?float $seconds = null): void
    {
        $this->decider->close($seconds ?? $this->closeSeconds);
    }
}
