<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use InvalidArgumentException;
use Psr\Log\LoggerInterface;
use SensitiveParameter;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Log;
use Sluicegate\Observer;
use Sluicegate\OnStoreFailure;
use Sluicegate\Ranges;
use Sluicegate\Secrets;

/**
 * A gate that sends its requests to a server over HTTP. Beyond other gates it has batches, `settle` and `explain`.
 */
final class HttpGate extends Gate
{
    private readonly Observer $observer;

    private function __construct(private readonly HttpDecider $server, ?callable $observer, ?Log $log)
    {
        $this->observer = new Observer($observer, $log);
        parent::__construct($server, $observer === null ? null : $this->observer);
    }

    /**
     * Returns the gate that `Gate::remote` returns for such a URL.
     *
     * @param string $url `http://HOST:PORT`, `https://…` or `http+unix:/PATH`
     * @param string|null $token the app's token; it needs the scope `check`, and `refund` to give back and to settle
     * @param string $app the program's app, for servers without tokens
     * @param int $timeoutMs the longest wait for an answer, 1 to 10,000 ms
     * @param callable|null $observer called with an `Observation` after each request; not after batches
     * @param LoggerInterface|null $logger as of `Gate::remote`
     * @throws InvalidRequest if the app or the timeout (`deadline_range`) is not valid
     */
    public static function at(
        #[SensitiveParameter] string $url,
        #[SensitiveParameter] ?string $token = null,
        string $app = '',
        int $timeoutMs = 200,
        ?callable $observer = null,
        ?LoggerInterface $logger = null,
    ): self {
        $address = Secrets::without(substr($url, 0, strcspn($url, '?#')));
        $host = '[^\s:/?#@\[\]]+|\[[0-9A-Fa-f:.]+\]';
        $form = "~^(?:https?://(?:[^/?#]*@)?(?:$host)(?::(\\d{1,5}))?(?:/[^\s?#]*)?|http\\+unix:.+)$~D";
        $isRead = preg_match($form, $url, $part);
        if (!$isRead || (int) ($part[1] ?? 0) > 65535) {
            $wanted = 'expected one that begins with http:, https: or http+unix:, and has no query';
            throw new InvalidArgumentException("server: `$address` is not a URL; $wanted");
        }
        if (preg_match('/[\x00-\x08\x0a-\x1f\x7f]/', $token ?? '')) {
            throw new InvalidArgumentException('token: has a character that a header field cannot have');
        }
        Ranges::app($app);
        Ranges::deadline($timeoutMs);
        $log = $logger === null ? null : Log::of($logger, null, $url);
        $http = new Http($url, $token, $timeoutMs);
        return new self(new HttpDecider($http, $app, $token !== null, new ServerLog($address, $log)), $observer, $log);
    }

    /**
     * Decides 1 to 100 checks in one request, each by itself.
     *
     * @return list<Decision|SluicegateException> in the order of the checks; an exception where there is no decision
     * @throws SluicegateException if none was decided
     */
    public function checkEach(Check ...$checks): array
    {
        [$answer] = $this->server->post('check:batch', '', ['checks' => $this->bodies($checks)]);
        $checks = array_values($checks);
        return array_map(
            fn (mixed $item, Check $check): Decision|SluicegateException => is_array($item) && isset($item['detail'])
                ? $this->server->problem('check', $check->policy, ResponseFields::of($item)->whole('status'), $item)
                : HttpDecider::decision($check->policy, ResponseFields::of($item), ''),
            $this->decisions($answer, count($checks)),
            $checks,
        );
    }

    /**
     * Takes the permits of 1 to 100 checks together, or none of them. While it is decided, other requests may be
     * refused for permits that are given back afterwards; none passes for that reason.
     *
     * @throws SluicegateException if there is no decision; if the store failed halfway, it names what stays charged
     */
    public function checkAll(Check ...$checks): AtomicAnswer
    {
        $body = ['atomic' => true, 'checks' => $this->bodies($checks)];
        [$answer] = $this->server->post('check:batch', '', $body);
        $checks = array_values($checks);
        $allowed = $answer->bool('allowed');
        $refused = $allowed ? null : $answer->whole('refused');
        $answered = $allowed ? $checks : array_slice($checks, $refused, 1);
        if ($answered === []) {
            throw new ServerProblem(200, 'the answer does not go with the checks');
        }
        return new AtomicAnswer($allowed, $refused, array_map(
            static fn (mixed $item, Check $check): Decision =>
                HttpDecider::decision($check->policy, ResponseFields::of($item), ''),
            $this->decisions($answer, count($answered)),
            $answered,
        ));
    }

    /**
     * Corrects a charge that was an estimate: gives back what was too much, or takes what was too little, as far as
     * permits are left. An id is settled once an hour; the second time throws a `ServerProblem` with the status 409,
     * and changes nothing.
     *
     * @param string $id an id of the charge, 1 to 1,024 bytes, not used again
     * @param int $charged the permits that were charged, 1 to 2^31
     * @param int $cost the actual cost, 0 to 2^31
     * @throws SluicegateException if nothing was corrected, or the result is unknown
     */
    public function settle(string $policy, ?string $key, string $id, int $charged, int $cost): Settlement
    {
        Ranges::key($key);
        Ranges::id($id);
        Ranges::cost($charged);
        Ranges::number('cost', $cost, 0, KernelRequest::COST_MAX);
        $body = $this->server->body($policy, (string) $key) + ['id' => $id, 'charged' => $charged, 'cost' => $cost];
        return $this->observer->watch($policy, 'settle', function () use ($policy, $body): Settlement {
            [$answer] = $this->server->post('settle', $policy, $body);
            return new Settlement(
                $answer->whole('refunded'),
                $answer->whole('taken'),
                $answer->whole('missing'),
                HttpDecider::decision($policy, $answer->object('decision'), ''),
            );
        });
    }

    /**
     * Returns the decision that a check would get now, with its reasons. Takes nothing. For operators: the server
     * evaluates each rule alone.
     *
     * @throws SluicegateException if there is no explanation
     */
    public function explain(string $policy, ?string $key, int $cost = 1): Explanation
    {
        Ranges::key($key);
        Ranges::cost($cost);
        $body = $this->server->body($policy, (string) $key) + ['cost' => $cost];
        return $this->observer->watch($policy, 'explain', function () use ($policy, $body): Explanation {
            [$answer] = $this->server->post('explain', $policy, $body);
            $onStoreFailure = OnStoreFailure::tryFrom($answer->text('on_store_failure'));
            return new Explanation(
                HttpDecider::decision($policy, $answer->object('decision'), ''),
                $answer->whole('would_charge'),
                $answer->text('rules_of') === 'override',
                $answer->text('overflow'),
                $onStoreFailure ?? throw new ServerProblem(200, 'the answer has an unknown `on_store_failure`'),
                $answer->has('app') ? $answer->text('app') : null,
                $answer->has('apps') ? array_values($answer->texts('apps')) : null,
                array_map(self::rule(...), $answer->items('rules')),
            );
        });
    }

    /**
     * @param array<Check> $checks
     * @return list<array<string, mixed>>
     */
    private function bodies(array $checks): array
    {
        return array_map(function (Check $check): array {
            Ranges::key($check->key);
            Ranges::cost($check->cost);
            return $this->server->body($check->policy, (string) $check->key) + ['cost' => $check->cost];
        }, array_values($checks));
    }

    private static function rule(mixed $value): ExplainedRule
    {
        $rule = ResponseFields::of($value);
        $left = $rule->has('left') ? $rule->object('left') : null;
        return new ExplainedRule(
            $rule->text('name'),
            $rule->text('algorithm'),
            $rule->whole('limit'),
            $rule->has('window_s') ? $rule->whole('window_s') : null,
            $left?->bool('allowed'),
            $left?->whole('remaining'),
            $left?->wholeOrNull('retry_after_us'),
            $left?->whole('reset_after_us'),
        );
    }

    private function decisions(ResponseFields $answer, int $count): array
    {
        $items = $answer->items('answers');
        return count($items) === $count
            ? $items
            : throw new ServerProblem(200, 'the answer does not go with the checks');
    }
}
