<?php

declare(strict_types=1);

namespace Sluicegate;

use SensitiveParameter;

/**
 * Takes passwords out of texts for people.
 *
 * @internal
 */
final class Secrets
{
    /** The most bytes of a URL that a message shows. */
    private const SHOWN_MAX = 200;

    private function __construct()
    {
    }

    /** Returns a URL, or what should be one, with `***` in place of all credentials; cut after 200 bytes. */
    public static function without(#[SensitiveParameter] string $url): string
    {
        // A password may have any characters, also `@`, so all up to the last one goes.
        $plain = (string) preg_replace('~^([a-z][a-z0-9+.-]*://)?.*@~is', '$1***@', $url);
        // Some write credentials behind the address.
        $plain = (string) preg_replace('~(auth|pass\w*|token|secret)=[^&#]*~i', '$1=***', $plain);
        return strlen($plain) > self::SHOWN_MAX ? substr($plain, 0, self::SHOWN_MAX) . '…' : $plain;
    }
}
