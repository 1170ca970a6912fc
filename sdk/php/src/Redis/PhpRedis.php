<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use InvalidArgumentException;
use LogicException;
use Redis;
use RedisException;
use SensitiveParameter;
use Sluicegate\Secrets;

/**
 * Redis by the extension phpredis (5.3.7 or later). Key prefixes and serializers of the client have no effect.
 */
final class PhpRedis implements Runner
{
    /** The longest time that connecting may take, in s; a request ends after 10 s anyway. */
    private const TIMEOUT_MAX_S = 10;

    /** Messages of the extension where the other end closed the connection. */
    private const CLOSED = ['Connection lost', 'socket error on read socket'];

    private bool $connected;
    private int $timeoutMs = 0;

    /** True once Redis has replied here. */
    private bool $hasReplied = false;

    /** The process that made it, or that left the connection of its parent. */
    private int $pid;

    /** True if this process is a fork of the one that made it: then it has persistent connections of its own. */
    private bool $isFork = false;

    /** @var list<Redis> clients of parents, kept so that their end here does not close a connection of the parent */
    private static array $inherited = []; // @phpstan-ignore property.onlyWritten

    /** @var array<int, mixed> the options of a caller's client whose connection the extension gave up */
    private array $options = [];

    /**
     * @param array{string, int, string|null, mixed, float, int} $address host, port, persistent id, credentials,
     *   connect timeout, database
     * @param bool $isOwn false for a client that the caller connected
     * @param Sentinels|null $sentinels they give the host and the port in place of the address
     */
    private function __construct(
        private Redis $client,
        #[SensitiveParameter] private readonly array $address,
        private bool $isOwn = true,
        private readonly ?Sentinels $sentinels = null,
    ) {
        $this->connected = !$isOwn;
        $this->pid = (int) getmypid();
    }

    /**
     * A connection that stays open between requests of a worker (`pconnect`): the choice for FPM.
     *
     * @param string $host a host, `tls://host`, or the path of a unix socket (with port 0)
     * @param array<mixed>|string|null $auth a password, or a user and a password
     * @param float $timeout seconds that connecting may take
     */
    public static function persistent(
        string $host,
        int $port = 6379,
        #[SensitiveParameter] array|string|null $auth = null,
        float $timeout = 0.1,
    ): self {
        $auth = $auth === null ? null : (array) $auth;
        return new self(new Redis(), [$host, $port, self::persistentId($host, $port, $auth), $auth, $timeout, 0]);
    }

    /**
     * A persistent connection to the master that Sentinels name. Processes of a host query them once a minute (each
     * request without APCu), and again where the master does not answer or has become a replica.
     *
     * @param non-empty-list<string> $sentinels `host:port` each, queried in this order until one answers
     * @param string $master its name there, such as `mymaster`
     * @param array<mixed>|string|null $auth at the master: a password, or a user and a password
     * @param array<mixed>|string|null $sentinelAuth at the Sentinels
     * @param float $timeout seconds that connecting to each may take
     */
    public static function sentinel(
        array $sentinels,
        string $master,
        #[SensitiveParameter] array|string|null $auth = null,
        #[SensitiveParameter] array|string|null $sentinelAuth = null,
        float $timeout = 0.1,
    ): self {
        $auth = $auth === null ? null : (array) $auth;
        $finder = new Sentinels($sentinels, $master, $sentinelAuth === null ? null : (array) $sentinelAuth);
        return new self(new Redis(), ['', 0, '', $auth, $timeout, 0], sentinels: $finder);
    }

    /**
     * A connection of this object alone. Parameters as of `persistent`.
     *
     * @param array<mixed>|string|null $auth
     */
    public static function connect(
        string $host,
        int $port = 6379,
        #[SensitiveParameter] array|string|null $auth = null,
        float $timeout = 0.1,
    ): self {
        return new self(new Redis(), [$host, $port, null, $auth === null ? null : (array) $auth, $timeout, 0]);
    }

    /**
     * A persistent connection by a URL: `redis://[user:password@]host[:port]`, `rediss://…` (TLS) or `unix:/path`.
     *
     * @param string $url `?timeout=SECONDS` at its end takes the place of `$timeout`
     * @param float $timeout seconds that connecting may take
     * @throws InvalidArgumentException if it is not such a URL; programs and servers share database 0. The message
     *   shows the URL without its password
     */
    public static function ofUrl(#[SensitiveParameter] string $url, float $timeout = 0.1): self
    {
        [$plain, $query] = [...explode('?', $url, 2), ''];
        $timeout = self::timeoutOf($url, $query) ?? $timeout;
        if (preg_match('~^unix:(?://)?(/.+)$~D', $plain, $path)) {
            return self::persistent($path[1], 0, null, $timeout);
        }
        $part = parse_url($plain) ?: [];
        $isTls = ($part['scheme'] ?? '') === 'rediss';
        $isKnown = array_diff_key($part, array_flip(['scheme', 'host', 'port', 'user', 'pass', 'path'])) === [];
        $isDatabase0 = in_array($part['path'] ?? '', ['', '/', '/0'], true);
        // `parse_url` takes `[::1` for a host of the name `[:`, and a port.
        $hasHost = (bool) preg_match('~^(\[[^\[\]]+\]|[^\[\]:]+)$~D', $part['host'] ?? '');
        if (!in_array($part['scheme'] ?? '', ['redis', 'rediss'], true) || !$hasHost || !$isKnown) {
            throw self::badUrl($url, 'is not a URL of Redis; expected redis://HOST, rediss://HOST or unix:/PATH');
        }
        if (!$isDatabase0) {
            throw self::badUrl($url, 'names a database; expected none, or 0');
        }
        if (($part['user'] ?? '') !== '' && ($part['pass'] ?? '') === '') {
            throw self::badUrl($url, 'names a user without a password');
        }
        $auth = array_map(rawurldecode(...), array_values(array_filter(
            [$part['user'] ?? '', $part['pass'] ?? ''],
            static fn (string $text): bool => $text !== '',
        )));
        $host = ($isTls ? 'tls://' : '') . trim($part['host'], '[]');
        return self::persistent($host, $part['port'] ?? 6379, $auth ?: null, $timeout);
    }

    /** Returns the `timeout` of a URL's query, in s; null if it has none. */
    private static function timeoutOf(#[SensitiveParameter] string $url, #[SensitiveParameter] string $query): ?float
    {
        parse_str($query, $options);
        $unknown = array_key_first(array_diff_key($options, ['timeout' => null]));
        if ($unknown !== null) {
            $name = substr((string) $unknown, 0, 100);
            throw self::badUrl($url, "has the unknown parameter `$name`; expected `timeout`, in seconds, or none");
        }
        if (!isset($options['timeout'])) {
            return null;
        }
        $timeout = filter_var($options['timeout'], FILTER_VALIDATE_FLOAT);
        return $timeout !== false && $timeout > 0 && $timeout <= self::TIMEOUT_MAX_S
            ? $timeout
            : throw self::badUrl($url, 'has a `timeout` that is not a number of seconds up to ' . self::TIMEOUT_MAX_S);
    }

    private static function badUrl(#[SensitiveParameter] string $url, string $what): InvalidArgumentException
    {
        return new InvalidArgumentException('redis: `' . Secrets::without($url) . "` $what");
    }

    /**
     * A client that is connected already. Its read timeout is as before after each call; its retries are switched
     * off. A connection that is lost is opened again at the same address, with the same options; only a stream context
     * (certificates of TLS) cannot be read from the client. For a cluster see `PhpRedisCluster`.
     */
    public static function of(Redis $client): self
    {
        self::withoutRetries($client);
        return new self($client, [
            (string) $client->getHost(),
            (int) $client->getPort(),
            $client->getPersistentID() ?: null,
            $client->getAuth() ?: null,
            (float) $client->getTimeout(),
            (int) $client->getDbNum(),
        ], isOwn: false);
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        if (getmypid() !== $this->pid) {
            $this->leaveToParent();
        }
        if ($this->isOwn) {
            return $this->send($command, $leftUs);
        }
        // A timeout of 0, that of PHP, would be none at all on a connection that is open.
        $timeout = $this->client->getOption(Redis::OPT_READ_TIMEOUT) ?: (float) ini_get('default_socket_timeout');
        try {
            return $this->send($command, $leftUs);
        } finally {
            $this->client->setOption(Redis::OPT_READ_TIMEOUT, $timeout);
            $this->timeoutMs = 0;
        }
    }

    /** @param non-empty-list<string|int> $command */
    private function send(array $command, int $leftUs): mixed
    {
        $client = $this->client;
        try {
            $this->prepare($leftUs);
        } catch (RedisException $e) {
            $this->lost();
            // Where it connects, only an error of Redis begins with a word in capitals.
            $isError = preg_match('/^-?[A-Z]{2,} /', $e->getMessage());
            throw $this->failure($e, false, $isError ? (new ErrorReply($e->getMessage()))->code() : '');
        }
        try {
            $client->clearLastError();
            $reply = $client->rawCommand(...$command);
        } catch (RedisException $e) {
            return $this->failed($e);
        }
        if ($reply === $client) {
            throw new LogicException('the client of Redis is in a transaction or a pipeline');
        }
        $this->hasReplied = true;
        if ($reply !== false) {
            return $reply;
        }
        $error = $client->getLastError();
        return $error === null ? null : $this->error($error);
    }

    /**
     * Keeps the extension from connecting anew in the middle of a reply: it would wait for the rest of it for ever.
     */
    private static function withoutRetries(Redis $client): void
    {
        if (defined('Redis::OPT_MAX_RETRIES')) {
            $client->setOption(Redis::OPT_MAX_RETRIES, 0);
        }
    }

    public function endpoint(): string
    {
        return $this->sentinels?->endpoint() ?? "{$this->address[0]}:{$this->address[1]}/{$this->address[5]}";
    }

    /** Connects, and sets the longest wait for a reply; connecting and the reply end together. */
    private function prepare(int $leftUs): void
    {
        if (!$this->connected) {
            $ends = hrtime(true) + 1000 * $leftUs;
            $this->open($ends);
            $leftUs = intdiv($ends - hrtime(true), 1000);
            if ($leftUs <= 0) {
                // The next call finds the connection open.
                throw new ConnectionFailure('connecting took as long as the call may take', false);
            }
        }
        $timeoutMs = max(intdiv($leftUs + 999, 1000), 1);
        if ($timeoutMs !== $this->timeoutMs) {
            $this->client->setOption(Redis::OPT_READ_TIMEOUT, $timeoutMs / 1000);
            $this->timeoutMs = $timeoutMs;
        }
    }

    /**
     * Connects; a caller's client with its options, since the extension does not reconnect after it gave up.
     *
     * @param int $ends the deadline, in ns of `hrtime`
     */
    private function open(int $ends): void
    {
        [$host, $port, $id, $auth, $timeout, $database] = $this->address;
        $left = static fn (): float => max($ends - hrtime(true), 1_000_000) / 1e9;
        $timeout = $timeout > 0 ? min($timeout, $left()) : $left();
        if ($this->sentinels !== null) {
            [$host, $port] = $this->sentinels->master($timeout);
            $id = self::persistentId($host, $port, $auth);
        }
        $warning = '';
        // The first warning has the cause, such as a certificate that is not valid.
        set_error_handler(static function (int $level, string $text) use (&$warning): bool {
            $warning = $warning === '' ? ': ' . preg_replace('/^Redis::p?connect\(\): /', '', $text) : $warning;
            return true;
        });
        try {
            $connected = $id === null
                ? $this->client->connect($host, $port, $timeout, null, 0, $timeout)
                : $this->client->pconnect($host, $port, $timeout, $this->isFork ? "$id:$this->pid" : $id, 0, $timeout);
        } finally {
            restore_error_handler();
        }
        if (!$connected) {
            throw new RedisException("cannot connect to $host:$port$warning");
        }
        self::withoutRetries($this->client);
        $this->client->setOption(Redis::OPT_READ_TIMEOUT, $left());
        if ($auth !== null && !$this->client->auth($auth)) {
            throw new RedisException($this->client->getLastError() ?? 'WRONGPASS invalid credentials');
        }
        if ($database > 0 && !$this->client->select($database)) {
            throw new RedisException("cannot use database $database");
        }
        foreach ($this->options as $option => $value) {
            @$this->client->setOption($option, $value);
        }
        [$this->connected, $this->timeoutMs, $this->options] = [true, 0, []];
    }

    /**
     * Leaves the connection to the process that opened it, and connects anew: this process is a fork of that one, and
     * two that read one connection would read each other's replies.
     */
    private function leaveToParent(): void
    {
        self::$inherited[] = $this->client;
        $this->client = new Redis();
        [$this->pid, $this->isFork, $this->isOwn] = [(int) getmypid(), true, true];
        [$this->connected, $this->timeoutMs, $this->options] = [false, 0, []];
    }

    /** Returns the error of Redis that an exception contains; throws if it is an error of the client. */
    private function failed(RedisException $e): ErrorReply
    {
        // An error of Redis begins with a word in capitals, or its place in the script; messages of the client do not.
        if (preg_match('/^(?:-?[A-Z]{2,}(?: |$)|@user_script:)/', $e->getMessage())) {
            return $this->error($e->getMessage());
        }
        $this->disconnect();
        // The extension's message where it cannot connect, before it sends anything.
        throw $this->failure($e, !str_ends_with($e->getMessage(), ' went away'));
    }

    /** @param string $word the first word of the error with which Redis refused the connection */
    private function failure(RedisException $e, bool $sent, string $word = ''): ConnectionFailure
    {
        $message = $e->getMessage();
        // A server of TLS answers a client that does not speak it with this byte, or closes the connection.
        if (str_contains($message, "got '\x15'")) {
            $message = 'it expects TLS, as rediss://HOST or tls://HOST say';
        } elseif (in_array($message, self::CLOSED, true) && !$this->hasReplied && !$this->isTls()) {
            $message .= ' (a Redis that expects TLS, as rediss://HOST or tls://HOST say, does that, too)';
        } elseif (str_starts_with($message, 'protocol error')) {
            $word = ConnectionFailure::NOT_REDIS;
        }
        return new ConnectionFailure($message, $sent, $e, $word);
    }

    private function isTls(): bool
    {
        return (bool) preg_match('~^(tls|ssl)://~', $this->address[0]);
    }

    private function error(string $message): ErrorReply
    {
        $reply = new ErrorReply($message);
        if ($this->isOwn && $reply->code() === 'READONLY') {
            // The master has become a replica: the next connection goes to the new master.
            $this->disconnect();
        }
        return $reply;
    }

    /** Closes the connection: a late reply must never be read as that of the next command. */
    private function disconnect(): void
    {
        try {
            $isClosed = $this->client->close();
        } catch (\Exception) {
            $isClosed = false;
        }
        if (!$isClosed && !$this->isOwn && $this->connected) {
            $this->options = $this->optionsNow();
            $this->connected = false;
        }
        $this->lost();
    }

    /** @return array<int, mixed> */
    private function optionsNow(): array
    {
        $options = [];
        foreach ((new \ReflectionClass(Redis::class))->getConstants() as $name => $option) {
            if (is_int($option) && str_starts_with($name, 'OPT_') && $name !== 'OPT_READ_TIMEOUT') {
                $options[$option] = $this->client->getOption($option);
            }
        }
        return array_filter($options, static fn (mixed $value): bool => $value !== null && $value !== false);
    }

    private function lost(): void
    {
        // The extension reconnects a caller's client, unless it gave the connection up.
        $this->connected = $this->connected && !$this->isOwn;
        $this->timeoutMs = 0;
        $this->sentinels?->forget();
    }

    /** Returns the id of a persistent connection; other credentials get another connection. */
    private static function persistentId(string $host, int $port, #[SensitiveParameter] ?array $auth): string
    {
        return 'sluicegate:' . hash('xxh64', serialize([$host, $port, $auth]));
    }
}
