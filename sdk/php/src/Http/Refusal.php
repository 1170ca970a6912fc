<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Sluicegate\Decision;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Mode;

/**
 * The response to a request that is refused.
 */
final readonly class Refusal
{
    private const PROBLEMS = 'https://iana.org/assignments/http-problem-types#';

    /**
     * @param array<string, string> $headers
     */
    private function __construct(public int $status, public array $headers, public string $body)
    {
    }

    /**
     * 429 with a problem (RFC 9457); 503 where nobody could decide and the policy says `deny`; or the response that
     * the policy gives instead (`overflow: degrade`).
     */
    public static function of(Decision $decision, bool $withOldHeaders = false): self
    {
        $headers = Headers::of($decision, $withOldHeaders);
        $response = $decision->overflow?->response;
        if ($response !== null) {
            return new self($response->status, $response->headers + $headers, $response->body);
        }
        $retry = $decision->retryAfterSeconds();
        $detail = $retry === null ? "the cost exceeds the limit of $decision->limit" : "retry in $retry s";
        if ($decision->mode === Mode::Deny) {
            return self::problem(503, $headers, [
                'type' => self::PROBLEMS . 'temporary-reduced-capacity',
                'title' => 'Request cannot be satisfied due to temporary server capacity constraints',
                'status' => 503,
                'detail' => $detail,
            ]);
        }
        return self::problem(429, $headers, [
            'type' => self::PROBLEMS . 'quota-exceeded',
            'title' => 'Request cannot be satisfied as assigned quota has been exceeded',
            'status' => 429,
            'detail' => $detail,
            'violated-policies' => [$decision->rule],
        ]);
    }

    /** 503 where there is no decision at all: a server does not answer. */
    public static function unavailable(): self
    {
        return self::problem(503, ['Retry-After' => '1'], [
            'type' => self::PROBLEMS . 'temporary-reduced-capacity',
            'title' => 'Request cannot be satisfied due to temporary server capacity constraints',
            'status' => 503,
            'detail' => 'retry in 1 s',
        ]);
    }

    /** The response to a request of which there is no decision: 400 where no key can be made, else 503. */
    public static function undecided(BadRequest|StoreUnavailable|ServerProblem $problem): self
    {
        return $problem instanceof BadRequest ? self::badRequest($problem->getMessage()) : self::unavailable();
    }

    /** 400 for a request of which no key can be made. */
    public static function badRequest(string $detail): self
    {
        return self::problem(400, [], [
            'type' => 'about:blank', 'title' => 'Bad Request', 'status' => 400, 'detail' => $detail,
        ]);
    }

    /** Sends it by plain PHP. */
    public function send(): void
    {
        http_response_code($this->status);
        foreach ($this->headers as $name => $value) {
            header("$name: $value");
        }
        echo $this->body;
    }

    /**
     * @param array<string, string> $headers
     * @param array<string, mixed> $problem
     */
    private static function problem(int $status, array $headers, array $problem): self
    {
        $body = json_encode($problem, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
        return new self($status, ['Content-Type' => 'application/problem+json'] + $headers, (string) $body);
    }
}
