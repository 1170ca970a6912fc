<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Illuminate\Console\Command;
use Sluicegate\Exception\SluicegateException;
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
        $policies = [...$required, ...(array) $this->argument('policy')];
        $health = $gate->health(...$policies);
        $failed = !$health->isUp();
        $this->line(trim("{$health->status->value} $health->address $health->cause"));
        foreach ($policies as $policy) {
            try {
                $gate->require($policy);
            } catch (SluicegateException $e) {
                $failed = true;
                $this->line($e->getMessage());
            }
        }
        return $failed ? 1 : 0;
    }
}
