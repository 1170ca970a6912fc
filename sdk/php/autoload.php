<?php

/**
 * Loads the classes of this package where Composer does not.
 */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Sluicegate\\')) {
        $file = __DIR__ . '/src/' . strtr(substr($class, 11), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
