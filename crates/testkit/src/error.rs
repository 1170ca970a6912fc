//! Why a server is not there, and what a test makes of it.

use std::io::{self, Write as _};
use std::time::Duration;

/// What can go wrong with servers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the kit needs is not installed. See [`need!`](crate::need).
    #[error("{0}")]
    Missing(String),
    /// The server that `SLUICEGATE_REDIS_SERVER` names was built without what the test asks for.
    #[error("{0}")]
    Unsupported(String),
    /// A server ended before it answered.
    #[error("the server ended before it answered: {log}")]
    Start {
        /// The end of what it wrote.
        log: String,
    },
    /// A server answered with an error.
    #[error("the server answered `{0}`")]
    Reply(String),
    /// What was waited for did not come.
    #[error("waited {patience:?} in vain until {what}")]
    Timeout {
        /// What.
        what: String,
        /// How long.
        patience: Duration,
    },
    /// Files, sockets and processes.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The server that was started, or `None` if the test has to be skipped, which is then told on
/// stderr, past the capture of tests that pass. [`need!`](crate::need) is the usual way to call it.
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

/// The server, or why its test is skipped.
fn verdict<T>(started: Result<T, Error>, ci: bool) -> Result<T, String> {
    started.map_err(|error| match error {
        Error::Missing(reason) if ci => panic!("a test cannot run: {reason}"),
        Error::Missing(reason) | Error::Unsupported(reason) => reason,
        error => panic!("{error}"),
    })
}

/// What [`needed`] gives, or a return from the test, which returns `()`.
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
