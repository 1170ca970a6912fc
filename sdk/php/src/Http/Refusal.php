<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use LogicException;
use Sluicegate\Decision;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
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
     * Returns 429 with a problem (RFC 9457); 503 if nobody decided by the limit (modes `Deny` and `Shed`); or
     * the response that the policy gives instead (`overflow: degrade`).
     *
     * @throws LogicException if the decision allows
     */
    public static function of(Decision $decision, bool $withOldHeaders = false): self
    {
        if ($decision->allowed) {
            throw new LogicException('the decision allows; look at `allowed` first');
        }
        $headers = Headers::of($decision, $withOldHeaders);
        $response = $decision->overflow?->response;
        if ($response !== null) {
            return new self($response->status, $response->headers + $headers, $response->body);
        }
        $retry = $decision->retryAfterSeconds();
        $detail = $retry === null ? "the cost exceeds the limit of $decision->limit" : "retry in $retry s";
        return in_array($decision->mode, [Mode::Deny, Mode::Shed], true)
            ? self::unavailable($headers, $detail)
            : self::problem(429, $headers, [
                'type' => self::PROBLEMS . 'quota-exceeded',
                'title' => 'Request cannot be satisfied as assigned quota has been exceeded',
                'status' => 429,
                'detail' => $detail,
                'violated-policies' => [$decision->rule],
            ]);
    }

    /**
     * Returns the response to a request without a decision: 400 if no key can be made; 503 if Redis or the server gave
     * none; and 500 for what the program or its policies must mend, such as an unknown policy. It names no policy, so
     * log the message of the exception.
     */
    public static function undecided(BadRequest|SluicegateException $problem): self
    {
        return match (true) {
            $problem instanceof BadRequest => self::problem(400, [], [
                'type' => 'about:blank', 'title' => 'Bad Request', 'status' => 400, 'detail' => $problem->getMessage(),
            ]),
            $problem instanceof StoreUnavailable, $problem instanceof ServerProblem =>
                self::unavailable(['Retry-After' => '1'], 'retry in 1 s'),
            default => self::problem(500, [], [
                'type' => 'about:blank', 'title' => 'Internal Server Error', 'status' => 500,
            ]),
        };
    }

    /** Sends the response with plain PHP. */
    public function send(): void
    {
        http_response_code($this->status);
        foreach ($this->headers as $name => $value) {
            header("$name: $value");
        }
        echo $this->body;
    }

    /** @param array<string, string> $headers */
    private static function unavailable(array $headers, string $detail): self
    {
        return self::problem(503, $headers, [
            'type' => self::PROBLEMS . 'temporary-reduced-capacity',
            'title' => 'Request cannot be satisfied due to temporary server capacity constraints',
            'status' => 503,
            'detail' => $detail,
        ]);
    }

    /** @param array<string, string> $headers */
    private static function problem(int $status, array $headers, array $problem): self
    {
        $body = json_encode($problem, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
        return new self($status, ['Content-Type' => 'application/problem+json'] + $headers, (string) $body);
    }
}
