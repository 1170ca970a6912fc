<?php

/**
 * php drip.php PORT BEGIN END EACH_US: answers what it is asked with BEGIN (in hex) at once, and END byte by byte.
 */

declare(strict_types=1);

[, $port, $begin, $end, $eachUs] = $argv;
$listener = stream_socket_server("tcp://127.0.0.1:$port") ?: exit(1);
while (posix_getppid() !== 1) {
    $client = @stream_socket_accept($listener, 5);
    if ($client === false || (string) fread($client, 65536) === '') {
        continue;
    }
    fwrite($client, (string) hex2bin($begin));
    foreach (str_split((string) hex2bin($end)) as $byte) {
        usleep((int) $eachUs);
        if (@fwrite($client, $byte) === false) {
            break;
        }
    }
    fclose($client);
}
