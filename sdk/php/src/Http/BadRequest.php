<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use RuntimeException;

/**
 * A request of which no key can be made: its path is ambiguous, or a header field is missing or there twice.
 */
final class BadRequest extends RuntimeException
{
}
