//! Bytes to commands, answers to bytes. No IO.
//!
//! ```text
//! bytes ─▶ frame: words ─▶ command ─┬─▶ decision_request: a decision ─▶ reply
//!                                   └─▶ session: about the connection itself ─▶ reply
//! ```

mod caller_rules;
mod command;
mod decision_request;
mod error_reply;
mod frame;
mod guesses;
mod password;
mod policy;
mod reply;
mod session;
mod table;
#[cfg(test)]
mod tests;
mod throttle;
mod throttle_limit;

pub(super) use caller_rules::CallerRuleCache;
pub(super) use command::Command;
pub(super) use decision_request::DecisionRequest;
pub(super) use frame::{COMMAND_BYTES_MAX, CommandWords, ProtocolError, read};
pub(super) use guesses::{ClientNetwork, Guesses};
pub(crate) use password::Password;
pub(super) use reply::Replies;
pub(super) use session::{AuthContext, NextStep, Session};
pub(super) use throttle_limit::{ConnectionRuleCache, ThrottleRuleCache};

/// Returns the number of commands that `input` holds and the bytes that they take, for the fuzzer.
///
/// # Panics
/// If the result of reading depends on how the input is split.
#[must_use]
pub fn commands_in(input: &[u8]) -> (usize, usize) {
    let (mut count, mut at) = (0, 0);
    let mut words = CommandWords::default();
    while let Ok(Some(length)) = frame::read(&input[at..], &mut words) {
        assert!(length > 0, "every command takes a byte");
        // A reply to every command can be written.
        drop(Command::decode(&words).map_err(|refusal| Replies::default().refusal(&refusal)));
        let cut = frame::read(&input[at..at + length - 1], &mut words);
        assert!(matches!(cut, Ok(None)), "a command is read before it has ended");
        at += length;
        count += 1;
    }
    (count, at)
}
