//! One stream that an origin serves.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use chappe_flow::{Grant, Level, Offer, Position, Schema, SenderCommand, Start, Subscription};

use super::types::{Resumption, SchemaOf, StreamState};
use crate::planted::{self, Defect};

/// A stream on its channel.
#[derive(Debug)]
pub(super) enum Served {
    /// The program looks for the stream.
    Opening(Start, Vec<Position>),
    /// The schema of the first element is requested.
    Beginning(Beginning),
    /// The subscriber reads it.
    Open(Open),
}

/// The answer to a subscription, without the schema.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) next: u64,
    /// The newest number that the program has reported.
    pub(super) last: u64,
    level: Level,
    /// For a rollback, the last position that both have.
    rollback: Option<Option<Position>>,
    epochs: Vec<(u64, u64)>,
}

/// A stream that the subscriber reads.
#[derive(Debug)]
pub(super) struct Open {
    /// Oldest first, each with its first number.
    epochs: Vec<(u64, u64)>,
    /// Versions of the schema announced in this session.
    announced: BTreeSet<u32>,
    /// Steps that wait for a schema, in order; the schema of the first is requested.
    waiting: VecDeque<Step>,
}

/// A command to the session, or the schema that must precede it.
#[derive(Debug)]
pub(super) enum Step {
    Announce(SchemaOf),
    Send(SenderCommand),
}

/// The positions for which a log is asked to resume, newest first.
pub(super) fn positions(subscription: &Subscription) -> Vec<Position> {
    let newest = subscription.start.have();
    let earlier = newest.map_or(&[][..], |_| &subscription.earlier);
    newest.into_iter().chain(earlier.iter().copied()).collect()
}

impl Beginning {
    pub(super) fn new(start: Start, positions: &[Position], stream: StreamState) -> Self {
        let (next, rollback) = match start {
            Start::First => (stream.first, None),
            Start::New => (stream.last + 1, None),
            Start::After(_) => resume(positions, &stream),
        };
        Self {
            next,
            last: stream.last,
            level: stream.level,
            rollback,
            epochs: stream.epochs,
        }
    }

    /// The answer, and the state of the open stream.
    pub(super) fn open(self, schema: Schema) -> (Offer, Open) {
        let open = Open {
            announced: BTreeSet::from([schema.version]),
            epochs: self.epochs,
            waiting: VecDeque::new(),
        };
        let grant = Grant {
            epoch: open.epoch_of(self.next),
            next: self.next,
            last: self.last,
            level: self.level,
            schema,
        };
        let offer = match self.rollback {
            None => Offer::Accept(grant),
            Some(kept) => Offer::Rollback { kept, grant },
        };
        (offer, open)
    }
}

/// The number to continue with, and for a rollback the last position that both have. If the log does
/// not know the epoch of the newest position, it may know an earlier one.
fn resume(positions: &[Position], stream: &StreamState) -> (u64, Option<Option<Position>>) {
    let mut answers = positions.iter().zip(&stream.resumptions);
    let newest = match answers.next() {
        None => return (stream.first, Some(None)),
        // A log answers with its first number; those trimmed before it are lost, with their reason.
        Some((at, Resumption::Next(_))) if starts_at_first(*at, stream) => return (1, None),
        Some((_, Resumption::Next(next))) if *next < stream.first => {
            return (past_trim(*next, stream.first), None);
        }
        Some((_, Resumption::Next(next))) => return (*next, None),
        Some((_, Resumption::Rollback { kept: None, next })) => *next,
        Some((_, Resumption::Rollback { kept, next })) => return (*next, Some(*kept)),
    };
    if planted::is(Defect::IgnoresEarlier) {
        return (newest, Some(None));
    }
    let mut known = answers.filter_map(|(at, answer)| match *answer {
        Resumption::Next(next) => Some((next, Some(*at))),
        Resumption::Rollback { kept, next } => kept.map(|kept| (next, Some(kept))),
    });
    let (next, kept) = known.next().unwrap_or((newest, None));
    (next, Some(kept))
}

/// Whether the position is before the very first number of the stream, as after a rollback to it.
fn starts_at_first(at: Position, stream: &StreamState) -> bool {
    at.sequence == 0 && stream.epochs.contains(&(at.epoch, 1))
}

/// The numbers in between are lost to the subscriber, which learns it when they are read.
fn past_trim(next: u64, first: u64) -> u64 {
    if planted::is(Defect::ResumesPastTrim) {
        return first + 1;
    }
    next
}

impl Open {
    /// The epoch of a number.
    pub(super) fn epoch_of(&self, number: u64) -> u64 {
        let known = self.epochs.iter().rev();
        let epoch = known.clone().find(|(_, first)| *first <= number);
        epoch.or(self.epochs.first()).map_or(0, |(epoch, _)| *epoch)
    }

    /// The first number of an epoch.
    pub(super) fn first_of(&self, epoch: u64) -> Option<u64> {
        let known = self.epochs.iter().find(|(it, _)| *it == epoch);
        known.map(|(_, first)| *first)
    }

    /// The end of the part of these numbers that is in the epoch of the first.
    pub(super) fn end_in_epoch(&self, from: u64, next: u64) -> u64 {
        let mut begins = self.epochs.iter().map(|(_, first)| *first);
        let later = begins.find(|begin| *begin > from);
        later.unwrap_or(next).min(next)
    }

    pub(super) fn has_announced(&self, version: u32) -> bool {
        self.announced.contains(&version)
    }

    /// Whether a command with elements of this version is sent at once.
    pub(super) fn is_ready(&self, version: u32) -> bool {
        self.waiting.is_empty() && self.has_announced(version)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The number of fetches that wait for a schema.
    pub(super) fn waiting_fetches(&self) -> usize {
        use chappe_flow::SessionCommand::Fetch;
        let is_fetch =
            |step: &&Step| matches!(step, Step::Send(SenderCommand::Session(Fetch { .. })));
        self.waiting.iter().filter(is_fetch).count()
    }

    /// Adds steps after the waiting ones.
    pub(super) fn push(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.waiting.extend(steps);
    }

    /// Marks the requested schema as announced; false if it was announced before.
    pub(super) fn define(&mut self, version: u32) -> bool {
        if !matches!(self.waiting.front(), Some(Step::Announce(_))) {
            return false;
        }
        self.waiting.pop_front();
        self.announced.insert(version)
    }

    /// The next step that is ready; the schema to request, once, if it needs one.
    pub(super) fn step(&mut self) -> Option<Step> {
        loop {
            match self.waiting.front()? {
                Step::Announce(SchemaOf::Version(version)) if self.has_announced(*version) => {
                    self.waiting.pop_front();
                }
                Step::Announce(of) => return Some(Step::Announce(*of)),
                Step::Send(_) => return self.waiting.pop_front(),
            }
        }
    }

    /// The number of steps that wait, and whether the first one waits for a schema.
    pub(super) fn waiting(&self) -> (usize, bool) {
        let is_schema = matches!(self.waiting.front(), Some(Step::Announce(_)));
        (self.waiting.len(), is_schema)
    }
}
