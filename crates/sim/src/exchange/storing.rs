//! Storing at a subscriber: the changes that [`chappe_link::Subscriber`] requests are queued in the log
//! and reported to the judge. A session continues from the log's cursor. Each record names it; it is set
//! for numbers without a record.

use chappe_flow::{Channel, LossReason, Position, Records};
use chappe_link::{StorageOutcome, StorageRequest, SubscriberCommand};
use chappe_log::{Appended, Cursor, Error, Level};
use chappe_machine::Input;

use super::fault::Sometimes;
use super::origin::stream_name;
use super::record;
use super::serving::schema_version;
use super::store::Outcome;
use super::subscriber::{CopyOf, Subscriber, at, position, remember};
use super::world::World;
use crate::judge::{At, Event, Reason, Violation};

/// Elements on their way to the disk.
pub(super) struct Pending {
    pub(super) stream: usize,
    /// The session that is notified.
    serial: u32,
    elements: Vec<(At, u64)>,
    appended: Appended,
}

/// The reason why a change is not made.
enum Refused {
    /// The log's queue has no room: the change is tried again.
    Busy,
    /// The session ends, and the next one starts at the log's cursor.
    Ended,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::QueueFull { .. } => Self::Busy,
            _ => Self::Ended,
        }
    }
}

/// The position of a cursor.
pub(super) fn position_of(cursor: Cursor) -> Option<At> {
    record::split(&cursor).map(|(at, _)| at)
}

/// The cursor of a record: its position at the origin.
pub(super) fn cursor_of(payload: &[u8]) -> Option<Cursor> {
    payload.get(..16)?.try_into().ok()
}

impl Subscriber {
    /// Makes one change of the log. Returns the answers to the machine; none if the session has ended.
    pub(super) fn store(
        &mut self,
        world: &mut World,
        link: usize,
        serial: u32,
        channel: Channel,
        request: StorageRequest,
    ) -> Vec<SubscriberCommand> {
        let number = channel.0 as usize;
        let kind = waits_of(&request);
        let mut answers = Vec::new();
        let outcome = match request {
            StorageRequest::Define { schema } => self.define(number, schema.bytes.to_vec()),
            StorageRequest::Append {
                first,
                schema_version: version,
                records,
                ..
            } => {
                let last = (first.sequence + records.len() as u64).saturating_sub(1);
                let written = [first.sequence, last].map(schema_version);
                if written != [version; 2] {
                    let what = format!("{first} is stored by schema {version}, not {written:?}");
                    world.violations.push(Violation(what));
                }
                self.append(world, serial, number, at(first), &records)
                    .map(|queued| answers.push(queued))
            }
            StorageRequest::Begin { at: first } => self.pass(number, at(first)),
            StorageRequest::Lost { from, next, reason } => {
                self.lost(world, number, at(from), next, reason)
            }
            StorageRequest::Rollback { have, next, .. } => self.rollback(world, number, have, next),
        };
        self.disked.commit_soon(world);
        answers.push(SubscriberCommand::Outcome(match outcome {
            Ok(()) => StorageOutcome::Done,
            Err(Refused::Busy) => {
                *kind(&mut world.sometimes) += 1;
                StorageOutcome::Busy
            }
            Err(Refused::Ended) => {
                self.end(world, link);
                return Vec::new();
            }
        }));
        answers
    }

    /// Opens the copy of a stream with this schema.
    fn define(&mut self, number: usize, schema: Vec<u8>) -> Result<(), Refused> {
        let Some(store) = &self.disked.store else {
            return Err(Refused::Ended);
        };
        let name = stream_name(number);
        match store.existing(&name) {
            Some(stream) => {
                drop(stream.change_metadata(|_| Ok::<_, Error>(schema))?);
                self.copies[number].stream = Some(stream);
                Ok(())
            }
            None => {
                drop(store.define(&name, |_| Ok::<_, Error>((Level::Power, schema)))?);
                // It exists after the next commit.
                Err(Refused::Busy)
            }
        }
    }

    fn append(
        &mut self,
        world: &mut World,
        serial: u32,
        number: usize,
        first: At,
        records: &Records,
    ) -> Result<SubscriberCommand, Refused> {
        let copy = &self.copies[number];
        let Some(stream) = &copy.stream else {
            return Err(Refused::Ended);
        };
        let last = At {
            number: (first.number + records.len() as u64).saturating_sub(1),
            ..first
        };
        let (mut batch, mut elements) = (Vec::new(), Vec::new());
        for (number, record) in (first.number..).zip(records) {
            let at = At { number, ..first };
            batch.push((record.time, record::with_origin(at, record.payload)));
            elements.push((at, record::content(record.payload).unwrap_or(0)));
        }
        let appended = stream.append_after(copy.retractions, batch)?;
        self.copies[number].last = Some(last);
        for (at, _) in &elements {
            world.report(Event::Storing {
                subscriber: self.index,
                stream: number,
                at: *at,
            });
        }
        let count = elements.len() as u64;
        world.note(
            self.node(),
            "store: stream, first, count",
            [number as u64, last.number + 1 - count, count],
        );
        self.pending.push_back(Pending {
            stream: number,
            serial,
            elements,
            appended,
        });
        Ok(SubscriberCommand::Queued {
            last: position(&last),
            count,
            dead_letter: None,
        })
    }

    fn lost(
        &mut self,
        world: &mut World,
        stream: usize,
        from: At,
        next: u64,
        reason: LossReason,
    ) -> Result<(), Refused> {
        let reason = match reason {
            LossReason::Trimmed => Reason::Trimmed,
            LossReason::Corrupt => Reason::Damaged,
            other => {
                let what = format!("stream {stream}: {from:?} to {next} lost as {other:?}");
                world.violations.push(Violation(what));
                return Ok(());
            }
        };
        let number = next - 1;
        self.pass(stream, At { number, ..from })?;
        match reason {
            Reason::Trimmed => world.sometimes.lost_trimmed += 1,
            Reason::Damaged => world.sometimes.lost_damaged += 1,
        }
        let numbers = [stream as u64, from.number, next];
        world.note(self.node(), "lost: stream, from, next", numbers);
        world.report(Event::LossReported {
            subscriber: self.index,
            stream,
            epoch: from.epoch,
            from: from.number,
            next,
            reason,
        });
        Ok(())
    }

    fn rollback(
        &mut self,
        world: &mut World,
        stream: usize,
        have: Position,
        next: Position,
    ) -> Result<(), Refused> {
        let before = At {
            epoch: next.epoch,
            number: next.sequence.saturating_sub(1),
        };
        self.pass(stream, before)?;
        world.sometimes.rollback += 1;
        let numbers = [stream as u64, have.epoch, have.sequence];
        world.note(self.node(), "rollback: stream, have", numbers);
        let subscriber = self.index;
        world.report(Event::RollbackReported { subscriber, stream });
        Ok(())
    }

    /// Sets the cursor to a position without a record.
    fn pass(&mut self, number: usize, at: At) -> Result<(), Refused> {
        let copy = &mut self.copies[number];
        let stream = copy.stream.as_ref().ok_or(Refused::Ended)?;
        let cursor = cursor_of(&record::with_origin(at, &[])).ok_or(Refused::Ended)?;
        drop(stream.set_cursor(copy.retractions, cursor)?);
        copy.last = Some(at);
        Ok(())
    }

    pub(super) fn commit(&mut self, world: &mut World) -> Outcome {
        let outcome = self.disked.commit(world);
        if outcome == Outcome::Failed {
            return outcome;
        }
        self.filled(world);
        let mut done = Vec::new();
        let mut refused = Vec::new();
        while let Some(result) = self.pending.front().and_then(|it| it.appended.try_result()) {
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            match result {
                Ok(()) => done.push(self.stored(world, &pending)),
                Err(_) => refused.push(pending.serial),
            }
        }
        world.sometimes.refused_full += u64::from(!refused.is_empty());
        for (serial, command) in done {
            if let Some(link) = self.link_of(serial) {
                self.pump(world, link, Input::Command(command));
            }
        }
        // The log assigns their numbers again, so later elements cannot follow them.
        for serial in refused {
            if let Some(link) = self.link_of(serial) {
                self.end(world, link);
            }
        }
        for link in 0..self.links.len() {
            self.subscribe(world, link);
        }
        if !self.pending.is_empty() || !self.copies.iter().all(CopyOf::is_settled) {
            self.disked.commit_soon(world);
        }
        outcome
    }

    fn stored(&mut self, world: &mut World, pending: &Pending) -> (u32, SubscriberCommand) {
        for (at, content) in &pending.elements {
            world.report(Event::Stored {
                subscriber: self.index,
                stream: pending.stream,
                at: *at,
                content: *content,
            });
        }
        let copy = &mut self.copies[pending.stream];
        let last = pending.elements[pending.elements.len() - 1].0;
        let first = pending.elements[0].0;
        remember(&mut copy.epochs, last);
        copy.batches.push((first, last));
        (pending.serial, SubscriberCommand::Stored { batches: 1 })
    }

    fn link_of(&self, serial: u32) -> Option<usize> {
        self.links.iter().position(|link| {
            let session = link.session.as_ref();
            session.is_some_and(|it| it.serial == serial)
        })
    }
}

/// The count of changes of this kind that found no room.
fn waits_of(request: &StorageRequest) -> fn(&mut Sometimes) -> &mut u64 {
    match request {
        StorageRequest::Lost { .. } => |it| &mut it.lost_waited,
        StorageRequest::Rollback { .. } => |it| &mut it.rollback_waited,
        StorageRequest::Define { .. } => |it| &mut it.schema_waited,
        StorageRequest::Append { .. } | StorageRequest::Begin { .. } => |it| &mut it.records_waited,
    }
}
