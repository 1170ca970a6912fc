//! A task that ends with its owner.

use std::future::Future;

use tokio::task::JoinHandle;

/// A running task; it is ended when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedTask(JoinHandle<()>);

impl OwnedTask {
    pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Waits until the task has ended by itself; to be called once.
    pub(super) async fn ended(&mut self) {
        // The result does not matter: the task has ended.
        let _ = (&mut self.0).await;
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
