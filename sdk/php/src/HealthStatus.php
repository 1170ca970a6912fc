<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The state of a gate's way to decisions.
 */
enum HealthStatus: string
{
    /** Redis or the server decides, and the policies that are needed are there. */
    case Up = 'up';
    /** Requests are decided, but not as they should be: without Redis, by policies that are older, or not all. */
    case Degraded = 'degraded';
    /** Requests that need a policy get no decision. */
    case Down = 'down';
}
