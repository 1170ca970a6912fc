<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Psr\Http\Message\ServerRequestInterface;

/**
 * The parts of a request that keys are made of, from any framework.
 */
final readonly class RequestFacts
{
    /**
     * @param string $peer the address of the connection's other end
     * @param string $target the path, with or without a query
     * @param array<string, list<string>> $headers by names in lower case
     */
    public function __construct(
        public string $peer,
        public string $method,
        public string $target,
        public array $headers,
    ) {
    }

    public static function ofPsr7(ServerRequestInterface $request): self
    {
        $peer = $request->getServerParams()['REMOTE_ADDR'] ?? '';
        $headers = array_map(array_values(...), array_change_key_case($request->getHeaders()));
        return new self((string) $peer, $request->getMethod(), $request->getRequestTarget(), $headers);
    }

    /** Returns the request that plain PHP serves. */
    public static function ofGlobals(): self
    {
        $headers = [];
        foreach ($_SERVER as $name => $value) {
            if (str_starts_with((string) $name, 'HTTP_') && is_string($value)) {
                $headers[strtolower(strtr(substr($name, 5), '_', '-'))] = [$value];
            }
        }
        return new self(
            (string) ($_SERVER['REMOTE_ADDR'] ?? ''),
            (string) ($_SERVER['REQUEST_METHOD'] ?? 'GET'),
            (string) ($_SERVER['REQUEST_URI'] ?? '/'),
            $headers,
        );
    }

    /**
     * Returns the facts of a request of Symfony or Laravel.
     *
     * @param \Symfony\Component\HttpFoundation\Request $request
     */
    public static function ofSymfony(object $request): self
    {
        $headers = array_map(
            static fn (array $values): array => array_map(strval(...), array_values($values)),
            $request->headers->all(),
        );
        $peer = (string) $request->server->get('REMOTE_ADDR');
        return new self($peer, $request->getMethod(), $request->getRequestUri(), $headers);
    }
}
