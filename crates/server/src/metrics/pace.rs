//! The pace of writing metrics: every client may request them, and decisions come first.

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant, sleep_until};

/// Idle time after each writing of the metrics, as a multiple of the time that it took: metrics use a tenth of one
/// core at most.
const REST: u32 = 9;

/// The metrics as they were written last.
#[derive(Debug, Default)]
pub(crate) struct ScrapePace {
    last: Mutex<Option<Written>>,
}

/// Metrics in both formats.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    /// OpenMetrics.
    pub(crate) open: Bytes,
    /// The classic format of Prometheus.
    pub(crate) classic: Bytes,
}

#[derive(Debug)]
struct Written {
    metrics: Metrics,
    begun: Instant,
    took: Duration,
}

impl ScrapePace {
    /// Returns metrics that `write` wrote after the call began. Callers that wait at the same time
    /// get the same metrics.
    pub(crate) async fn metrics(&self, write: impl FnOnce() -> Metrics) -> Metrics {
        let called_at = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(Written { metrics, begun, took }) = &*last {
            if *begun >= called_at {
                return metrics.clone();
            }
            sleep_until(*begun + *took * (REST + 1)).await;
        }
        let begun = Instant::now();
        let metrics = write();
        *last = Some(Written { metrics: metrics.clone(), begun, took: begun.elapsed() });
        metrics
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::advance;

    use super::*;

    fn metrics(number: u32) -> Metrics {
        let text = Bytes::from(number.to_string());
        Metrics { open: text.clone(), classic: text }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_get_one_writing_that_began_after_they_asked() {
        let (pace, written) = (ScrapePace::default(), Cell::new(0));
        let write = || {
            written.set(written.get() + 1);
            metrics(written.get())
        };
        assert_eq!(pace.metrics(write).await.open, "1");
        advance(Duration::from_millis(1)).await;
        let waiting = futures_util::future::join_all((0..300).map(|_| pace.metrics(write))).await;
        assert!(waiting.iter().all(|metrics| metrics.open == "2"), "{waiting:?}");
        advance(Duration::from_millis(1)).await;
        assert_eq!(pace.metrics(write).await.open, "3", "nobody gets what was counted before");
    }

    #[tokio::test(start_paused = true)]
    async fn writing_takes_a_tenth_of_the_time() {
        let pace = ScrapePace::default();
        *pace.last.lock().await = Some(Written {
            metrics: metrics(0),
            begun: Instant::now(),
            took: Duration::from_millis(10),
        });
        advance(Duration::from_millis(10)).await;
        let called_at = Instant::now();
        pace.metrics(|| metrics(1)).await;
        assert_eq!(called_at.elapsed(), Duration::from_millis(90));
    }
}
