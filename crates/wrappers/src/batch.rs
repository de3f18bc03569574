//! Batches: elements on their way between a peer and the log.

use std::fmt;
use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::{StreamElement, StreamSchema};

use crate::DeviceReport;

/// Longest mark in bytes; reason: each batch stores it twice, and a cursor of a peer is shorter.
pub const MARK_BYTES_MAX: usize = 1_024;
/// Most bytes of the elements of one batch, as [`Batch::weight`] estimates them. 1 MiB: a batch over
/// several streams is stored once more in addition to its elements, and the log takes 4 MiB at once.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// How far a peer was read, in the terms of the wrapper that made it: a file and an offset, a cursor of
/// an interface. Opaque to the host, which stores it together with the elements up to it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Mark(Vec<u8>);

/// A mark that is longer than [`MARK_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the mark has {0} bytes; the limit is {MARK_BYTES_MAX}")]
pub struct MarkTooLong(pub usize);

impl Mark {
    /// A mark of these bytes.
    ///
    /// # Errors
    /// There are more than [`MARK_BYTES_MAX`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, MarkTooLong> {
        if bytes.len() > MARK_BYTES_MAX {
            return Err(MarkTooLong(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// A mark of bytes that have a limit of their own: the state of a processor, positions of its inputs.
    #[must_use]
    pub fn long(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark({} bytes)", self.0.len())
    }
}

/// The stream of a part: what the host needs to define and register it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamDefinition {
    /// The schema of its elements.
    pub schema: StreamSchema,
    /// The durability level; `None`: the configured default.
    pub level: Option<Level>,
    /// For a person to read.
    pub description: Option<String>,
}

/// Elements of one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The name of the stream.
    pub stream: Arc<str>,
    /// Its definition.
    pub definition: Arc<StreamDefinition>,
    /// The elements, oldest first. The host numbers those of a wrapper.
    pub elements: Vec<StreamElement>,
}

/// A message that a wrapper received and could not decode. It is kept for an operator and acknowledged,
/// or it would block the intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The stream it was meant for, where that is known.
    pub stream: Option<String>,
    /// Why it cannot be decoded.
    pub reason: String,
    /// The message as received, or its beginning if it was too long.
    pub message: Vec<u8>,
    /// Whether it is only the beginning: it must not be decoded again.
    pub is_cut: bool,
}

/// Messages that a wrapper knows to be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The stream they were meant for, where that is known.
    pub stream: Option<String>,
    /// Why, as a label of a metric: `queue_full`, `file_replaced`.
    pub reason: &'static str,
    /// How many; 0: perhaps some, in a number that is not known.
    pub messages: u64,
}

/// The account of a client, for which the messages that it sends count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender {
    /// Its name; empty for one that has no share.
    pub account: Arc<str>,
    /// Most streams that count for it, and most bytes of their definitions; `None`: no limit.
    pub definitions_max: Option<(usize, usize)>,
}

/// Elements and how far the peer was read. The host stores both in one append, so that after a crash
/// the mark stands for exactly the elements that are stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The elements, by stream.
    pub parts: Vec<Part>,
    /// Messages that could not be decoded.
    pub undecodable: Vec<Undecodable>,
    /// Messages that were lost before this batch.
    pub lost: Vec<Lost>,
    /// What the peer says about its devices, before the elements.
    pub devices: Vec<DeviceReport>,
    /// How far the peer was read, this batch included.
    pub mark: Mark,
    /// Whether the mark is of this run only, because the peer repeats what was not acknowledged: it is not stored.
    /// Such a batch is not stored as a whole if the node ends, and of those beyond the share of its sender only the
    /// elements of new streams are refused.
    pub has_volatile_mark: bool,
    /// Whether an element that its stream already has, with the same time, key and values, is not stored again.
    pub drops_repeats: bool,
    /// The account that sent it to the node, if a client did: its share counts the elements.
    pub sender: Option<Sender>,
}

impl Batch {
    /// The number of its elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.parts.iter().map(|part| part.elements.len()).sum()
    }

    /// About how many bytes of memory its elements and messages take.
    #[must_use]
    pub fn weight(&self) -> usize {
        let elements = self.parts.iter().flat_map(|part| &part.elements);
        let messages = self.undecodable.iter().map(|one| one.message.len() + 128);
        elements.map(element_weight).sum::<usize>() + messages.sum::<usize>()
    }

    /// Adds what another batch has; its mark and its sender become those of both.
    pub fn append(&mut self, other: Self) {
        for part in other.parts {
            let same = |known: &&mut Part| {
                known.stream == part.stream && known.definition == part.definition
            };
            match self.parts.iter_mut().rev().find(same) {
                Some(known) => known.elements.extend(part.elements),
                None => self.parts.push(part),
            }
        }
        self.undecodable.extend(other.undecodable);
        self.lost.extend(other.lost);
        self.devices.extend(other.devices);
        self.mark = other.mark;
        self.has_volatile_mark |= other.has_volatile_mark;
        self.drops_repeats |= other.drops_repeats;
        self.sender = other.sender;
    }

    /// Adds an element to the part of its stream.
    pub fn push(
        &mut self,
        stream: &Arc<str>,
        definition: &Arc<StreamDefinition>,
        element: StreamElement,
    ) {
        // Elements of one stream mostly follow each other.
        let of_stream = |part: &&mut Part| part.stream == *stream;
        if let Some(part) = self.parts.iter_mut().rev().find(of_stream) {
            return part.elements.push(element);
        }
        self.parts.push(Part {
            stream: stream.clone(),
            definition: definition.clone(),
            elements: vec![element],
        });
    }
}

/// About how many bytes of memory an element takes.
#[must_use]
pub fn element_weight(element: &StreamElement) -> usize {
    use chappe_stream::Value;
    let value = |value: &Value| match value {
        Value::Text(text) => 24 + text.len(),
        Value::Bytes(bytes) => 24 + bytes.len(),
        Value::Samples(samples) => 40 + 8 * samples.values.len(),
        _ => 12,
    };
    let key = element.key.as_ref().map_or(0, String::len);
    48 + key + element.values.iter().map(value).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_a_limit() {
        assert!(Mark::new(vec![0; MARK_BYTES_MAX]).is_ok());
        let longer = Mark::new(vec![0; MARK_BYTES_MAX + 1]);
        assert_eq!(longer, Err(MarkTooLong(MARK_BYTES_MAX + 1)));
    }

    #[test]
    fn a_batch_has_one_part_for_each_stream() {
        let mut batch = Batch::default();
        let definition = Arc::<StreamDefinition>::default();
        for name in ["a", "b", "a", "a"] {
            batch.push(&name.into(), &definition, crate::tests::element(1.0));
        }
        let parts: Vec<_> = batch.parts.iter().map(|part| part.elements.len()).collect();
        assert_eq!((parts, batch.elements()), (vec![3, 1], 4));
        assert!(batch.weight() >= 4 * 48);
    }
}
