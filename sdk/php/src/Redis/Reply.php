<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Outcome;

/**
 * A reply of the script for one key.
 */
final readonly class Reply
{
    public const REFUSED = 0;
    public const ALLOWED = 1;
    public const UNSUPPORTED = 2;
    public const UNKNOWN_RULES = 3;
    public const MALFORMED = 4;

    private const NEVER = 0xffffffffffffff;

    /**
     * @param int $kind one of the constants above
     * @param Outcome|null $outcome of REFUSED and ALLOWED
     * @param string $text of UNKNOWN_RULES how the state begins; of MALFORMED which part is
     * @param list<int> $charged of each rule, the permits of a debt that were charged; empty without a debt
     */
    private function __construct(
        public int $kind,
        public ?Outcome $outcome,
        public string $text,
        public array $charged,
    ) {
    }

    /**
     * What the bytes say; null if they are no reply of the script.
     *
     * @param int $rules how many rules were asked
     * @param bool $withDebt whether a debt was sent
     * @param bool $isSupported whether the rules know the verb: then the script cannot say that they do not
     */
    public static function decode(
        string $bytes,
        int $rules,
        bool $withDebt = false,
        bool $isSupported = true,
    ): ?self {
        $kind = ord($bytes[0] ?? "\xff");
        if ($kind === self::UNSUPPORTED) {
            return strlen($bytes) === 1 && !$isSupported ? new self($kind, null, '', []) : null;
        }
        if ($kind === self::UNKNOWN_RULES || $kind === self::MALFORMED) {
            $text = substr($bytes, 1);
            $isReply = strlen($text) <= 1024 && ($text !== '' || $kind === self::MALFORMED);
            return $isReply ? new self($kind, null, $text, []) : null;
        }
        if ($kind > self::ALLOWED || strlen($bytes) !== 27 + ($withDebt ? 4 * $rules : 0)) {
            return null;
        }
        $place = ord($bytes[1]);
        if ($place >= $rules) {
            return null;
        }
        $allowed = $kind === self::ALLOWED;
        // Each of the three has seven bytes; an eighth is read, and left out.
        ['granted' => $granted, 'wait' => $wait] = unpack('Vgranted/Pwait', $bytes, 2);
        $wait &= self::NEVER;
        $outcome = new Outcome(
            $allowed,
            $place,
            $granted,
            $allowed ? $wait : 0,
            $allowed ? 0 : ($wait === self::NEVER ? null : $wait),
            unpack('P', $bytes, 13)[1] & self::NEVER,
            unpack('P', "$bytes\0", 20)[1] & self::NEVER,
        );
        $charged = $withDebt ? array_values(unpack('V*', substr($bytes, 27)) ?: []) : [];
        return new self($kind, $outcome, '', $charged);
    }
}
