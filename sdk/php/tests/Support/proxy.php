<?php

/**
 * A proxy that passes bytes on, and loses one reply to a decision on demand.
 *
 * php proxy.php PORT TARGET_PORT FILE: while FILE exists with `cut N`, the next such reply is lost after its first N
 * bytes, and the line is cut; with `hold`, it does not come at all, until the asker leaves. FILE goes away then. With
 * `slow N`, each answer of the target takes N ms more, until FILE is gone.
 */

declare(strict_types=1);

[, $port, $target, $file] = $argv;
$listener = stream_socket_server("tcp://127.0.0.1:$port") ?: exit(1);
$pairs = [];
while (true) {
    $read = [$listener];
    foreach ($pairs as [$client, $server, , $isHeld]) {
        $read[] = $client;
        if (!$isHeld) {
            $read[] = $server;
        }
    }
    $none = [];
    if (stream_select($read, $none, $none, 5) === 0 && posix_getppid() === 1) {
        exit(0);
    }
    foreach ($read as $socket) {
        if ($socket === $listener) {
            $client = stream_socket_accept($listener);
            $server = @stream_socket_client("tcp://127.0.0.1:$target");
            if ($server === false) {
                fclose($client);
                continue;
            }
            $pairs[] = [$client, $server, false, false];
            continue;
        }
        foreach ($pairs as $place => [$client, $server, $requested, $isHeld]) {
            if ($socket !== $client && $socket !== $server) {
                continue;
            }
            $bytes = fread($socket, 65536);
            $mode = is_file($file) ? trim((string) file_get_contents($file)) : '';
            $isReply = $socket === $server && $requested;
            if ($socket === $server && preg_match('/^slow (\d+)$/', $mode, $slow)) {
                usleep(1000 * (int) $slow[1]);
            }
            $isCut = $isReply && str_starts_with($mode, 'cut ');
            if ($bytes === '' || $bytes === false || $isCut) {
                if ($isCut) {
                    @fwrite($client, substr((string) $bytes, 0, (int) substr($mode, 4)));
                    unlink($file);
                }
                fclose($client);
                fclose($server);
                unset($pairs[$place]);
                break;
            }
            if ($isReply && $mode === 'hold') {
                unlink($file);
                $pairs[$place][3] = true;
                break;
            }
            // A request may come in several parts.
            $pairs[$place][2] = $socket === $client && ($requested || preg_match('~EVALSHA|POST /v1/|SG\.~', $bytes));
            @fwrite($socket === $client ? $server : $client, $bytes);
        }
    }
}
