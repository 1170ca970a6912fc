//! RESP, the protocol of Redis: `CL.THROTTLE` as redis-cell has it, and `SG.*` by policies.
//!
//! Any Redis client can ask: RESP2 and RESP3 (`HELLO`), inline commands, pipelining, and what clients
//! send when they connect (`AUTH`, `CLIENT`, `COMMAND`, `INFO`, `SELECT`, `PING`).
//!
//! ```text
//! SG.CHECK policy key [COST n] [APP app] [MAXWAIT ms]      passes, or is refused
//! SG.PEEK policy key [COST n] [APP app]                    what a check would return
//! SG.REFUND policy key [COST n] [APP app]                  gives permits back
//! SG.RESET policy key [APP app]                            forgets the key
//! SG.ACQUIRE policy key id [COST n] [APP app]              holds a permit of a `concurrency` rule
//! SG.RENEW policy key id [APP app]                         holds it for another ttl
//! SG.RELEASE policy key id [APP app]                       gives it back
//! CL.THROTTLE key max_burst count period [quantity]        redis-cell's
//! ```
//!
//! Each `SG.*` takes the option `RULES json` as well: a list of rules as in a policy. The first word is then the name of the
//! caller's limits, whose budgets are those of no policy.
//!
//! An empty key is the budget that all requests share. Each `SG.*` is answered with an array, the same
//! in RESP2 and RESP3, whose first five places are those of `CL.THROTTLE`, in milliseconds rounded up:
//!
//! | place | is |
//! |--:|---|
//! | 0 | 1: it passes; -1: it is refused; 0: there is no such policy, or not for this app |
//! | 1 | `limit` |
//! | 2 | `remaining` |
//! | 3 | `retry_after_ms`: 0 if it is within the limit, -1 if it never can be |
//! | 4 | `reset_after_ms`: until the budget is full again |
//! | 5 | `wait_ms`: how long the caller must delay a request that passes (with `MAXWAIT`, and under rules that delay) |
//! | 6 | the rule that decided; null where none did |
//! | 7 | the mode: `store`, `leased`, or without the store `local`, `allow`, `deny`, `shed`; null if no rule decided |
//! | 8 | over the limit, if not just refused: `shadow` (it passes), or `degrade`, `divert` (place 0 is -1) |
//! | 9 | with it: the tag or the body to serve instead, the target to send it to; null under `shadow` |
//! | 10 | with it: the status to serve that body with; null where 9 is no body |
//!
//! A policy's `queue` holds the reply back until it is the caller's turn; other commands of the same
//! connection wait behind it. More places may follow at the end. The three codes of place 0 are numbers
//! so that a caller in any language compares without parsing; an invalid request is an error
//! (`-NOTCHARGED cost: ...`), and a refusal never is.
//!
//! **`CL.THROTTLE`** follows redis-cell 0.4 (<https://github.com/brandur/redis-cell>, its README and
//! `src/`): five integers, `limited`, `limit` (`max_burst + 1`), `remaining`, `retry_after` (-1 if it
//! passes, and if it never can), `reset_after`. Seconds are rounded up as there: parts of a
//! millisecond are cut off first (its pull request 58). A `quantity` of 0 only peeks, and is not
//! limited. Its errors begin with `Cell error: ` instead of a code. Three things differ on purpose:
//! rates are exact fractions, not whole nanoseconds; a key whose parameters change keeps the permits
//! that are in use, not the instant at which it would be full; and numbers outside of what this
//! server counts exactly are refused by name (redis-cell calculates on with what overflows, and gives
//! permits back for a negative `quantity`).

mod codec;
mod serve;

pub(crate) use codec::Password;
pub use codec::commands_in;
pub(crate) use serve::{CONNECTIONS_MAX, serve};
