//! What both ends of a session share: sending without ceasing to receive, and taking what is ready.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{ConnectionError, FrameConnection, LinkFrame};

/// Frames taken at once before what they cause is sent; reason: an acknowledgement should not wait
/// for more than some milliseconds of work.
const READY_FRAMES_MAX: usize = 64;
/// How long the last frames may take at the end of a session.
const LINGER: Duration = Duration::from_secs(1);

/// A connection, and how it failed.
pub(super) struct Wire<C> {
    connection: C,
    failed: Option<ConnectionError>,
}

impl<C: FrameConnection> Wire<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            failed: None,
        }
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

    /// The next frame; sends meanwhile. Nothing is lost when the future is dropped.
    pub(super) async fn receive(&mut self) -> Result<LinkFrame, ConnectionError> {
        poll_fn(|context| self.connection.poll_receive(context)).await
    }

    /// Frames that were read with the last one. What is at the socket comes with the next wait, which asks
    /// it in any case.
    pub(super) fn receive_ready(
        &mut self,
        frames: &mut Vec<LinkFrame>,
    ) -> Result<(), ConnectionError> {
        while frames.len() < READY_FRAMES_MAX && self.connection.has_frame() {
            match self.connection.poll_receive(&mut nobody()) {
                Poll::Ready(frame) => frames.push(frame?),
                Poll::Pending => break,
            }
        }
        Ok(())
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
