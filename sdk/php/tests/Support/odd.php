<?php

/**
 * Answers every request with what the environment says (BODY).
 */

declare(strict_types=1);

header('Content-Type: application/json');
echo getenv('BODY');
