<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Illuminate\Console\Command;
use Sluicegate\Bridge\Check;
use Sluicegate\Gate;

/**
 * The command `sluicegate:check`, for deployments: it fails if Redis or the server gives no decisions, or if a policy
 * that `sluicegate.required` names, or the command line, cannot be used.
 */
final class CheckCommand extends Command
{
    /** @var string */
    protected $signature = 'sluicegate:check {policy?* : Names of policies, besides those of sluicegate.required}';

    /** @var string */
    protected $description = 'Check that requests get decisions, and that policies can be used';

    public function handle(Gate $gate): int
    {
        $required = (array) $this->laravel->make('config')->get('sluicegate.required', []);
        [$isWell, $lines] = Check::of($gate, array_values([...$required, ...(array) $this->argument('policy')]));
        array_map($this->line(...), $lines);
        return $isWell ? self::SUCCESS : self::FAILURE;
    }
}
