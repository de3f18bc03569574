//! What both ends of a session share: sending without ceasing to receive, and taking what is ready.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::{ConnectionError, FrameConnection, LinkFrame};

/// Frames taken at once before what they cause is sent; reason: an acknowledgement should not wait
/// for more than some milliseconds of work.
pub(super) const READY_FRAMES_MAX: usize = 64;
/// Bytes that may be queued before the peer is read and answered again; reason: windows bound what
/// goes to a peer that keeps the protocol, not the answers to one that asks without reading.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// How long the last frames may take at the end of a session.
const LINGER: Duration = Duration::from_secs(1);

/// A connection, and how it failed.
pub(super) struct Wire<C> {
    connection: C,
    /// Received while it was awaited.
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

    /// Whether so much is queued that nothing more should be answered or read.
    pub(super) fn is_full(&self) -> bool {
        self.connection.queued_bytes() >= QUEUED_BYTES_MAX
    }

    /// Queues a frame; if that fails, so does what is called next.
    pub(super) fn push(&mut self, frame: LinkFrame) {
        if let Err(error) = self.connection.push(frame) {
            self.failed.get_or_insert(error);
        }
    }

    /// Sends what is queued, as far as there is room now; the rest goes while a frame is awaited.
    pub(super) fn send_ready(&mut self) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.connection.poll_flush(&mut nobody()) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Returns when there is a frame to [`take`](Self::take); when something else `waits` for room, as
    /// soon as there is room. Sends meanwhile. Nothing is lost when the future is dropped.
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

    /// The next frame that was read, if there is room for answers. What is at the socket comes with the
    /// next wait, which asks it in any case.
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

    /// Sends what is queued to the last, before the end.
    pub(super) async fn finish(mut self) {
        let flushed = poll_fn(|context| self.connection.poll_flush(context));
        // Late or broken: it ends all the same.
        let _ = tokio::time::timeout(LINGER, flushed).await;
    }
}

/// For asking what is there now. Before anybody waits, the connection is asked again with the task's
/// own waker.
fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
