<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use RuntimeException;

/**
 * A request of which no key can be made: a path that means several things, or a field that is there twice.
 */
final class BadRequest extends RuntimeException
{
}
