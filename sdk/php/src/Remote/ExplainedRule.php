<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

/**
 * One rule of an explanation, evaluated alone.
 */
final readonly class ExplainedRule
{
    /**
     * @param string $algorithm such as `token_bucket`
     * @param int $limit the largest cost that ever passes at once
     * @param int|null $windowS seconds in which the limit comes back; null: not a single number
     * @param bool|null $allowed whether this rule would let the request pass; null, like all that follow, while the
     *   store does not answer
     * @param int|null $remaining permits that are left
     * @param int|null $retryAfterUs 0 if it passes; null also: never
     * @param int|null $resetAfterUs until the budget of this rule is full
     */
    public function __construct(
        public string $name,
        public string $algorithm,
        public int $limit,
        public ?int $windowS,
        public ?bool $allowed,
        public ?int $remaining,
        public ?int $retryAfterUs,
        public ?int $resetAfterUs,
    ) {
    }
}
