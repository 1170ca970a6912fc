<?php

declare(strict_types=1);

error_reporting(E_ALL);

require __DIR__ . '/../autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Sluicegate\\Tests\\')) {
        $file = __DIR__ . '/' . strtr(substr($class, 17), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});

// Debian installs libraries beside each other; with Composer `vendor/autoload.php` has them.
$libraries = [
    'Predis', 'Psr/Log', 'Psr/SimpleCache', 'Nyholm/Psr7', 'Symfony/Component/RateLimiter',
    'Symfony/Bundle/FrameworkBundle', 'Symfony/Component/Yaml', 'Illuminate',
];
foreach ($libraries as $library) {
    @include_once "$library/autoload.php";
}
if (interface_exists(Psr\Http\Message\ServerRequestInterface::class)) {
    require __DIR__ . '/stubs/psr15.php';
}
require __DIR__ . '/stubs/psr20.php';
