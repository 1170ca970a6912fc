<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The response that a policy gives in place of a refusal (`overflow: degrade`).
 */
final readonly class FallbackResponse
{
    /**
     * @param int $status 200 to 599
     * @param array<string, string> $headers names in lower case
     */
    public function __construct(public int $status, public array $headers, public string $body)
    {
    }
}
