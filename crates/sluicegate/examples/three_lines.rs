//! A function that is called at most five times a second.
//!
//! `cargo run -p sluicegate --example three_lines`

use sluicegate::{LimiterError, RateLimiter};

fn main() -> Result<(), LimiterError> {
    let limiter = RateLimiter::per_second(5)?;
    for call in 1..=8 {
        if limiter.try_acquire() {
            println!("call {call}: passed");
        } else {
            println!("call {call}: over the limit");
        }
    }
    Ok(())
}
