//! The acknowledgement of one batch: set once by the writer, awaited by the caller.

use crate::{Error, Position};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// Commits the queue of a store without its own thread.
pub(crate) trait CommitOnDemand: Send + Sync {
    /// Writes one group of the queue.
    fn commit_group(&self) -> Result<(), Error>;
}

/// The store that a waiting caller must drive.
pub(crate) type Driver = Weak<dyn CommitOnDemand>;

#[derive(Default)]
struct State {
    result: Option<Result<(), Error>>,
    waker: Option<Waker>,
    waits: bool,
}

/// Shared by the writer and the caller.
#[derive(Default)]
pub(crate) struct Ack {
    state: Mutex<State>,
    done: Condvar,
}

impl Ack {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the result; later ones are ignored. Call it without holding a lock: it wakes.
    pub(crate) fn resolve(&self, result: Result<(), Error>) {
        if let Some(waker) = self.settle(result) {
            waker.wake();
        }
    }

    /// Sets the result; later ones are ignored. Returns the task to wake.
    pub(crate) fn settle(&self, result: Result<(), Error>) -> Option<Waker> {
        let mut state = self.state();
        if state.result.is_some() {
            return None;
        }
        state.result = Some(result);
        if state.waits {
            self.done.notify_all();
        }
        state.waker.take()
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.state();
        match &state.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The result, if available.
    pub(crate) fn result(&self) -> Option<Result<(), Error>> {
        self.state().result.clone()
    }

    /// Blocks this thread; if the store has no thread of its own, commits until the result is
    /// available.
    pub(crate) fn wait(&self, driven: Option<&Driver>) -> Result<(), Error> {
        if let Some(owner) = driven.and_then(Weak::upgrade) {
            while self.state().result.is_none() {
                owner.commit_group()?;
            }
        }
        let mut state = self.state();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            state.waits = true;
            state = self
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A queued batch: resolves when it has reached its stream's level. Dropping it does not cancel the
/// append.
#[must_use = "a batch is acknowledged when this resolves"]
pub struct Appended {
    /// The position of the batch's first record. It is the batch's own only once acknowledged.
    pub first: Position,
    /// The number of records in the batch.
    pub count: u32,
    pub(crate) ack: Arc<Ack>,
    pub(crate) driven: Option<Driver>,
}

impl Appended {
    /// Blocks this thread.
    pub fn wait(self) -> Result<(), Error> {
        self.ack.wait(self.driven.as_ref())
    }

    /// The result if available, without waiting.
    pub fn try_result(&self) -> Option<Result<(), Error>> {
        self.ack.result()
    }

    /// The position of the batch's last record.
    pub fn last(&self) -> Position {
        let sequence = self.first.sequence + u64::from(self.count) - 1;
        Position {
            epoch: self.first.epoch,
            sequence,
        }
    }
}

impl Future for Appended {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.ack.poll(context)
    }
}

/// A queued trim: resolves when its mark has reached the stream's level. Dropping it does not cancel
/// it.
pub struct Trimmed {
    /// The first number that is kept.
    pub first: u64,
    pub(crate) ack: Arc<Ack>,
    pub(crate) driven: Option<Driver>,
}

impl Trimmed {
    /// Blocks this thread.
    pub fn wait(self) -> Result<(), Error> {
        self.ack.wait(self.driven.as_ref())
    }

    /// The result if available, without waiting.
    pub fn try_result(&self) -> Option<Result<(), Error>> {
        self.ack.result()
    }
}

impl Future for Trimmed {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.ack.poll(context)
    }
}
