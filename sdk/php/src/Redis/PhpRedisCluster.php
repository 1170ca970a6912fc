<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use SensitiveParameter;

/**
 * A Redis Cluster by the extension phpredis: a persistent connection to each node.
 *
 * The extension's own `RedisCluster` follows no redirection of such commands, and awaits the rest of a cut reply for
 * ever, so this package does without it.
 */
final class PhpRedisCluster implements Runner, Nodes
{
    /** The most redirections of one command: a slot moves once, with one ASK while it moves. */
    private const REDIRECTS_MAX = 3;

    /** The polynomial of CRC-16/XMODEM, by which keys have slots. */
    private const POLYNOMIAL = 0x1021;

    private const SLOTS = 16384;

    private readonly HostState $map;

    /** @var array<string, PhpRedis> by `host:port`; a cluster has up to 1,000 */
    private array $nodes = [];

    /** @var array<int, string> the new nodes of slots that moved since the map was read */
    private array $moved = [];

    /** The node that got the last command. */
    private ?string $last = null;

    /** @var array<int, int> the CRC of each byte */
    private static array $table = [];

    /**
     * @param non-empty-list<string> $seeds `host:port` of some nodes (`tls://` before it for TLS)
     * @param array<mixed>|string|null $auth a password, or a user and a password. The user needs `+asking`, and
     *   `+cluster|slots` to find nodes; without that each slot is found by a redirection
     * @param float $timeout seconds that connecting to a node may take
     */
    public function __construct(
        private readonly array $seeds,
        #[SensitiveParameter] private readonly array|string|null $auth = null,
        private readonly float $timeout = 0.1,
    ) {
        $this->map = new HostState('slots:' . $this->endpoint());
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        $ends = hrtime(true) + 1000 * $leftUs;
        if ($command[0] === 'SCRIPT' && $this->last !== null) {
            // It goes to the node that does not have the script: while a slot moves, that is not the slot's owner.
            return $this->send($this->last, $command, $ends);
        }
        $slot = self::slot($key);
        $at = $this->moved[$slot] ?? $this->owner($slot, $leftUs);
        $reply = $this->send($at, $command, $ends);
        for ($redirect = 0; $redirect < self::REDIRECTS_MAX && $reply instanceof ErrorReply; $redirect++) {
            if (!preg_match('/^(MOVED|ASK) \d+ (\S+)/', $reply->message, $to)) {
                break;
            }
            // Without a host, a redirection means the host that redirects.
            $at = $to[2][0] === ':' ? substr($at, 0, (int) strrpos($at, ':')) . $to[2] : $this->scheme() . $to[2];
            if ($to[1] === 'MOVED') {
                $this->moved[$slot] = $at;
                // The map is empty if the user may not read it.
                if ($this->map->get() !== []) {
                    $this->map->forget();
                }
            } else {
                $this->send($at, ['ASKING'], $ends);
            }
            $reply = $this->send($at, $command, $ends);
        }
        return $reply;
    }

    public function endpoint(): string
    {
        return 'cluster@' . implode(',', $this->seeds);
    }

    /** @internal */
    public function lastNode(): string
    {
        return (string) $this->last;
    }

    /** Returns the slot of a key: that of the text in its first braces, if there are any. */
    public static function slot(string $key): int
    {
        $open = strpos($key, '{');
        $close = $open === false ? false : strpos($key, '}', $open);
        $tagged = $close !== false && $close > $open + 1 ? substr($key, $open + 1, $close - $open - 1) : $key;
        self::$table = self::$table ?: array_map(self::crcOf(...), range(0, 255));
        $crc = 0;
        for ($place = 0, $length = strlen($tagged); $place < $length; $place++) {
            $crc = (($crc << 8) & 0xffff) ^ self::$table[($crc >> 8) ^ ord($tagged[$place])];
        }
        return $crc % self::SLOTS;
    }

    /**
     * @param non-empty-list<string|int> $command
     * @param int $ends the deadline of its reply, in ns of `hrtime`
     */
    private function send(string $at, array $command, int $ends): mixed
    {
        $this->nodes[$at] ??= $this->connection($at);
        $this->last = $at;
        try {
            return $this->nodes[$at]->run('', $command, max(intdiv($ends - hrtime(true), 1000), 1000));
        } catch (ConnectionFailure $e) {
            // Another node may have its slots by now.
            $this->moved = [];
            $this->map->forget();
            throw $e;
        }
    }

    private function connection(string $at): PhpRedis
    {
        $colon = (int) strrpos($at, ':');
        $host = trim(substr($at, 0, $colon), '[]');
        return PhpRedis::persistent($host, (int) substr($at, $colon + 1), $this->auth, $this->timeout);
    }

    /** Returns the node of a slot, or the first seed, which redirects to it. */
    private function owner(int $slot, int $leftUs): string
    {
        foreach ($this->map->get() ?? $this->readMap($leftUs) as [$first, $last, $at]) {
            if ($slot >= $first && $slot <= $last) {
                return $at;
            }
        }
        return $this->seeds[0];
    }

    /** @return list<array{int, int, string}> the first and the last slot of each range, and its node */
    private function readMap(int $leftUs): array
    {
        $ends = hrtime(true) + 1000 * $leftUs;
        foreach ($this->seeds as $number => $seed) {
            try {
                $ranges = $this->send($seed, ['CLUSTER', 'SLOTS'], $ends);
            } catch (ConnectionFailure $e) {
                if ($number === array_key_last($this->seeds)) {
                    throw new ConnectionFailure($e->getMessage(), false, $e, $e->word);
                }
                continue;
            }
            $map = [];
            foreach (is_array($ranges) ? $ranges : [] as [$first, $last, [$host, $port]]) {
                $host = $host === '' || $host === false ? substr($seed, 0, (int) strrpos($seed, ':'))
                    : $this->scheme() . $host;
                $map[] = [(int) $first, (int) $last, "$host:$port"];
            }
            $this->map->set($map);
            return $map;
        }
        return [];
    }

    private function scheme(): string
    {
        return str_starts_with($this->seeds[0], 'tls://') ? 'tls://' : '';
    }

    private static function crcOf(int $byte): int
    {
        $crc = $byte << 8;
        for ($bit = 0; $bit < 8; $bit++) {
            $crc = ($crc << 1) ^ ($crc & 0x8000 ? self::POLYNOMIAL : 0);
        }
        return $crc & 0xffff;
    }
}
