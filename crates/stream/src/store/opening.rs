//! Streams that are being created or redefined, or prepared for elements of another schema, without
//! waiting for the disk.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use chappe_log::Defining;

use super::{Intake, StoreError, StreamLog, StreamStore};

/// A stream being opened: resolves when it can be used. Dropping it does not cancel it.
#[must_use = "a stream can be used when this resolves"]
pub struct Opening {
    pub(super) store: StreamStore,
    pub(super) defining: Defining,
}

impl Opening {
    /// Blocks this thread.
    ///
    /// # Errors
    /// The log's error.
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

/// An [`Intake`] being opened: resolves when the version of its schema is durable, since records
/// may name it only then. Dropping it does not remove the version.
#[must_use = "records can be stored when this resolves"]
pub struct OpeningIntake {
    pub(super) intake: Intake,
    pub(super) defining: Defining,
}

impl OpeningIntake {
    /// Blocks this thread.
    ///
    /// # Errors
    /// The log's error.
    pub fn wait(self) -> Result<Intake, StoreError> {
        self.defining.wait()?;
        self.intake.log.renew()?;
        Ok(self.intake)
    }
}

impl Future for OpeningIntake {
    type Output = Result<Intake, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(Pin::new(&mut self.defining).poll(context))?;
        self.intake.log.renew()?;
        Poll::Ready(Ok(self.intake.clone()))
    }
}
