//! Reliable sessions: the machines of `chappe-flow` over a connection that keeps frame boundaries.
//!
//! `serve` is the origin's end, `subscribe` the subscriber's. One session is
//! one task; what is ready is done at once: frames that have come, new elements, what has reached the
//! disk, and then all that is to be sent in one go. Beside the frames of the session a connection
//! carries questions to the origin's directory, so that a link can ask for beginnings of names over
//! the same connection and its proven key.

mod alarm;
pub mod memory;
mod serve;
mod subscribe;
mod wire;

use std::future::Future;

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
pub trait FrameConnection: Send + 'static {
    /// Its sending half.
    type Sender: FrameSender;
    /// Its receiving half.
    type Receiver: FrameReceiver;

    /// Who is at the other end.
    fn peer(&self) -> Reader;

    /// Both halves.
    fn split(self) -> (Self::Sender, Self::Receiver);
}

/// The sending half of a connection.
pub trait FrameSender: Send + 'static {
    /// Sends frames in order; returns when there is room for more.
    fn send(
        &mut self,
        frames: Vec<LinkFrame>,
    ) -> impl Future<Output = Result<(), ConnectionError>> + Send;
}

/// The receiving half of a connection.
pub trait FrameReceiver: Send + 'static {
    /// The next frame. Nothing is lost when the future is dropped before it is ready.
    fn receive(&mut self) -> impl Future<Output = Result<LinkFrame, ConnectionError>> + Send;
}
