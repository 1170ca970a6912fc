<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Closure;
use InvalidArgumentException;
use Sluicegate\Limiter;

/**
 * Makes the key of a request.
 */
final class Key
{
    private const KEY_MAX = 1024;

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

    /** Uses a header field, such as `X-Tenant`: for requests that are authenticated. */
    public static function header(string $name): self
    {
        return new self(['header:' . strtolower($name)], []);
    }

    /**
     * Uses attributes as in `key` of a policy: `remote_ip`, `path`, `method`, `host`, `user_agent`, `header:NAME`.
     *
     * @param list<string> $attributes
     * @param list<string> $trusted
     */
    public static function attributes(array $attributes, array $trusted = []): self
    {
        return new self($attributes, $trusted);
    }

    /**
     * Uses the attributes that the policy names (`key`), as gateways do. Only in direct mode.
     *
     * @param list<string> $trusted
     */
    public static function ofPolicy(array $trusted = []): self
    {
        return new self(null, $trusted);
    }

    /**
     * Uses the result of a function of the framework's request; null or an empty text: the shared budget.
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
     */
    public function of(RequestFacts $facts, Limiter $limiter, ?object $request = null): ?string
    {
        if ($this->by !== null) {
            $key = (string) ($this->by)($request);
            return $key === '' ? null : $key;
        }
        $attributes = $this->attributes ?? $limiter->keyAttributes() ?? [];
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
