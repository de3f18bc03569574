//! The storing end of a link. The [crate documentation](crate) gives an overview.

mod types;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use chappe_flow::{
    Channel, DeadLetterReason, Grant, Parked, Position, Receiver, ReceiverCommand, ReceiverEvent,
    ReceiverReceive, SessionEvent, Start, Subscription,
};
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::origin::shifted;
use crate::planted::{self, Defect};
use crate::progress::Progress;
use crate::repair::RepairTurn;

pub use types::{
    StorageOutcome, StorageRequest, SubscriberCommand, SubscriberConfig, SubscriberEvent,
    SubscriberReceive,
};

/// The storing end of a link, for one session. The [crate documentation](crate) has its contract.
#[derive(Debug)]
pub struct Subscriber {
    receiver: Receiver,
    channels: BTreeMap<Channel, Copied>,
    /// Changes of the log that wait, in order.
    parked: Parked,
    /// The change that the program is applying.
    requested: Option<ReceiverEvent>,
    /// The time at which changes that found no room are retried.
    retry_at: Option<Instant>,
    busy_pause: Duration,
    /// Batches queued in the log, in log order.
    queued: VecDeque<Queued>,
    /// Per channel, how far the batches of one input are stored; empty between inputs.
    stored: Vec<(Channel, Position, u64)>,
    repair: RepairTurn,
    /// Lost numbers that were counted before, or belong to an abandoned stream.
    lost_ignored: u64,
    commands: VecDeque<ReceiverCommand>,
    events: VecDeque<SubscriberEvent>,
    /// An element that the session has returned twice: its invariant is broken.
    handed_out_twice: Option<Position>,
    has_ended: bool,
    now: Instant,
}

/// The copy of one stream.
#[derive(Debug)]
struct Copied {
    progress: Progress,
    /// It is read from its end, and that position is not stored yet.
    starts_at_end: bool,
    /// The last element that the session has returned.
    handed_out: Option<Position>,
}

/// One batch queued in the log, or one dead letter.
#[derive(Debug)]
struct Queued {
    channel: Channel,
    last: Position,
    count: u64,
    dead_letter: Option<DeadLetterReason>,
}

impl Subscriber {
    /// A subscriber without streams. `seed` is random and different for each session.
    #[must_use]
    pub fn new(config: SubscriberConfig, seed: u64) -> Self {
        Self {
            receiver: Receiver::new(config.receiver, seed),
            channels: BTreeMap::new(),
            parked: Parked::default(),
            requested: None,
            retry_at: None,
            busy_pause: config.busy_pause,
            queued: VecDeque::new(),
            stored: Vec::new(),
            repair: RepairTurn::default(),
            lost_ignored: 0,
            commands: VecDeque::new(),
            events: VecDeque::new(),
            handed_out_twice: None,
            has_ended: false,
            now: Instant::ZERO,
        }
    }

    /// The session, for its counters and the state of its channels.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Whether so many changes of the log wait that the connection must not be read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.parked.is_full()
    }

    /// Whether a change of the log waits or is being applied.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.requested.is_some() || !self.parked.is_empty()
    }

    /// The number of elements reported by [`StorageRequest::Lost`] and recorded. The session also
    /// counts those that wait and those counted before.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let waiting: u64 = self
            .parked
            .iter()
            .chain(&self.requested)
            .map(lost_numbers)
            .sum();
        self.receiver.counters().lost - waiting - self.lost_ignored
    }

    fn command(&mut self, command: SubscriberCommand) {
        match command {
            SubscriberCommand::Open => self.commands.push_back(ReceiverCommand::Open),
            SubscriberCommand::Subscribe {
                channel,
                last,
                subscription,
            } => self.subscribe(channel, last, subscription),
            SubscriberCommand::Queued {
                last,
                count,
                dead_letter,
            } => self.queued(last, count, dead_letter),
            SubscriberCommand::Outcome(outcome) => self.outcome(outcome),
            SubscriberCommand::Stored { batches } => self.stored(batches),
            SubscriberCommand::Repair { holes } => {
                let holes = self.repair.next(holes, self.receiver.fetch_room());
                let requests = holes.into_iter().map(Into::into);
                self.commands.extend(requests.map(ReceiverCommand::Session));
            }
            SubscriberCommand::Session(command) => {
                self.commands.push_back(ReceiverCommand::Session(command));
            }
        }
    }

    fn subscribe(&mut self, channel: Channel, last: Option<Position>, wanted: Subscription) {
        let start = last.map_or(wanted.start, Start::After);
        let mut progress = Progress::default();
        progress.resume(last);
        let copied = Copied {
            progress,
            starts_at_end: start == Start::New,
            handed_out: None,
        };
        self.channels.insert(channel, copied);
        self.commands.push_back(ReceiverCommand::Subscribe {
            channel,
            subscription: Subscription { start, ..wanted },
        });
    }

    // -- from the session --

    fn event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Refused {
                channel,
                reason,
                text,
            } => {
                if self.channels.remove(&channel).is_some() {
                    self.events.push_back(SubscriberEvent::Refused {
                        channel,
                        reason,
                        text,
                    });
                }
            }
            ReceiverEvent::Unsubscribed { .. } => {}
            ReceiverEvent::Session(SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            }) => self.events.push_back(SubscriberEvent::PutBack {
                channel,
                first: position(epoch, first),
                records: shifted(Defect::RestoresShifted, records),
            }),
            ReceiverEvent::Session(event) => {
                self.has_ended |=
                    matches!(event, SessionEvent::Closed { .. } | SessionEvent::Failed(_));
                self.events.push_back(SubscriberEvent::Session(event));
            }
            change @ (ReceiverEvent::Accepted { .. }
            | ReceiverEvent::Schema { .. }
            | ReceiverEvent::Store { .. }
            | ReceiverEvent::Lost { .. }
            | ReceiverEvent::Rollback { .. }) => {
                self.note_handed_out(&change);
                if self.parked.push(change) {
                    self.request_next();
                }
            }
        }
    }

    fn note_handed_out(&mut self, change: &ReceiverEvent) {
        let ReceiverEvent::Store {
            channel,
            epoch,
            first,
            records,
            ..
        } = change
        else {
            return;
        };
        if let Some(copied) = self.channels.get_mut(channel) {
            let before = copied.handed_out.filter(|last| last.epoch == *epoch);
            if before.is_some_and(|last| last.sequence >= *first) {
                self.handed_out_twice = Some(position(*epoch, *first));
            }
            let last = (*first + records.len() as u64).saturating_sub(1);
            copied.handed_out = Some(position(*epoch, last));
        }
    }

    // -- storage --

    /// Requests the next change of the log, unless one is being applied.
    fn request_next(&mut self) {
        while self.requested.is_none() && !self.has_ended {
            let Some(change) = self.parked.take() else {
                return;
            };
            match self.request(&change) {
                Some((channel, request)) => {
                    self.requested = Some(change);
                    let storage = SubscriberEvent::Storage { channel, request };
                    self.events.push_back(storage);
                }
                // It contains nothing new.
                None => self.lost_ignored += lost_numbers(&change),
            }
        }
    }

    fn request(&self, change: &ReceiverEvent) -> Option<(Channel, StorageRequest)> {
        let channel = change.channel()?;
        let copied = self.channels.get(&channel)?;
        let request = match change {
            ReceiverEvent::Accepted { grant, .. } if copied.starts_at_end => {
                StorageRequest::Begin { at: before(grant) }
            }
            ReceiverEvent::Accepted {
                grant: Grant { schema, .. },
                ..
            }
            | ReceiverEvent::Schema { schema, .. } => StorageRequest::Define {
                schema: schema.clone(),
            },
            ReceiverEvent::Store {
                epoch,
                first,
                schema_version,
                records,
                behind,
                ..
            } => {
                let first = position(*epoch, *first);
                let repeated = copied.progress.repeated(first, records.len() as u64);
                if repeated == records.len() as u64 {
                    return None;
                }
                StorageRequest::Append {
                    first: position(first.epoch, first.sequence + repeated),
                    schema_version: *schema_version,
                    records: records.skip(usize::try_from(repeated).unwrap_or(usize::MAX)),
                    behind: *behind,
                }
            }
            ReceiverEvent::Lost {
                epoch,
                from,
                next,
                reason,
                ..
            } => StorageRequest::Lost {
                from: copied
                    .progress
                    .first_unread(position(*epoch, *from), *next)?,
                next: *next,
                reason: *reason,
            },
            ReceiverEvent::Rollback {
                have, kept, next, ..
            } => StorageRequest::Rollback {
                have: *have,
                kept: *kept,
                next: *next,
            },
            ReceiverEvent::Refused { .. }
            | ReceiverEvent::Unsubscribed { .. }
            | ReceiverEvent::Session(_) => return None,
        };
        Some((channel, request))
    }

    fn queued(&mut self, last: Position, count: u64, dead_letter: Option<DeadLetterReason>) {
        let Some(channel) = self.requested.as_ref().and_then(ReceiverEvent::channel) else {
            return;
        };
        // The log reports the batch as stored even if the origin has ended its stream meanwhile.
        if let Some(copied) = self.channels.get_mut(&channel) {
            copied.progress.reach(last);
        }
        self.queued.push_back(Queued {
            channel,
            last,
            count,
            dead_letter,
        });
        if planted::is(Defect::AcknowledgesQueued) && dead_letter.is_none() {
            let position = last;
            self.commands
                .push_back(ReceiverCommand::Stored { channel, position });
        }
    }

    fn outcome(&mut self, outcome: StorageOutcome) {
        let Some(change) = self.requested.take() else {
            return;
        };
        match outcome {
            StorageOutcome::Done => self.done(change),
            StorageOutcome::Busy => {
                self.pass_parked(&change);
                self.parked.put_back(change);
                // All later changes wait too.
                return self.retry_later();
            }
            StorageOutcome::Defining => {
                self.parked.hold(change);
                self.retry_later();
            }
            StorageOutcome::Refused { reason, text } => {
                if let Some(channel) = change.channel() {
                    self.channels.remove(&channel);
                    self.commands.push_back(ReceiverCommand::Unsubscribe {
                        channel,
                        reason,
                        text,
                    });
                }
            }
        }
        self.request_next();
    }

    /// With the defect, elements that wait count as read.
    fn pass_parked(&mut self, change: &ReceiverEvent) {
        if let ReceiverEvent::Store {
            channel,
            epoch,
            first,
            records,
            ..
        } = change
            && planted::is(Defect::PassesParked)
            && let Some(copied) = self.channels.get_mut(channel)
        {
            let last = (*first + records.len() as u64).saturating_sub(1);
            copied.progress.reach(position(*epoch, last));
        }
    }

    fn retry_later(&mut self) {
        let at = self.now + self.busy_pause;
        self.retry_at.get_or_insert(at);
    }

    /// Records that a change is in the log's queue.
    fn done(&mut self, change: ReceiverEvent) {
        let copied = change
            .channel()
            .and_then(|channel| self.channels.get_mut(&channel));
        let Some(Copied {
            progress,
            starts_at_end,
            ..
        }) = copied
        else {
            return;
        };
        match &change {
            ReceiverEvent::Accepted { grant, .. } if *starts_at_end => {
                *starts_at_end = false;
                progress.reach(before(grant));
                // Its schema is next.
                self.parked.put_back(change);
            }
            ReceiverEvent::Accepted { channel, grant } => {
                self.events.push_back(SubscriberEvent::Accepted {
                    channel: *channel,
                    next: position(grant.epoch, grant.next),
                });
            }
            ReceiverEvent::Lost {
                epoch, from, next, ..
            } => {
                let from = position(*epoch, *from);
                let first = progress.first_unread(from, *next).unwrap_or(from);
                self.lost_ignored += first.sequence - from.sequence;
                progress.reach(position(*epoch, next.saturating_sub(1)));
            }
            ReceiverEvent::Rollback { next, .. } => {
                progress.reach(position(next.epoch, next.sequence.saturating_sub(1)));
            }
            _ => {}
        }
    }

    /// Records that the oldest batches queued in the log are durable.
    fn stored(&mut self, batches: usize) {
        for _ in 0..batches {
            let Some(batch) = self.queued.pop_front() else {
                break;
            };
            let Queued {
                channel,
                last,
                count,
                dead_letter,
            } = batch;
            if let Some(reason) = dead_letter {
                self.acknowledge();
                if !self.channels.contains_key(&channel) {
                    continue;
                }
                self.commands.push_back(ReceiverCommand::Refused {
                    channel,
                    position: last,
                    reason,
                });
                continue;
            }
            match self.stored.iter_mut().find(|(it, ..)| *it == channel) {
                Some(known) => (known.1, known.2) = (last, known.2 + count),
                None => self.stored.push((channel, last, count)),
            }
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        for (channel, last, count) in self.stored.drain(..) {
            if self.channels.contains_key(&channel) {
                self.events.push_back(SubscriberEvent::Stored {
                    channel,
                    last,
                    count,
                });
                self.commands.push_back(ReceiverCommand::Stored {
                    channel,
                    position: last,
                });
            }
        }
    }
}

const fn position(epoch: u64, sequence: u64) -> Position {
    Position { epoch, sequence }
}

/// The position before the first element that is granted.
const fn before(grant: &Grant) -> Position {
    position(grant.epoch, grant.next.saturating_sub(1))
}

/// The number of lost elements that a change names.
const fn lost_numbers(change: &ReceiverEvent) -> u64 {
    match change {
        ReceiverEvent::Lost { from, next, .. } => next.saturating_sub(*from),
        _ => 0,
    }
}

impl Machine for Subscriber {
    type Receive = SubscriberReceive;
    type Command = SubscriberCommand;
    type Transmit = Bytes;
    type Event = SubscriberEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SubscriberReceive, SubscriberCommand>) {
        self.now = now;
        match input {
            // The program may have applied the last request before it saw the end.
            Input::Command(
                command @ (SubscriberCommand::Queued { .. } | SubscriberCommand::Outcome(_)),
            ) => self.command(command),
            _ if self.has_ended => {}
            Input::Receive(SubscriberReceive::Frame(frame)) => {
                let frame = ReceiverReceive::Frame(frame);
                self.receiver.handle_input(now, Input::Receive(frame));
            }
            Input::Command(command) => self.command(command),
            Input::Timeout => {
                if self.receiver.deadline().is_some_and(|at| at <= now) {
                    self.receiver.handle_input(now, Input::Timeout);
                }
                if self.retry_at.is_some_and(|at| at <= now) {
                    self.retry_at = None;
                    self.parked.release();
                    self.request_next();
                }
            }
        }
    }

    /// Frames first, as in the session: frames caused by the program's answers are sent after them.
    fn poll_output(&mut self) -> Option<Output<Bytes, SubscriberEvent>> {
        loop {
            match self.receiver.poll_output() {
                Some(Output::Transmit(frame)) => return Some(Output::Transmit(frame)),
                Some(Output::Event(event)) => self.event(event),
                None => match self.commands.pop_front() {
                    Some(command) => self
                        .receiver
                        .handle_input(self.now, Input::Command(command)),
                    None => return self.events.pop_front().map(Output::Event),
                },
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        let own = [self.receiver.deadline(), self.retry_at];
        own.into_iter().flatten().min()
    }
}

impl Invariant for Subscriber {
    fn check(&self) -> Result<(), String> {
        self.receiver.check()?;
        if let Some(at) = self.handed_out_twice {
            return Err(format!("{at} was returned twice in a session"));
        }
        for (channel, state) in self.receiver.channels() {
            let queued = self.queued.iter().find(|batch| batch.channel == channel);
            if let Some(batch) = queued
                && state.delivered.epoch == batch.last.epoch
                && state.stored >= batch.last.sequence
            {
                let last = batch.last;
                return Err(format!("{channel}: {last} is acknowledged but only queued"));
            }
        }
        if self.requested.is_none() && self.retry_at.is_none() && !self.has_ended {
            let mut waiting = self.parked.iter();
            if waiting.next().is_some() {
                return Err(String::from(
                    "a change of the log waits although none is being applied",
                ));
            }
        }
        Ok(())
    }
}
