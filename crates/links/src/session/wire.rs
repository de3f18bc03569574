//! The connection of either end of a session: sends while it receives, and takes every frame that
//! is ready.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::{ConnectionError, FrameConnection, LinkFrame};

/// Frames handled before their results are sent; reason: an acknowledgement should not wait for
/// more than some milliseconds of work.
pub(super) const READY_FRAMES_MAX: usize = 64;
/// Queued bytes above which the peer is not read; reason: windows bound the data for a correct
/// peer, but not the answers for one that sends requests without reading.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// Time limit for the last frames at the end of a session.
const LINGER: Duration = Duration::from_secs(1);

/// A connection, and its error.
pub(super) struct Wire<C> {
    connection: C,
    /// Received while waiting for it.
    first: Option<LinkFrame>,
    failed: Option<ConnectionError>,
}

impl<C: FrameConnection> Wire<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            first: None,
            failed: None,
        }
    }

    /// Whether the queue is so full that nothing more should be answered or read.
    pub(super) fn is_full(&self) -> bool {
        self.connection.queued_bytes() >= QUEUED_BYTES_MAX
    }

    /// Queues a frame; if that fails, the next call returns the error.
    pub(super) fn push(&mut self, frame: LinkFrame) {
        if let Err(error) = self.connection.push(frame) {
            self.failed.get_or_insert(error);
        }
    }

    /// Sends queued frames as far as there is room; the rest is sent while waiting for a frame.
    pub(super) fn send_ready(&mut self) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.connection.poll_flush(&mut nobody()) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Returns when a frame is ready to [`take`](Self::take); if `waits`, also when there is room
    /// to send. Sends meanwhile. Cancel-safe.
    pub(super) async fn ready(&mut self, waits: bool) -> Result<(), ConnectionError> {
        poll_fn(|context| {
            if self.is_full()
                && let Poll::Ready(flushed) = self.connection.poll_flush(context)
            {
                flushed?;
            }
            if self.is_full() {
                return Poll::Pending;
            }
            if !waits && self.first.is_none() {
                self.first = Some(ready!(self.connection.poll_receive(context))?);
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The next frame that was read, if there is room for answers. Frames still at the socket come
    /// with the next wait, which polls it in any case.
    pub(super) fn take(&mut self) -> Result<Option<LinkFrame>, ConnectionError> {
        if self.is_full() {
            return Ok(None);
        }
        if let Some(frame) = self.first.take() {
            return Ok(Some(frame));
        }
        if !self.connection.has_frame() {
            return Ok(None);
        }
        match self.connection.poll_receive(&mut nobody()) {
            Poll::Ready(frame) => frame.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Sends everything queued before the end.
    pub(super) async fn finish(mut self) {
        let flushed = poll_fn(|context| self.connection.poll_flush(context));
        // After a time-out or an error the session ends anyway.
        let _ = tokio::time::timeout(LINGER, flushed).await;
    }
}

/// A context for polling without waiting. Before the task waits, it polls the connection again with
/// its own waker.
fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
