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

    /** Returns the first word in capitals, such as `OOM`; before Redis 7, its place in the script may precede it. */
    public function code(): string
    {
        $isWrapped = preg_match('/^(?:@user_script:|ERR Error running script)/', $this->message);
        $wrapped = '/: -([A-Z]+)\b/';
        return preg_match($isWrapped ? $wrapped : '/^-?([A-Z]+)\b/', $this->message, $found) ? $found[1] : 'ERR';
    }
}
