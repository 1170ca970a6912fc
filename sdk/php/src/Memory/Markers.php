<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

/**
 * Remembers what was logged where requests share no memory, as under FPM without APCu: by empty folders in that for
 * temporary files.
 *
 * @internal
 */
final class Markers
{
    /**
     * The most markers of one kind, for one Redis or server: causes are few, and two that share one share a line a
     * minute.
     */
    private const MARKERS_MAX = 256;

    /** Where no marker can be set, one in so many is logged: more would fill logs, and none would hide the cause. */
    private const ONE_IN = 100;

    private readonly string $prefix;

    /**
     * @param string $about the Redis or the server that they are about
     * @param string|null $folder null: the system's for temporary files
     */
    public function __construct(string $about, ?string $folder = null)
    {
        $this->prefix = ($folder ?? sys_get_temp_dir()) . '/sluicegate-' . hash('xxh32', $about) . '-';
    }

    /** Returns a value that is not null if there is a marker, however old it is. */
    public function get(string $name): ?int
    {
        $path = $this->path($name);
        clearstatcache(true, $path);
        return is_dir($path) ? 1 : null;
    }

    /** Sets a marker. */
    public function set(string $name, int $value, int $ttlS): bool
    {
        return $this->create($this->path($name));
    }

    /** Sets a marker unless there is one that is younger than `$ttlS` seconds: then returns false. */
    public function add(string $name, int $value, int $ttlS): bool
    {
        $path = $this->path($name);
        clearstatcache(true, $path);
        $since = @filemtime($path);
        if ($since !== false) {
            if (abs(time() - $since) < $ttlS) {
                return false;
            }
            @rmdir($path);
        }
        // Of several processes at once, one sets it.
        return $this->create($path) || (!file_exists($path) && random_int(1, self::ONE_IN) === 1);
    }

    public function delete(string $name): void
    {
        @rmdir($this->path($name));
    }

    private function create(string $path): bool
    {
        // A folder, since PHP follows a link that somebody else put there even where it creates a file.
        return @mkdir($path, 0700);
    }

    private function path(string $name): string
    {
        [$kind, $cause] = [...explode(':', $name, 2), ''];
        return "$this->prefix$kind-" . crc32($cause) % self::MARKERS_MAX;
    }
}
