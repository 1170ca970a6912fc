<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Kernel\KernelRequest;

/**
 * Decides the requests of limiters: in Redis, by a server, or in this process.
 *
 * @internal
 */
abstract class Decider
{
    /**
     * Returns the decision about a key.
     *
     * @param string $policy a policy, or the name of a limit
     * @param Limit|null $limit a limit that is made in code; null for a policy
     * @param string $key empty: the shared budget
     * @throws SluicegateException if there is no decision
     */
    abstract public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision;

    /**
     * Returns the attributes of a request that form the keys of a policy; null if they are unknown.
     *
     * @return list<string>|null
     */
    public function keyOf(string $policy): ?array
    {
        return null;
    }

    /**
     * Checks that policies can be used: they are published, can be read, and are for the program's app.
     *
     * @param list<string> $policies
     * @throws SluicegateException if one cannot be used
     */
    public function require(array $policies): void
    {
        foreach ($policies as $policy) {
            $this->decide($policy, null, '', new KernelRequest(Verb::Peek));
        }
    }

    /** Opens the connection, reads the policies and loads the code of a decision. Errors are left to the requests. */
    public function warmUp(): void
    {
    }

    /**
     * Returns whether requests get decisions now, by asking.
     *
     * @param list<string> $policies names of policies that must be there
     */
    public function health(array $policies): Health
    {
        return $this->healthOf($policies, '');
    }

    /**
     * Returns the health where somebody decides: degraded if some policies cannot be used, down if none can.
     *
     * @param list<string> $policies
     * @param string $address of who decides
     */
    protected function healthOf(array $policies, string $address): Health
    {
        $causes = [];
        foreach ($policies as $policy) {
            try {
                $this->require([$policy]);
            } catch (InvalidRequest $e) {
                $causes[] = $e->getMessage();
            } catch (SluicegateException $e) {
                return new Health(HealthStatus::Down, $address, $e->getMessage());
            }
        }
        $status = match (count($causes)) {
            0 => HealthStatus::Up,
            count($policies) => HealthStatus::Down,
            default => HealthStatus::Degraded,
        };
        return new Health($status, $address, $causes[0] ?? '');
    }

    /** Pays debts for at most `$seconds`; with 0, it ends at the first payment without an answer. */
    public function close(float $seconds): void
    {
    }
}
