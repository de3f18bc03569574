//! Reliable sessions: the machines of `chappe-flow` over a connection that keeps frame boundaries.
//!
//! `serve` is the origin's end, `subscribe` the subscriber's. One session is
//! one task, which runs the connection too; what is ready is done at once: frames that have come, new
//! elements, what has reached the disk, and then all that is to be sent in one go. Beside the frames of the session a connection
//! carries questions to the origin's directory, so that a link can ask for beginnings of names over
//! the same connection and its proven key.

pub mod memory;
mod serve;
mod subscribe;
mod wire;

use std::task::{Context, Poll};

use bytes::Bytes;

pub(crate) use serve::serve;
pub(crate) use subscribe::subscribe;

use super::Reader;

/// What a connection carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFrame {
    /// A frame of the session.
    Session(Bytes),
    /// A question to the directory, or the answer, as MessagePack.
    Directory(Bytes),
}

impl LinkFrame {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        match self {
            Self::Session(bytes) | Self::Directory(bytes) => bytes,
        }
    }
}

/// The connection is at its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ConnectionError {
    /// Why.
    pub text: String,
    /// What can be done, when that is known.
    pub hint: Option<String>,
}

/// A connection to one peer that keeps frame boundaries. When it is dropped, the peer's end ends too.
///
/// The session's task runs it: what it does, it does when it is polled.
pub trait FrameConnection: Send + 'static {
    /// Who is at the other end.
    fn peer(&self) -> Reader;

    /// Queues a frame, which goes out when one of the others is polled. The session's windows bound
    /// how many there are.
    ///
    /// # Errors
    /// When the connection is at its end, or can never send such a frame.
    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError>;

    /// The next frame; sends meanwhile what is queued.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>>;

    /// Whether a frame has come that [`Self::poll_receive`] gives at once.
    fn has_frame(&self) -> bool;

    /// Ready when what was queued is on its way.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>>;
}
