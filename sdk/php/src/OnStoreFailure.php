<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The decision while Redis does not answer.
 */
enum OnStoreFailure: string
{
    /** The local share of the limit decides. */
    case Local = 'local';
    /** Requests pass; their permits are charged when Redis is back. */
    case Allow = 'allow';
    /** Requests are refused, with a retry after a second. */
    case Deny = 'deny';
}
