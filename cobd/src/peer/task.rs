//! Tasks that end with their owner.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

/// A task that is aborted when this value is dropped. A panic in the task becomes an error for its waiter.
#[derive(Debug)]
pub(super) struct Owned<T>(JoinHandle<T>);

impl<T: Send + 'static> Owned<T> {
    pub(super) fn spawn(task: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        !self.0.is_finished()
    }

    /// Aborts the task, and waits until it is gone.
    pub(super) async fn end(mut self) {
        self.0.abort();
        if !self.0.is_finished() {
            // The result is a known abort.
            let _ = (&mut self.0).await;
        }
    }
}

impl<T> Future for Owned<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
