//! A stream that is being made or described otherwise, or is to take elements of another schema, without
//! waiting for the disk.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use chappe_log::Defining;

use super::{Intake, StoreError, StreamLog, StreamStore};

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

/// An [`Intake`] on its way: resolves when the version of its schema is safe, since records may name it
/// only then. Dropping it does not take the version back.
#[must_use = "records can be taken when this resolves"]
pub struct OpeningIntake {
    pub(super) intake: Intake,
    pub(super) defining: Defining,
}

impl OpeningIntake {
    /// Waits on this thread.
    ///
    /// # Errors
    /// What the log says.
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
