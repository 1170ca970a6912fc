//! `CL.THROTTLE key max_burst count period [quantity]`, redis-cell's command.
//!
//! redis-cell remembers when a key would be full again, which is a token bucket seen from the other
//! side: `max_burst + 1` permits, refilled at `count` every `period` seconds. So it is one here, with
//! the rate as an exact fraction.
//!
//! | `CL.THROTTLE k 1 1 2` | `limited` | `limit` | `remaining` | `retry_after` | `reset_after` |
//! |---|--:|--:|--:|--:|--:|
//! | at once | 0 | 2 | 1 | -1 | 2 |
//! | half a second later | 0 | 2 | 0 | -1 | 4 (3.5 s, rounded up) |
//! | at the same moment | 1 | 2 | 0 | 2 (1.5 s) | 4 |
//! | with quantity 3 | 1 | 2 | 0 | -1 (it never can) | 4 |
//! | with quantity 0, a peek | 0 | 2 | 0 | -1 | 4 |

use sluicegate::{Cost, Micros, Request, Verb};
use sluicegate_kernel::limits::{COST_MAX, PERIOD_MAX_US, PERMITS_MAX};

use super::decision_request::{DecisionRequest, SentLimits};
use super::error_reply::{ErrorReply, shown};
use super::throttle_limit::ThrottleLimit;

/// The name under which stores keep the budgets. No policy can have it: names have no capital letters.
const NAME: &str = "CL.THROTTLE";

/// Reads the words behind the command's name.
pub(super) fn decode<'a>(words: &[&'a [u8]]) -> Result<DecisionRequest<'a>, ErrorReply> {
    let (key, max_burst, count, period, quantity) = match *words {
        [key, max_burst, count, period] => (key, max_burst, count, period, None),
        [key, max_burst, count, period, quantity] => {
            (key, max_burst, count, period, Some(quantity))
        }
        _ => {
            let usage = "cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
            return Err(ErrorReply::cell(format_args!("Usage: {usage}")));
        }
    };
    let max_burst = integer(max_burst)?;
    let (count, period) = (integer(count)?, integer(period)?);
    let quantity = quantity.map_or(Ok(1), integer)?;
    if count == 0 || period == 0 {
        return Err(ErrorReply::cell("Zero rates are not supported"));
    }
    let limit = ThrottleLimit {
        burst: in_range("max_burst", max_burst, 0, PERMITS_MAX - 1)? + 1,
        count: in_range("count", count, 1, PERMITS_MAX)?,
        period_s: in_range("period", period, 1, PERIOD_MAX_US / Micros::SECOND.get())?,
    };
    let verb = match in_range("quantity", quantity, 0, COST_MAX)? {
        0 => Verb::Peek { cost: Cost::ONE },
        permits => Verb::Check { cost: Cost::new(permits)? },
    };
    let key = Some(key).filter(|key| !key.is_empty());
    let sent = SentLimits::Throttle(limit);
    Ok(DecisionRequest { request: Request::new(NAME, key, verb), sent })
}

/// A whole number as redis-cell reads it.
#[inline]
fn integer(word: &[u8]) -> Result<i64, ErrorReply> {
    let mut number: i64 = 0;
    for byte in word {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => number = number.wrapping_mul(10).wrapping_add(i64::from(digit)),
            _ => return uncommon_integer(word),
        }
    }
    // Up to 18 digits cannot have wrapped around.
    if (1..=18).contains(&word.len()) { Ok(number) } else { uncommon_integer(word) }
}

#[cold]
fn uncommon_integer(word: &[u8]) -> Result<i64, ErrorReply> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number
        .ok_or_else(|| ErrorReply::cell(format_args!("Couldn't parse as integer: {}", shown(word))))
}

#[inline]
fn in_range(name: &str, given: i64, min: u64, max: u64) -> Result<u64, ErrorReply> {
    match u64::try_from(given) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(outside(name, given, min, max)),
    }
}

#[cold]
fn outside(name: &str, given: i64, min: u64, max: u64) -> ErrorReply {
    ErrorReply::cell(format_args!("{name}: `{given}` is outside {min}..={max}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use sluicegate::Engine;
    use sluicegate::policy::PolicySet;

    use super::*;
    use crate::wire::resp::codec::{ConnectionRuleCache, Replies};

    /// A server whose time is an argument.
    struct Server {
        engine: Arc<Engine>,
        limits: ConnectionRuleCache,
    }

    impl Server {
        fn new() -> Self {
            let engine = Arc::new(Engine::in_memory(PolicySet::default()));
            Self { engine, limits: ConnectionRuleCache::new(Arc::default()) }
        }

        /// The reply to the arguments of `line` at `now`.
        async fn ask(&mut self, line: &str, now: Micros) -> String {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            let mut replies = Replies::default();
            match decode(&words) {
                Ok(question) => {
                    let rules = question.sent_rules(&mut self.limits).expect("it says a limit");
                    let decided = self.engine.turn_at(now).decide(&question.under(rules)).await;
                    question.reply(&decided, &mut replies);
                }
                Err(refusal) => replies.refusal(&refusal),
            }
            String::from_utf8(replies.bytes().to_vec()).expect("replies are text")
        }

        /// The five numbers of the reply.
        async fn numbers(&mut self, line: &str, now: Micros) -> [i64; 5] {
            let reply = self.ask(line, now).await;
            let numbers = reply.strip_prefix("*5\r\n").expect("five replies");
            let numbers: Vec<_> = numbers
                .split_terminator("\r\n")
                .map(|number| number.strip_prefix(':').expect("an integer").parse())
                .collect::<Result<_, _>>()
                .expect("numbers");
            numbers.try_into().expect("five of them")
        }
    }

    #[tokio::test]
    async fn the_table_of_the_essay_is_what_is_answered() {
        let mut server = Server::new();
        let half = Micros::from_millis(500);
        for (line, at, expected) in [
            ("k 1 1 2", Micros::ZERO, [0, 2, 1, -1, 2]),
            ("k 1 1 2", half, [0, 2, 0, -1, 4]),
            ("k 1 1 2", half, [1, 2, 0, 2, 4]),
            ("k 1 1 2 3", half, [1, 2, 0, -1, 4]),
            ("k 1 1 2 0", half, [0, 2, 0, -1, 4]),
        ] {
            assert_eq!(server.numbers(line, at).await, expected, "{line} at {at}");
        }
    }

    /// The cases of redis-cell's own test `it_rate_limits`: 1 a second, five at once.
    #[tokio::test]
    async fn redis_cells_own_cases_are_answered_as_there() {
        let mut server = Server::new();
        let begin = Micros::from_secs(1_000_000);
        for (at_ms, quantity, remaining, reset, retry, limited) in [
            (0, 6, 5, 0, -1, 1),
            (0, 1, 4, 1, -1, 0),
            (0, 1, 3, 2, -1, 0),
            (0, 1, 2, 3, -1, 0),
            (0, 1, 1, 4, -1, 0),
            (0, 1, 0, 5, -1, 0),
            (0, 1, 0, 5, 1, 1),
            (3_000, 1, 2, 3, -1, 0),
            (3_100, 1, 1, 4, -1, 0), // 3.9 s
            (4_000, 1, 1, 4, -1, 0),
            (8_000, 1, 4, 1, -1, 0),
            (9_500, 1, 4, 1, -1, 0),
            (9_500, 0, 4, 1, -1, 0),
            (9_500, 2, 2, 3, -1, 0),
            (9_500, 5, 2, 3, 3, 1),
        ] {
            let now = begin.plus(Micros::from_millis(at_ms));
            let numbers = server.numbers(&format!("foo 4 1 1 {quantity}"), now).await;
            assert_eq!(numbers, [limited, 5, remaining, retry, reset], "{quantity} at {at_ms} ms");
        }
    }

    #[tokio::test]
    async fn errors_are_those_of_redis_cell_or_name_what_is_permitted() {
        let mut server = Server::new();
        let usage = "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> \
                     <period> [<quantity>]\r\n";
        for (line, expected) in [
            ("k 1 1", usage),
            ("k 1 1 1 1 1", usage),
            ("k x 1 1", "-Cell error: Couldn't parse as integer: x\r\n"),
            ("k 1 1.5 1", "-Cell error: Couldn't parse as integer: 1.5\r\n"),
            (
                "k 1 1 9223372036854775808",
                "-Cell error: Couldn't parse as integer: 9223372036854775808\r\n",
            ),
            ("k 1 1 1 \n", "-Cell error: Couldn't parse as integer: \\n\r\n"),
            ("k 1 0 1", "-Cell error: Zero rates are not supported\r\n"),
            ("k 1 1 0", "-Cell error: Zero rates are not supported\r\n"),
            ("k -1 1 1", "-Cell error: max_burst: `-1` is outside 0..=4294967295\r\n"),
            (
                "k 4294967296 1 1",
                "-Cell error: max_burst: `4294967296` is outside 0..=4294967295\r\n",
            ),
            ("k 1 -1 1", "-Cell error: count: `-1` is outside 1..=4294967296\r\n"),
            ("k 1 1 31622401", "-Cell error: period: `31622401` is outside 1..=31622400\r\n"),
            ("k 1 1 1 -1", "-Cell error: quantity: `-1` is outside 0..=2147483648\r\n"),
            (
                "k 1 1 1 2147483649",
                "-Cell error: quantity: `2147483649` is outside 0..=2147483648\r\n",
            ),
        ] {
            assert_eq!(server.ask(line, Micros::ZERO).await, expected, "{line}");
        }
        let long = format!("{} 1 1 1", "x".repeat(1025));
        let expected = "-NOTCHARGED key: `1025` bytes are outside 1..=1024\r\n";
        assert_eq!(server.ask(&long, Micros::ZERO).await, expected);
    }

    #[tokio::test]
    async fn the_largest_numbers_are_counted() {
        let mut server = Server::new();
        let line = "k 4294967295 4294967296 31622400 2147483648";
        let numbers = server.numbers(line, Micros::ZERO).await;
        assert_eq!(numbers, [0, 1 << 32, 1 << 31, -1, 15_811_200]);
        let slow = server.numbers("s 4294967295 1 31622400", Micros::ZERO).await;
        assert_eq!(slow, [0, 1 << 32, (1 << 32) - 1, -1, 31_622_400]);
    }

    #[tokio::test]
    async fn a_key_whose_parameters_change_keeps_what_is_in_use() {
        let mut server = Server::new();
        let now = Micros::from_secs(10);
        assert_eq!(server.numbers("k 9 1 60 4", now).await, [0, 10, 6, -1, 240]);
        assert_eq!(server.numbers("k 4 1 1 0", now).await, [0, 5, 1, -1, 4]);
        assert_eq!(server.numbers("k 4 1 1 1", now).await, [0, 5, 0, -1, 5]);
        // More is in use than there may be: then a peek has to wait as well.
        assert_eq!(server.numbers("k 1 1 1 0", now).await, [1, 2, 0, 3, 5]);
    }

    #[tokio::test]
    async fn an_empty_key_is_a_key_and_others_are_others() {
        let mut server = Server::new();
        let now = Micros::ZERO;
        assert_eq!(server.numbers(" 0 1 1", now).await[0], 0);
        assert_eq!(server.numbers(" 0 1 1", now).await[0], 1);
        assert_eq!(server.numbers("k 0 1 1", now).await[0], 0);
    }

    /// GCRA as redis-cell has it: when the key would be full again, in µs.
    struct Gcra {
        interval: i64,
        burst: i64,
        full_at: i64,
    }

    impl Gcra {
        fn ask(&mut self, quantity: i64, now: i64) -> [i64; 5] {
            let tolerance = self.interval * self.burst;
            let begin = self.full_at.max(now);
            let wanted = begin + self.interval * quantity;
            let excess = wanted - tolerance - now;
            let limited = excess > 0;
            let never = self.interval * quantity > tolerance;
            if !limited {
                self.full_at = wanted;
            }
            let to_full = if limited { begin } else { wanted } - now;
            let seconds = |us: i64| us / 1_000_000 + i64::from(us % 1_000_000 >= 1_000);
            let retry = if limited && !never { seconds(excess) } else { -1 };
            let remaining = (tolerance - to_full) / self.interval;
            [i64::from(limited), self.burst, remaining, retry, seconds(to_full)]
        }
    }

    proptest! {
        #[test]
        fn a_history_is_answered_as_gcra_answers_it(
            max_burst in 0_i64..20,
            (count, period) in proptest::sample::select(
                &[(1_i64, 1_i64), (30, 60), (10, 1), (1, 3600), (1000, 1), (8, 5), (25_000, 2)][..],
            ),
            asks in proptest::collection::vec((0_i64..25, 0_i64..4_000_000), 1..60),
        ) {
            let interval = period * 1_000_000 / count;
            let mut gcra = Gcra { interval, burst: max_burst + 1, full_at: 0 };
            let mut server = Server::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut now = 1_000_000_000;
            for (quantity, later) in asks {
                now += later * interval / 1_000_000;
                let line = format!("k {max_burst} {count} {period} {quantity}");
                let at = Micros::new(u64::try_from(now).unwrap());
                let numbers = runtime.block_on(server.numbers(&line, at));
                prop_assert_eq!(numbers, gcra.ask(quantity, now), "{} at {}", line, now);
            }
        }

        #[test]
        fn no_words_make_it_panic(words in proptest::collection::vec(
            prop_oneof!["[-+0-9]{0,22}", "\\PC{0,8}"], 0..7,
        )) {
            let words: Vec<_> = words.iter().map(String::as_bytes).collect();
            let _ = decode(&words).map(drop);
        }
    }
}
