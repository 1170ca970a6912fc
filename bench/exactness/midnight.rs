//! Quotas of a day begin again at midnight UTC, so no measurement may run at midnight.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

/// Longest time that a scenario, or a round, takes, s.
const LONGEST_S: u64 = 240;

const DAY_S: u64 = 86_400;

/// Waits until midnight is over, if it is near: at most [`LONGEST_S`].
///
/// # Errors
/// If the clock is before 1970.
pub(crate) async fn past_midnight() -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let left = DAY_S - now.as_secs() % DAY_S;
    if left <= LONGEST_S {
        sleep(Duration::from_secs(left)).await;
    }
    Ok(())
}
