<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * An error that Redis answered.
 */
final readonly class ErrorReply
{
    /** @param string $message as Redis wrote it, such as `NOSCRIPT No matching script.` */
    public function __construct(public string $message)
    {
    }

    /** The first word in capitals, such as `OOM`, also behind a place in the script. */
    public function code(): string
    {
        return preg_match('/^(?:@\S+: \d+: )?-?([A-Z]+)\b/', $this->message, $found) ? $found[1] : 'ERR';
    }
}
