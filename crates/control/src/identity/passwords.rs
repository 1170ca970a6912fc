//! Passwords: stored as argon2id (19 MiB, two passes, one lane: the least that OWASP's password storage
//! cheat sheet recommends, and the library's defaults), computed beside the async threads, few at a time.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::Error;
use sluicegate_policy::finding;

/// Fewest characters of a password (NIST SP 800-63B, section 5.1.1.2, asks for eight; twelve cannot be
/// searched offline soon).
pub const PASSWORD_CHARS_MIN: usize = 12;

/// Longest password in bytes: nobody types more, and it all has to be hashed.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// Maximum number that are computed at a time: each takes a core for tens of milliseconds, and 19 MiB.
const COMPUTED_MAX: usize = 2;

/// Maximum number that wait for that: about a second's worth. Others get [`Error::Busy`].
const WAITING_MAX: usize = 32;

/// Maximum number that wait besides, for accounts that have signed in lately from the same place: strangers do
/// not take these places.
const WAITING_KNOWN_MAX: usize = 8;

/// Computes and verifies hashes of passwords.
#[derive(Clone, Debug)]
pub struct Passwords {
    computing: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    waiting_known: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            computing: Arc::new(Semaphore::new(COMPUTED_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            waiting_known: Arc::new(Semaphore::new(WAITING_KNOWN_MAX)),
        }
    }
}

impl Passwords {
    /// Returns the hash of a new password.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is too short or too long, [`Error::Busy`].
    pub async fn hash(&self, password: &str) -> Result<String, Error> {
        let is_long = password.chars().count() >= PASSWORD_CHARS_MIN;
        if !is_long || password.len() > PASSWORD_BYTES_MAX {
            let problem = finding!(
                "bad_password",
                "expected {min} characters or more, at most {max} bytes",
                min = PASSWORD_CHARS_MIN,
                max = PASSWORD_BYTES_MAX
            );
            return Err(Error::invalid("/password", problem));
        }
        let password = password.to_owned();
        self.compute(&self.waiting, move || {
            let hash = Argon2::default().hash_password(password.as_bytes());
            hash.map(|hash| hash.to_string()).map_err(|error| Error::Damaged(error.to_string()))
        })
        .await?
    }

    /// Returns whether `password` has the hash `kept`. Without a hash it takes as long, so that the time does not
    /// reveal which accounts exist.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub async fn verify(&self, password: &str, kept: Option<String>) -> Result<bool, Error> {
        self.verify_in(&self.waiting, password, kept).await
    }

    /// Verifies as [`verify`](Self::verify) does, for an account that has signed in lately from the same place.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub async fn verify_known(&self, password: &str, kept: Option<String>) -> Result<bool, Error> {
        self.verify_in(&self.waiting_known, password, kept).await
    }

    async fn verify_in(
        &self,
        waiting: &Arc<Semaphore>,
        password: &str,
        kept: Option<String>,
    ) -> Result<bool, Error> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let password = password.to_owned();
        self.compute(waiting, move || {
            let Some(kept) = kept else {
                Argon2::default().hash_password(password.as_bytes()).ok();
                return false;
            };
            let kept = PasswordHash::new(&kept);
            kept.is_ok_and(|kept| {
                Argon2::default().verify_password(password.as_bytes(), &kept).is_ok()
            })
        })
        .await
    }

    async fn compute<T: Send + 'static>(
        &self,
        waiting: &Arc<Semaphore>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let place = Arc::clone(waiting).try_acquire_owned();
        let _place = place.map_err(|_| Error::Busy)?;
        // The work holds it, so that a request that is dropped does not let another in while its work goes on.
        let turn = Arc::clone(&self.computing).acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let done = spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        Ok(done.await.expect("hashing does not panic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_again_and_another_is_not() {
        let passwords = Passwords::default();
        let kept = passwords.hash("correct horse battery").await.unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert!(passwords.verify("correct horse battery", Some(kept.clone())).await.unwrap());
        assert!(!passwords.verify("correct horse batterz", Some(kept)).await.unwrap());
        assert!(!passwords.verify("x", None).await.unwrap());
        assert!(!passwords.verify("x", Some("$argon2id$nonsense".to_owned())).await.unwrap());
        for bad in ["short", &"x".repeat(1_025)] {
            assert!(matches!(passwords.hash(bad).await, Err(Error::Invalid(_))));
        }
    }

    #[tokio::test]
    async fn more_than_can_wait_are_told_to_come_again() {
        let passwords = Passwords::default();
        let tries = (0..WAITING_MAX + 8).map(|_| {
            let passwords = passwords.clone();
            tokio::spawn(async move { passwords.verify("x", None).await })
        });
        let mut busy = 0;
        tokio::task::yield_now().await;
        assert_eq!(
            passwords.verify_known("x", None).await.ok(),
            Some(false),
            "they keep out nobody"
        );
        for answer in tries.collect::<Vec<_>>() {
            busy += usize::from(matches!(answer.await.unwrap(), Err(Error::Busy)));
        }
        assert_eq!(busy, 8);
    }
}
