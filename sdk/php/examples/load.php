<?php

/**
 * Loads this package, and the libraries of the examples: by Composer, or where Debian installs them.
 */

declare(strict_types=1);

require __DIR__ . '/../autoload.php';

if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';
} else {
    $libraries = ['Psr/Log', 'Psr/SimpleCache', 'Nyholm/Psr7', 'Symfony/Component/RateLimiter'];
    foreach ([...$libraries, 'Symfony/Bundle/FrameworkBundle', 'Illuminate'] as $library) {
        @include_once "$library/autoload.php";
    }
    // Debian has no package of PSR-15.
    if (interface_exists(Psr\Http\Message\ServerRequestInterface::class)) {
        require __DIR__ . '/../tests/stubs/psr15.php';
    }
}
