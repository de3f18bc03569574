//! The sink side: what a protocol implements so that elements leave the node.

use chappe_stream::Position;

use crate::{Batch, Step, WrapperError};

/// An element that the peer will never accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The stream.
    pub stream: String,
    /// The element.
    pub position: Position,
    /// The peer's reason.
    pub reason: String,
}

/// What became of a batch: every element is with the peer, except those that it refused for good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The elements that the peer will never accept. They become dead letters.
    pub refused: Vec<Refused>,
}

/// A sink of elements: one connection to a peer, in one protocol.
///
/// The host reads each stream of the exporter by a cursor of its own, passes elements in the order of
/// their numbers, and moves the cursor when [`Exporter::write`] returns. After a crash in between, it
/// passes elements again: an exporter that can tell the peer their identity (stream, epoch, sequence),
/// or ask the peer how far it came ([`Exporter::resume`]), does so, and then none arrives twice.
pub trait Exporter: Send {
    /// Passes a batch to the peer, and returns when the peer has it as safely as it can state. Elements
    /// carry their positions; the mark is empty.
    ///
    /// # Errors
    /// The peer failed. The host opens the exporter again after a pause and repeats the batch.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>>;

    /// The newest element of each stream that the peer has by its own account; called once, before the
    /// first batch. Streams that are not listed continue at the host's cursor.
    ///
    /// # Errors
    /// The peer failed.
    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
