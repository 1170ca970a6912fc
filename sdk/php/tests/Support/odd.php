<?php

/**
 * Answers every request with what the environment says (STATUS, BODY), or what is in a file (FILE) now; `*N` there is
 * N MB, and `!STATUS BODY` has a status.
 */

declare(strict_types=1);

http_response_code((int) (getenv('STATUS') ?: 200));
header('Content-Type: application/json');
$body = getenv('FILE') ? (string) file_get_contents((string) getenv('FILE')) : (string) getenv('BODY');
if (preg_match('/^!(\d{3}) (.*)/s', $body, $problem)) {
    http_response_code((int) $problem[1]);
    echo $problem[2];
    return;
}
if (!str_starts_with($body, '*')) {
    echo $body;
    return;
}
for ($left = (int) substr($body, 1); $left > 0; $left--) {
    echo str_repeat(' ', 1_000_000);
}
