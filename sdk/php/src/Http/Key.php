<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Closure;
use InvalidArgumentException;
use LogicException;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Limiter;

/**
 * Makes the key of a request.
 */
final class Key
{
    private const KEY_MAX = 1024;

    /** Names of header fields are tokens of RFC 9110. */
    private const ATTRIBUTE = '/^(remote_ip|path|method|host|user_agent|header:[!#$%&\'*+.^_`|~0-9A-Za-z-]+)$/D';

    /** The field in which proxies write the addresses that a request came from. */
    private const FORWARDED = 'X-Forwarded-For';

    /** @var list<Network> */
    private readonly array $trusted;

    /**
     * @param list<string>|null $attributes null: those of the policy
     * @param list<string> $trusted
     * @param string $header the field with the client's address
     * @param bool $shared whether requests without a key share one budget
     * @param Closure(object|null): (string|null)|null $by
     */
    private function __construct(
        private readonly ?array $attributes,
        array $trusted,
        private readonly string $header,
        private readonly bool $shared,
        private readonly ?Closure $by = null,
    ) {
        $this->trusted = array_map(Network::of(...), array_values($trusted));
        if (!preg_match(self::ATTRIBUTE, "header:$header")) {
            throw new InvalidArgumentException("header: `$header` is not the name of a header field");
        }
    }

    /**
     * Uses the client's address; IPv6 as its /64. A request whose address is unknown is a bad request (400).
     *
     * @param list<string> $trusted networks of proxies whose `$header` is used, such as `10.0.0.0/8` or `fd00::1`
     * @param string $header the field in which they write the client's address, such as `X-Real-IP` or
     *   `CF-Connecting-IP`; it is read from them only. Of `Forwarded` (RFC 7239) the parameter `for` of each element is
     *   read; a client that is hidden there (`_name`, `unknown`) counts as the proxy that wrote it
     * @param bool $shared whether requests without a key share one budget in place of a 400; so with all functions
     * @throws InvalidArgumentException if one is not a network, or the name not that of a field; so do all functions
     *   that take them
     */
    public static function remoteIp(
        array $trusted = [],
        string $header = self::FORWARDED,
        bool $shared = false,
    ): self {
        return new self(['remote_ip'], $trusted, $header, $shared);
    }

    /**
     * Uses a header field, such as `X-Tenant`: for requests that are authenticated, since clients write what they want.
     * A request without the field is a bad request (400). So is one in which it is there twice, and one in which it
     * has a comma before a space or at its end: most servers join fields of one name so before PHP gets them.
     *
     * @param bool $shared whether requests without the field share one budget, as at servers: put a limit by `remoteIp`
     *   in front then
     * @throws InvalidArgumentException if it is not the name of a field
     */
    public static function header(string $name, bool $shared = false): self
    {
        return self::attributes(["header:$name"], shared: $shared);
    }

    /**
     * Uses attributes as in `key` of a policy: `remote_ip`, `path`, `method`, `host`, `user_agent`, `header:NAME`. All
     * requests share one budget if the list is empty. A request without one of the header fields, without an address,
     * or in which all attributes are empty, is a bad request (400). So is one in which a field is there twice, as with
     * `header`.
     *
     * @param list<string> $attributes
     * @param list<string> $trusted
     * @param bool $shared whether such requests have the key of the attributes that are there, as at servers; without
     *   any they share one budget
     * @throws InvalidArgumentException if one is not an attribute
     */
    public static function attributes(
        array $attributes,
        array $trusted = [],
        string $header = self::FORWARDED,
        bool $shared = false,
    ): self {
        foreach ($attributes as $attribute) {
            if (!preg_match(self::ATTRIBUTE, $attribute)) {
                $wanted = '`remote_ip`, `path`, `method`, `host`, `user_agent` or `header:NAME`';
                throw new InvalidArgumentException("key: `$attribute` is not an attribute; expected $wanted");
            }
        }
        return new self($attributes, $trusted, $header, $shared);
    }

    /**
     * Uses the attributes that the policy names (`key`), as gateways do; a policy without `key` has one budget for all.
     * Only for policies in direct mode: with a server or a limit that is made in code, the first request throws a
     * LogicException.
     *
     * @param list<string> $trusted
     */
    public static function ofPolicy(
        array $trusted = [],
        string $header = self::FORWARDED,
        bool $shared = false,
    ): self {
        return new self(null, $trusted, $header, $shared);
    }

    /**
     * Uses the result of a function of the framework's request, such as the id of the user. Null, for a request without
     * a key, and an empty text are a bad request (400). A text of more than 1,024 bytes is hashed, as other keys of
     * requests are.
     *
     * @param callable(object|null): (string|null) $by
     * @param bool $shared whether requests for which it returns null share one budget
     */
    public static function by(callable $by, bool $shared = false): self
    {
        return new self([], [], self::FORWARDED, $shared, $by(...));
    }

    /** Uses one budget for all requests. */
    public static function shared(): self
    {
        return new self([], [], self::FORWARDED, true);
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
            if ($key === null) {
                return $this->shared ? null : throw self::missing($limiter, 'key: is missing');
            }
            return self::joined([(string) $key]) ?? throw self::missing($limiter, 'key: is empty');
        }
        $attributes = $this->attributes ?? $limiter->keyAttributes()
            ?? throw new LogicException("the key of `$limiter->name` is not known; expected a policy in direct mode");
        $values = array_map(fn (string $attribute): string => $this->value($attribute, $facts), $attributes);
        if (!$this->shared && $attributes !== []) {
            self::checkPresent($attributes, $values, $limiter);
        }
        return self::joined($values);
    }

    /** Returns the exception of a request without its key, once the observer of the limiter has seen it as `key_empty`. */
    private static function missing(Limiter $limiter, string $problem): BadRequest
    {
        try {
            $limiter->check('');
        } catch (InvalidRequest) {
            // An empty key has no decision, and charges nothing.
        }
        return new BadRequest($problem);
    }

    /**
     * Checks that a request has what makes it one of a caller.
     *
     * @param list<string> $attributes
     * @param list<string> $values
     */
    private static function checkPresent(array $attributes, array $values, Limiter $limiter): void
    {
        foreach ($attributes as $place => $attribute) {
            if ($values[$place] === '' && ($attribute === 'remote_ip' || str_starts_with($attribute, 'header:'))) {
                $what = $attribute === 'remote_ip' ? 'address' : 'header `' . substr($attribute, 7) . '`';
                throw self::missing($limiter, "$what: is missing");
            }
        }
        if (implode('', $values) === '') {
            throw self::missing($limiter, 'key: is missing');
        }
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
            'remote_ip' => Address::asKey(Address::ofClient($facts, $this->trusted, strtolower($this->header))),
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
            throw new BadRequest("header `$name`: is given more than once");
        }
        // Most servers join fields of one name like this before PHP gets them.
        if (preg_match('/,(?: |$)/D', $values[0] ?? '')) {
            $or = 'or has a comma before a space or at its end';
            throw new BadRequest("header `$name`: is given more than once, $or");
        }
        return $values[0] ?? '';
    }

    private static function host(string $host): string
    {
        $host = (string) preg_replace('/:\d*$/', '', $host);
        return Path::scrub(rtrim(strtolower($host), '.'));
    }
}
