//! Reliable sessions: the machines of `chappe-flow` over a connection that keeps frame boundaries.
//!
//! `serve` runs the origin's end ([`chappe_link::Origin`]) and `subscribe` the subscriber's
//! ([`chappe_link::Subscriber`]). One session is one task, which also runs the connection. It handles
//! everything that is ready in one round (frames, new elements, stored batches) and then sends all
//! frames at once. A connection also carries questions to the origin's directory, so a link can ask
//! for prefixes of names over the same connection and its proven key.

pub mod memory;
mod reading;
mod serve;
mod subscribe;
mod wire;

use std::task::{Context, Poll};

use bytes::Bytes;

pub(crate) use serve::serve;
pub(crate) use subscribe::subscribe;

use super::Reader;

/// A frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFrame {
    /// A frame of the session.
    Session(Bytes),
    /// A query of the directory, or its answer, as MessagePack.
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

/// The connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ConnectionError {
    /// The reason.
    pub text: String,
    /// The hint, if there is one.
    pub hint: Option<String>,
}

/// A connection to one peer that keeps frame boundaries. When it is dropped, the peer's end ends too.
///
/// The session's task runs it: it makes progress only when it is polled.
pub trait FrameConnection: Send + 'static {
    /// The peer.
    fn peer(&self) -> Reader;

    /// Queues a frame, which is sent when another method is polled. The session bounds
    /// [`Self::queued_bytes`].
    ///
    /// # Errors
    /// The connection has ended, or can never send such a frame.
    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError>;

    /// Bytes of the frames that are queued and not sent.
    fn queued_bytes(&self) -> usize;

    /// The next frame; sends queued frames meanwhile.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>>;

    /// Whether [`Self::poll_receive`] returns a frame at once.
    fn has_frame(&self) -> bool;

    /// Ready when all queued frames are sent.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>>;
}
