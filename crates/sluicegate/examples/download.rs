//! Two downloads that share 256 KiB a second.
//!
//! `cargo run -p sluicegate --example download --features tokio`

use std::error::Error;
use std::sync::Arc;

use sluicegate::{Clock, MonotonicClock, RateLimiter, Throttled};
use tokio::io::AsyncReadExt;

const BYTES_PER_SECOND: u64 = 256 * 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit_rate = Arc::new(RateLimiter::per_second(BYTES_PER_SECOND)?);
    let start = MonotonicClock.now();
    let (left, right) = tokio::join!(download(&limit_rate), download(&limit_rate));
    let bytes = left? + right?;
    let elapsed = std::time::Duration::from(MonotonicClock.now().since(start));
    println!(
        "{bytes} bytes in {:.2} s, the first {BYTES_PER_SECOND} at once",
        elapsed.as_secs_f64()
    );
    Ok(())
}

/// Reads 256 KiB from a source that could be a socket or a file.
async fn download(limit_rate: &Arc<RateLimiter>) -> std::io::Result<u64> {
    let source = tokio::io::repeat(b'x').take(256 * 1024);
    let mut source = Throttled::new(source).limit_reads(Arc::clone(limit_rate));
    let (mut chunk, mut bytes) = ([0; 8 * 1024], 0);
    loop {
        match source.read(&mut chunk).await? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}
