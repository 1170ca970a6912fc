<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamInterface;

/**
 * The body of a response that is perhaps produced while it is read: its permit is released at its end.
 *
 * A body that is detached keeps its permit until this object ends, since its resource can still be read.
 *
 * @internal
 */
final class PermitBody implements StreamInterface
{
    private int $readBytes = 0;
    private readonly ?int $size;

    private function __construct(private readonly StreamInterface $body, private readonly RequestPermit $permit)
    {
        $this->size = self::size($body);
    }

    /** Returns the response, with a body that has the permit; without a body the permit is released. */
    public static function hold(RequestPermit $permit, ResponseInterface $response): ResponseInterface
    {
        if (!$permit->isOpen()) {
            return $response;
        }
        if (self::size($response->getBody()) === 0) {
            $permit->release();
            return $response;
        }
        return $response->withBody(new self($response->getBody(), $permit));
    }

    /** Returns the size of a body that is complete; pipes and sockets have no size, or 0. */
    private static function size(StreamInterface $body): ?int
    {
        return $body->isSeekable() ? $body->getSize() : null;
    }

    public function __toString(): string
    {
        try {
            return (string) $this->body;
        } finally {
            $this->permit->release();
        }
    }

    public function close(): void
    {
        try {
            $this->body->close();
        } finally {
            $this->permit->release();
        }
    }

    public function detach()
    {
        return $this->body->detach();
    }

    public function getSize(): ?int
    {
        return $this->body->getSize();
    }

    public function tell(): int
    {
        return $this->body->tell();
    }

    public function eof(): bool
    {
        $isEnd = $this->body->eof();
        if ($isEnd) {
            $this->permit->release();
        }
        return $isEnd;
    }

    public function isSeekable(): bool
    {
        return $this->body->isSeekable();
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        $this->body->seek($offset, $whence);
    }

    public function rewind(): void
    {
        $this->body->rewind();
    }

    public function isWritable(): bool
    {
        return $this->body->isWritable();
    }

    public function write($string): int
    {
        return $this->body->write($string);
    }

    public function isReadable(): bool
    {
        return $this->body->isReadable();
    }

    public function read($length): string
    {
        $part = $this->body->read($length);
        $this->readBytes += strlen($part);
        // An emitter that knows the size does not read beyond it, so it never sees the end.
        if ($this->body->eof() || ($this->size !== null && $this->readBytes >= $this->size)) {
            $this->permit->release();
        }
        return $part;
    }

    public function getContents(): string
    {
        try {
            return $this->body->getContents();
        } finally {
            $this->permit->release();
        }
    }

    public function getMetadata($key = null)
    {
        return $this->body->getMetadata($key);
    }
}
