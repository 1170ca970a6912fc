<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * What is decided while Redis does not answer.
 */
enum OnStoreFailure: string
{
    /** By this host's share of the limit. */
    case Local = 'local';
    /** Requests pass; what they take is charged when Redis is back. */
    case Allow = 'allow';
    /** Requests are refused, with a retry after a second. */
    case Deny = 'deny';
}
