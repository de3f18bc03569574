//! The sink side: what a protocol implements so that elements leave the node.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_stream::Position;

use crate::{Batch, NodeParts, Step, WrapperError};

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

/// Time after which a batch that the peer does not take counts as failed; reason: a peer that is slower than this
/// is gone.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// Time after which an exporter that passes elements one after another returns what the peer has; reason: the host
/// moves its cursor, so that a slow peer gets nothing twice.
pub(crate) const TURN_TIME: Duration = Duration::from_secs(20);

/// What became of a batch: every element is with the peer, except those that it refused for good, or only a part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The elements that the peer will never accept. They become dead letters.
    pub refused: Vec<Refused>,
    /// The peer has only a part of the batch.
    pub partial: Option<Partial>,
}

/// A part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// The last element of each stream that the peer has, or refused; at least one.
    pub reached: Vec<(String, Position)>,
    /// Why the peer does not have the rest; `None` if it has not got its turn yet.
    pub error: Option<WrapperError>,
}

impl Written {
    /// The same, if the peer has only the elements up to these; what it refused later is passed to it again.
    pub(crate) fn until(
        mut self,
        reached: Vec<(String, Position)>,
        error: Option<WrapperError>,
    ) -> Result<Self, WrapperError> {
        if let (true, Some(error)) = (reached.is_empty(), &error) {
            return Err(error.clone());
        }
        self.refused.retain(|one| {
            let mut of_stream = reached.iter().filter(|(stream, _)| *stream == one.stream);
            of_stream.any(|(_, at)| one.position.sequence <= at.sequence)
        });
        self.partial = Some(Partial { reached, error });
        Ok(self)
    }
}

/// What became of elements that were on their way. The host makes dead letters of the refused ones before it calls
/// [`Exporter::delivered`] again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivered {
    /// The newest element of each stream that the peer has.
    pub positions: Vec<(String, Position)>,
    /// The elements that the peer will never accept. They become dead letters.
    pub refused: Vec<Refused>,
}

/// A sink of elements: one connection to a peer, in one protocol.
///
/// The host reads each stream of the exporter by a cursor of its own, passes elements in the order of
/// their numbers, and moves the cursor when [`Exporter::write`] returns. After a crash in between, it
/// passes elements again: an exporter that can tell the peer their identity (stream, epoch, sequence),
/// or ask the peer how far it came ([`Exporter::resume`]), does so, and then none arrives twice.
///
/// A peer that is far away, or paced, is kept busy by several batches at once: such an exporter
/// ([`Exporter::is_pipelined`]) only takes a batch in [`Exporter::write`], within its limit ([`Exporter::has_room`]),
/// and the cursor moves by [`Exporter::delivered`].
pub trait Exporter: Send {
    /// The node that hosts it, and how far each of its streams was exported; called once, before the first step.
    ///
    /// # Errors
    /// The node lacks a part that the exporter needs.
    fn attach(
        &mut self,
        node: &NodeParts,
        exported: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        let _ = (node, exported);
        Ok(())
    }

    /// Passes a batch to the peer, and returns when the peer has it as safely as it can state. Elements
    /// carry their positions; the mark is empty.
    ///
    /// # Errors
    /// The peer failed. The host opens the exporter again after a pause and repeats the batch; after
    /// [`Written::partial`], the part of it that the peer does not have.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>>;

    /// Whether elements are on their way when [`Exporter::write`] has returned.
    fn is_pipelined(&self) -> bool {
        false
    }

    /// Whether it takes a batch now; asked again after each step.
    fn has_room(&self) -> bool {
        true
    }

    /// Works on elements that are on their way, until the peer has some of them, or refuses some, or there is room
    /// again. Called whenever there is nothing to write. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The peer failed.
    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        Box::pin(std::future::pending())
    }

    /// Time that one call of [`Exporter::write`] may take. Then it is dropped, and the peer has failed.
    fn write_time(&self) -> Duration {
        WRITE_TIME
    }

    /// The newest element of each stream that the peer has by its own account; called once, before the
    /// first batch. Streams that are not listed continue at the host's cursor.
    ///
    /// # Errors
    /// The peer failed.
    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
