<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Bridge\Check;
use Sluicegate\Gate;
use Symfony\Component\Console\Command\Command;
use Symfony\Component\Console\Input\InputArgument;
use Symfony\Component\Console\Input\InputInterface;
use Symfony\Component\Console\Output\OutputInterface;

/**
 * The command `sluicegate:check`, for deployments: it fails if Redis or the server gives no decisions, or if a policy
 * that the limiters, `required_policies` or the command line name cannot be used.
 *
 * @internal
 */
final class CheckCommand extends Command
{
    /** @param list<string> $policies those of the configuration */
    public function __construct(private readonly Gate $gate, private readonly array $policies)
    {
        parent::__construct('sluicegate:check');
    }

    protected function configure(): void
    {
        $this->setDescription('Check that requests get decisions, and that policies can be used');
        $this->addArgument('policy', InputArgument::IS_ARRAY, 'Names of policies, besides those of the configuration');
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        $more = (array) $input->getArgument('policy');
        [$isWell, $lines] = Check::of($this->gate, array_values(array_unique([...$this->policies, ...$more])));
        $output->writeln($lines);
        return $isWell ? self::SUCCESS : self::FAILURE;
    }
}
