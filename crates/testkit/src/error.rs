//! Errors of starting a server, and their effect on a test.

use std::io::{self, Write as _};
use std::time::Duration;

/// The errors of servers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the kit needs is not installed. See [`need!`](crate::need).
    #[error("{0}")]
    Missing(String),
    /// The server that `SLUICEGATE_REDIS_SERVER` names was built without a feature that the test
    /// needs.
    #[error("{0}")]
    Unsupported(String),
    /// A server ended before it answered.
    #[error("the server ended before it answered: {log}")]
    Start {
        /// The end of its output.
        log: String,
    },
    /// A server answered with an error.
    #[error("the server answered `{0}`")]
    Reply(String),
    /// An expected event did not come.
    #[error("waited {patience:?} in vain until {what}")]
    Timeout {
        /// The event.
        what: String,
        /// The longest wait.
        patience: Duration,
    },
    /// Files, sockets and processes.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the server that was started, or `None` if the test must be skipped, which is then
/// reported on stderr, past the capture of tests that pass. [`need!`](crate::need) is the usual way
/// to call it.
///
/// # Panics
/// If the start failed, and if a program is missing while `CI=true`: a suite that was skipped must
/// not look green. A server of the matrix that was built without a feature is skipped in CI too.
pub fn needed<T>(started: Result<T, Error>) -> Option<T> {
    let ci = std::env::var("CI").as_deref() == Ok("true");
    let reason = match verdict(started, ci) {
        Ok(started) => return Some(started),
        Err(reason) => reason,
    };
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // At once, and on a line of its own, also after the dots of a quiet run.
    let told = format!("\nskipped: {test}: {reason}\n");
    io::stderr().write_all(told.as_bytes()).ok();
    None
}

/// The server, or the reason for skipping its test.
fn verdict<T>(started: Result<T, Error>, ci: bool) -> Result<T, String> {
    started.map_err(|error| match error {
        Error::Missing(reason) if ci => panic!("a test cannot run: {reason}"),
        Error::Missing(reason) | Error::Unsupported(reason) => reason,
        error => panic!("{error}"),
    })
}

/// Returns the value of [`needed`], or returns from the test, which returns `()`.
#[macro_export]
macro_rules! need {
    ($started:expr) => {
        match $crate::needed($started) {
            Some(started) => started,
            None => return,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_skipped_by_hand_and_fails_in_ci() {
        let missing = || Err::<(), _>(Error::Missing("no server".to_owned()));
        assert_eq!(verdict(missing(), false), Err("no server".to_owned()));
        assert!(std::panic::catch_unwind(|| verdict(missing(), true)).is_err());
    }

    #[test]
    fn what_a_server_of_the_matrix_lacks_is_skipped_and_what_fails_fails() {
        let unsupported = || Err::<(), _>(Error::Unsupported("no TLS".to_owned()));
        assert_eq!(verdict(unsupported(), true), Err("no TLS".to_owned()));
        let failed = || Err::<(), _>(Error::Start { log: String::new() });
        for ci in [false, true] {
            assert!(std::panic::catch_unwind(|| verdict(failed(), ci)).is_err());
            assert_eq!(verdict(Ok(1), ci), Ok(1));
        }
    }
}
