<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Closure;
use InvalidArgumentException;
use LogicException;
use Sluicegate\Limiter;

/**
 * Makes the key of a request.
 */
final class Key
{
    private const KEY_MAX = 1024;

    /** Names of header fields are tokens of RFC 9110. */
    private const ATTRIBUTE = '/^(remote_ip|path|method|host|user_agent|header:[!#$%&\'*+.^_`|~0-9A-Za-z-]+)$/D';

    /** @var list<Network> */
    private readonly array $trusted;

    /**
     * @param list<string>|null $attributes null: those of the policy
     * @param list<string> $trusted
     * @param Closure(object|null): (string|null)|null $by
     */
    private function __construct(
        private readonly ?array $attributes,
        array $trusted,
        private readonly ?Closure $by = null,
    ) {
        $this->trusted = array_map(Network::of(...), array_values($trusted));
    }

    /**
     * Uses the client's address; IPv6 as its /64.
     *
     * @param list<string> $trusted networks of proxies whose `X-Forwarded-For` is used, such as `10.0.0.0/8` or
     *   `fd00::1`
     * @throws InvalidArgumentException if one is not a network; so do all functions that take them
     */
    public static function remoteIp(array $trusted = []): self
    {
        return new self(['remote_ip'], $trusted);
    }

    /**
     * Uses a header field, such as `X-Tenant`: for requests that are authenticated. Requests without the field get the
     * shared budget, as at servers; put a limit by `remoteIp` in front, or reject them before.
     *
     * @throws InvalidArgumentException if it is not the name of a field
     */
    public static function header(string $name): self
    {
        return self::attributes(["header:$name"]);
    }

    /**
     * Uses attributes as in `key` of a policy: `remote_ip`, `path`, `method`, `host`, `user_agent`, `header:NAME`. A
     * request in which a single attribute is empty gets the shared budget, and so do all if the list is empty.
     *
     * @param list<string> $attributes
     * @param list<string> $trusted
     * @throws InvalidArgumentException if one is not an attribute
     */
    public static function attributes(array $attributes, array $trusted = []): self
    {
        foreach ($attributes as $attribute) {
            if (!preg_match(self::ATTRIBUTE, $attribute)) {
                $wanted = '`remote_ip`, `path`, `method`, `host`, `user_agent` or `header:NAME`';
                throw new InvalidArgumentException("key: `$attribute` is not an attribute; expected $wanted");
            }
        }
        return new self($attributes, $trusted);
    }

    /**
     * Uses the attributes that the policy names (`key`), as gateways do. Only for policies in direct mode: with a
     * server or a limit that is made in code, the first request throws a LogicException.
     *
     * @param list<string> $trusted
     */
    public static function ofPolicy(array $trusted = []): self
    {
        return new self(null, $trusted);
    }

    /**
     * Uses the result of a function of the framework's request; null: the shared budget. An empty text is a bad request
     * (400), and a text of more than 1,024 bytes is hashed, as other keys of requests are.
     *
     * @param callable(object|null): (string|null) $by
     */
    public static function by(callable $by): self
    {
        return new self([], [], $by(...));
    }

    /**
     * Returns the key of a request, null for the shared budget.
     *
     * @param object|null $request the request of the framework, for `by`
     * @throws BadRequest if none can be made
     * @throws LogicException if it is that of the policy, and not known here
     */
    public function of(RequestFacts $facts, Limiter $limiter, ?object $request = null): ?string
    {
        if ($this->by !== null) {
            $key = ($this->by)($request);
            return $key === null ? null : self::joined([(string) $key]) ?? throw new BadRequest('key: is empty');
        }
        $attributes = $this->attributes ?? $limiter->keyAttributes()
            ?? throw new LogicException("the key of `$limiter->name` is not known; expected a policy in direct mode");
        $values = array_map(fn (string $attribute): string => $this->value($attribute, $facts), $attributes);
        return self::joined($values);
    }

    /**
     * Joins the values of attributes to a key; null for the shared budget.
     *
     * @param list<string> $values
     */
    public static function joined(array $values): ?string
    {
        if (count($values) > 1) {
            $values = array_map(static fn (string $value): string => addcslashes($value, '\\|'), $values);
        }
        $key = implode('|', $values);
        if ($key === '') {
            return null;
        }
        // Clients choose how long their fields are: a longer key is hashed, not refused.
        return strlen($key) > self::KEY_MAX ? 'sha256:' . hash('sha256', $key) : $key;
    }

    private function value(string $attribute, RequestFacts $facts): string
    {
        return match ($attribute) {
            'remote_ip' => Address::asKey(Address::ofClient($facts, $this->trusted)),
            'path' => Path::of($facts->target),
            'method' => $facts->method,
            'host' => self::host(self::field($facts, 'host')),
            'user_agent' => Path::scrub($facts->headers['user-agent'][0] ?? ''),
            'status' => '',
            default => Path::scrub(self::field($facts, substr($attribute, 7))),
        };
    }

    private static function field(RequestFacts $facts, string $name): string
    {
        $values = $facts->headers[strtolower($name)] ?? [];
        if (count($values) > 1) {
            throw new BadRequest("header:$name: is there twice");
        }
        return $values[0] ?? '';
    }

    private static function host(string $host): string
    {
        $host = (string) preg_replace('/:\d*$/', '', $host);
        return Path::scrub(rtrim(strtolower($host), '.'));
    }
}
