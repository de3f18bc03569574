//! A stream of the log as documents: its structure, its elements, and its losses.

use std::collections::VecDeque;

use chappe_log::{Error, Rollback as LogRollback};
use chappe_stream::{
    Epoch, Position, StoreError, StreamElement, StreamLog, StreamSchema, WrittenFollower,
};

use crate::serialization::{
    Document, Elements, Lost, Rollback, SchemaId, SchemaRef, Structure, count_for_document,
};
use crate::{LinkStart, LossReason};

/// The next documents, in order.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The structure, if it changed.
    pub(super) structure: Option<Document>,
    /// Elements, or a loss.
    pub(super) document: Document,
    /// The schema of the elements.
    pub(super) schema: StreamSchema,
}

/// Follows a stream.
pub(super) struct Outflow {
    log: StreamLog,
    /// The name by which the reader asked for it; it may have others.
    name: String,
    follower: WrittenFollower,
    /// The schema of the elements that were read last, and its version.
    schema: StreamSchema,
    version: u32,
    announced_schema: Option<SchemaRef>,
    rollback: Option<Rollback>,
    /// Elements that were read and not sent.
    waiting: std::vec::IntoIter<StreamElement>,
    /// Lost ranges that were found and not sent, one for each epoch.
    lost: VecDeque<Lost>,
    /// The position after which it starts.
    begins: Position,
}

impl Outflow {
    /// Starts after the reader's newest position that the log knows: `after`, or one of `earlier`.
    pub(super) fn new(
        log: &StreamLog,
        name: &str,
        after: Option<Position>,
        earlier: &[Position],
        start: LinkStart,
    ) -> Self {
        let mut rollback = None;
        let next = match (after, start) {
            (Some(have), _) => log.resume(have).unwrap_or_else(|found| {
                let (kept, next) = last_in_common(log, &found, earlier);
                rollback = Some(Rollback {
                    stream: name.to_owned(),
                    kept,
                    next: log.position_of(next),
                });
                next
            }),
            (None, LinkStart::First) => log.log().first(),
            (None, LinkStart::New) => log.log().last() + 1,
        };
        Self {
            follower: log.follow_written(next),
            log: log.clone(),
            name: name.to_owned(),
            schema: log.schema(),
            version: log.schema_version(),
            announced_schema: None,
            rollback,
            waiting: Vec::new().into_iter(),
            lost: VecDeque::new(),
            begins: Position {
                sequence: next.saturating_sub(1),
                ..log.position_of(next)
            },
        }
    }

    /// The position after which it starts.
    pub(super) fn begins(&self) -> Position {
        self.begins
    }

    /// The number of elements in the log after this number.
    pub(super) fn elements_after(&self, sequence: u64) -> u64 {
        self.log.log().last().saturating_sub(sequence)
    }

    /// The name by which the reader asked for the stream.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes the structure be sent again.
    pub(super) fn forget_structure(&mut self) {
        self.announced_schema = None;
    }

    /// The structure of the elements that were read last; the stream may have a newer one.
    pub(super) fn structure(&self) -> Document {
        Document::Structure(Structure {
            stream: self.name.clone(),
            version: self.version,
            schema: self.schema.clone(),
        })
    }

    /// The next documents, with at most `most` elements. Cancel-safe.
    ///
    /// # Errors
    /// The log has stopped, or a record does not decode.
    pub(super) async fn next(&mut self, most: usize) -> Result<Outgoing, StoreError> {
        let stream = self.name.clone();
        if let Some(rollback) = self.rollback.take() {
            return Ok(self.outgoing(Document::Rollback(rollback)));
        }
        if let Some(lost) = self.lost.pop_front() {
            return Ok(self.outgoing(Document::Lost(lost)));
        }
        if self.waiting.len() == 0 {
            match self.follower.next().await {
                Ok(written) => {
                    (self.schema, self.version) = (written.schema, written.schema_version);
                    self.waiting = written.elements.into_iter();
                }
                Err(StoreError::Log(Error::Gap {
                    from, next, reason, ..
                })) => {
                    let reason = match reason {
                        chappe_log::GapReason::Trimmed => LossReason::Trimmed,
                        _ => LossReason::Corrupt,
                    };
                    let parts = self.log.by_epoch(from, next).into_iter();
                    self.lost.extend(parts.map(|(first, next)| Lost {
                        stream: stream.clone(),
                        epoch: first.epoch,
                        from: first.sequence,
                        next,
                        reason,
                    }));
                    return Box::pin(self.next(most)).await;
                }
                Err(error) => return Err(error),
            }
        }
        let count = count_for_document(self.waiting.as_slice(), most);
        let mut elements: Vec<StreamElement> = self.waiting.by_ref().take(count).collect();
        for element in &mut elements {
            element.origin = None;
        }
        let schema = self.schema.clone();
        let schema_ref = SchemaRef {
            id: SchemaId::of(&schema),
            version: self.version,
        };
        let structure = (self.announced_schema != Some(schema_ref)).then(|| self.structure());
        let newest = elements.last().map_or(0, |it| it.position.sequence);
        let last = (self.elements_after(newest) > 0).then(|| self.log.log().last());
        self.announced_schema = Some(schema_ref);
        Ok(Outgoing {
            structure,
            document: Document::Elements(Elements {
                stream,
                schema: schema_ref,
                names: Vec::new(),
                elements,
                last,
            }),
            schema,
        })
    }

    fn outgoing(&self, document: Document) -> Outgoing {
        Outgoing {
            structure: None,
            document,
            schema: self.schema.clone(),
        }
    }
}

/// For a reader whose newest position is not in this log: the last position that both have, if
/// known, and the number to continue with.
fn last_in_common(
    log: &StreamLog,
    newest: &LogRollback,
    earlier: &[Position],
) -> (Option<Position>, u64) {
    let position = |it: chappe_log::Position| Position {
        epoch: Epoch(it.epoch),
        sequence: it.sequence,
    };
    if let Some(kept) = newest.kept {
        return (Some(position(kept)), newest.next);
    }
    let mut known = earlier.iter().filter_map(|at| match log.resume(*at) {
        Ok(next) => Some((*at, next)),
        Err(rollback) => rollback.kept.map(|kept| (position(kept), rollback.next)),
    });
    match known.next() {
        Some((kept, next)) => (Some(kept), next),
        None => (None, newest.next),
    }
}
