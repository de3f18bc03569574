//! Storing at a subscriber, as the sessions of `chappe-wrappers` do it: each event that changes what is
//! stored is queued in the log; an event that finds no room waits with all later ones
//! ([`chappe_flow::Parked`]); and the session goes on from the log's cursor, which each record names and
//! which is set for numbers that no record stands for.

use chappe_flow::{Channel, LossReason, Position, ReceiverCommand, ReceiverEvent, Records};
use chappe_log::{Appended, Cursor, Error, Level};
use chappe_machine::Input;

use super::origin::stream_name;
use super::record;
use super::store::Outcome;
use super::subscriber::{CopyOf, Subscriber, lost_numbers, position, remember};
use super::world::World;
use crate::judge::{At, Event, Reason, Violation};

/// Elements on their way to the disk.
pub(super) struct Pending {
    pub(super) stream: usize,
    /// The session to tell, and its channel.
    serial: u32,
    channel: Channel,
    elements: Vec<(At, u64)>,
    appended: Appended,
}

/// Why an event is not handled.
enum Refused {
    /// The log's queue has no room: the event is handled later.
    Busy,
    /// The session ends and begins again from the log's cursor.
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

/// The place that a cursor names.
pub(super) fn place_of(cursor: Cursor) -> Option<At> {
    record::split(&cursor).map(|(at, _)| at)
}

/// The place at the origin that a record names, as a cursor.
pub(super) fn cursor_of(payload: &[u8]) -> Option<Cursor> {
    payload.get(..16)?.try_into().ok()
}

impl Subscriber {
    /// Takes an event that changes what is stored.
    pub(super) fn take(
        &mut self,
        world: &mut World,
        link: usize,
        serial: u32,
        event: ReceiverEvent,
    ) {
        let session = self.links[link].session.as_mut();
        let Some(session) = session.filter(|it| it.line.serial == serial) else {
            self.lost_untold += lost_numbers(&event);
            return;
        };
        let is_next = session.parked.push(event);
        if session.parked.is_full() {
            let what = "more events wait for room than a session may hold".to_owned();
            world.violations.push(Violation(what));
        }
        if is_next {
            self.take_parked(world, link);
        }
    }

    /// Handles the parked events of a session, in order, until the log's queue is full.
    pub(super) fn take_parked(&mut self, world: &mut World, link: usize) {
        while let Some(session) = &mut self.links[link].session
            && let Some(event) = session.parked.take()
        {
            let serial = session.line.serial;
            let outcome = self.handle(world, serial, &event);
            self.disked.commit_soon(world);
            match outcome {
                Ok(()) => {}
                Err(Refused::Busy) => {
                    *waits(world, &event) += 1;
                    if let Some(session) = &mut self.links[link].session {
                        session.parked.put_back(event);
                    }
                    return;
                }
                Err(Refused::Ended) => {
                    if let Some(session) = &mut self.links[link].session {
                        session.parked.put_back(event);
                    }
                    return self.end(world, link);
                }
            }
        }
    }

    fn handle(
        &mut self,
        world: &mut World,
        serial: u32,
        event: &ReceiverEvent,
    ) -> Result<(), Refused> {
        match event {
            ReceiverEvent::Accepted { channel, grant } => {
                let number = channel.0 as usize;
                // The schema is another in each epoch, so that it is often new.
                let schema = [&grant.schema.bytes[..], &grant.epoch.to_le_bytes()].concat();
                self.define(number, schema)?;
                if self.copies[number].have.is_none() {
                    world.tell(Event::Granted {
                        subscriber: self.index,
                        stream: number,
                        from: grant.next,
                    });
                }
                Ok(())
            }
            ReceiverEvent::Store {
                channel,
                epoch,
                first,
                records,
                ..
            } => {
                let (epoch, number) = (*epoch, *first);
                self.store(world, serial, *channel, At { epoch, number }, records)
            }
            ReceiverEvent::Lost {
                channel,
                epoch,
                from,
                next,
                reason,
            } => {
                let (epoch, number) = (*epoch, *from);
                self.lost(world, *channel, At { epoch, number }, *next, *reason)
            }
            ReceiverEvent::Rollback {
                channel,
                have,
                next,
                ..
            } => self.rollback(world, *channel, *have, *next),
            _ => Ok(()),
        }
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
                // It is there after the next commit.
                Err(Refused::Busy)
            }
        }
    }

    fn store(
        &mut self,
        world: &mut World,
        serial: u32,
        channel: Channel,
        first: At,
        records: &Records,
    ) -> Result<(), Refused> {
        let number = channel.0 as usize;
        let copy = &self.copies[number];
        let Some(stream) = &copy.stream else {
            return Err(Refused::Ended);
        };
        let is_new = |at: &At| {
            copy.have
                .is_none_or(|have| have.epoch != at.epoch || at.number > have.number)
        };
        let last = At {
            number: (first.number + records.len() as u64).saturating_sub(1),
            ..first
        };
        let handed_out = copy.handed_out.filter(|it| it.epoch == first.epoch);
        if handed_out.is_some_and(|it| it.number >= first.number) {
            let what = format!("stream {number}: {first:?} was handed out twice in a session");
            world.violations.push(Violation(what));
        }
        let (mut batch, mut elements) = (Vec::new(), Vec::new());
        for (number, record) in (first.number..).zip(records) {
            let at = At { number, ..first };
            if is_new(&at) {
                batch.push((record.time, record::with_origin(at, record.payload)));
                elements.push((at, record::content(record.payload).unwrap_or(0)));
            }
        }
        if elements.is_empty() {
            return Ok(());
        }
        let appended = stream.append_behind(copy.taken_back, batch)?;
        self.copies[number].have = Some(last);
        self.copies[number].handed_out = Some(last);
        for (at, _) in &elements {
            world.tell(Event::Storing {
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
            channel,
            elements,
            appended,
        });
        Ok(())
    }

    fn lost(
        &mut self,
        world: &mut World,
        channel: Channel,
        from: At,
        next: u64,
        reason: LossReason,
    ) -> Result<(), Refused> {
        let stream = channel.0 as usize;
        let reason = match reason {
            LossReason::Trimmed => Reason::Trimmed,
            LossReason::Corrupt => Reason::Damaged,
            other => {
                let what = format!("stream {stream}: {from:?} to {next} lost as {other:?}");
                world.violations.push(Violation(what));
                return Ok(());
            }
        };
        let first = match self.copies[stream].have {
            Some(have) if have.epoch == from.epoch => from.number.max(have.number + 1),
            _ => from.number,
        };
        self.lost_untold += first.min(next) - from.number;
        if first >= next {
            return Ok(());
        }
        let number = next - 1;
        self.pass(stream, At { number, ..from })?;
        match reason {
            Reason::Trimmed => world.sometimes.lost_trimmed += 1,
            Reason::Damaged => world.sometimes.lost_damaged += 1,
        }
        let numbers = [stream as u64, first, next];
        world.note(self.node(), "lost: stream, from, next", numbers);
        world.tell(Event::LostSaid {
            subscriber: self.index,
            stream,
            epoch: from.epoch,
            from: first,
            next,
            reason,
        });
        Ok(())
    }

    fn rollback(
        &mut self,
        world: &mut World,
        channel: Channel,
        have: Position,
        next: Position,
    ) -> Result<(), Refused> {
        let stream = channel.0 as usize;
        let before = At {
            epoch: next.epoch,
            number: next.sequence.saturating_sub(1),
        };
        self.pass(stream, before)?;
        world.sometimes.rollback += 1;
        let numbers = [stream as u64, have.epoch, have.sequence];
        world.note(self.node(), "rollback: stream, have", numbers);
        let subscriber = self.index;
        world.tell(Event::RollbackSaid { subscriber, stream });
        Ok(())
    }

    /// The origin was read up to here, and no record says so.
    fn pass(&mut self, number: usize, at: At) -> Result<(), Refused> {
        let copy = &mut self.copies[number];
        let stream = copy.stream.as_ref().ok_or(Refused::Ended)?;
        let cursor = cursor_of(&record::with_origin(at, &[])).ok_or(Refused::Ended)?;
        drop(stream.set_cursor(copy.taken_back, cursor)?);
        copy.have = Some(at);
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
        // As the log gives their numbers out again, what follows cannot be stored behind them.
        for serial in refused {
            if let Some(link) = self.link_of(serial) {
                self.end(world, link);
            }
        }
        for link in 0..self.links.len() {
            self.take_parked(world, link);
            self.subscribe(world, link);
        }
        if !self.pending.is_empty() || !self.copies.iter().all(CopyOf::is_settled) {
            self.disked.commit_soon(world);
        }
        outcome
    }

    fn stored(&mut self, world: &mut World, pending: &Pending) -> (u32, ReceiverCommand) {
        for (at, content) in &pending.elements {
            world.tell(Event::Stored {
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
        let command = ReceiverCommand::Stored {
            channel: pending.channel,
            position: position(&last),
        };
        (pending.serial, command)
    }

    fn link_of(&self, serial: u32) -> Option<usize> {
        self.links.iter().position(|link| {
            let session = link.session.as_ref();
            session.is_some_and(|it| it.line.serial == serial)
        })
    }
}

/// How often an event of this kind found no room.
fn waits<'a>(world: &'a mut World, event: &ReceiverEvent) -> &'a mut u64 {
    let sometimes = &mut world.sometimes;
    match event {
        ReceiverEvent::Lost { .. } => &mut sometimes.lost_waited,
        ReceiverEvent::Rollback { .. } => &mut sometimes.rollback_waited,
        ReceiverEvent::Accepted { .. } => &mut sometimes.schema_waited,
        _ => &mut sometimes.records_waited,
    }
}
