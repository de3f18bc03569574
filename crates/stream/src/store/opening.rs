//! A stream that is being made or described otherwise, without waiting for the disk.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use chappe_log::Defining;

use super::{StoreError, StreamLog, StreamStore};

/// A stream on its way: resolves when it can be used. Dropping it does not take it back.
#[must_use = "a stream can be used when this resolves"]
pub struct Opening {
    pub(super) store: StreamStore,
    pub(super) defining: Defining,
}

impl Opening {
    /// Waits on this thread.
    ///
    /// # Errors
    /// What the log says.
    pub fn wait(self) -> Result<StreamLog, StoreError> {
        self.store.opened(self.defining.wait()?)
    }
}

impl Future for Opening {
    type Output = Result<StreamLog, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = ready!(Pin::new(&mut self.defining).poll(context))?;
        Poll::Ready(self.store.opened(stream))
    }
}
