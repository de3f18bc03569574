//! Models of the logs of both ends: they answer the questions of the machines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chappe_flow::{
    Channel, Level, LossReason, Position, Records, RefusalReason, Schema, SchemaId, Start,
    Subscription,
};
use chappe_link::{
    Hole, OriginCommand, OriginEvent, ReadRequest, Resumption, SchemaOf, StorageRequest,
    StreamState, SubscriberCommand,
};

/// Numbers written by one schema.
const NUMBERS_PER_SCHEMA: u64 = 7;

pub(crate) fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch, sequence }
}

pub(crate) fn schema_version(number: u64) -> u32 {
    (number / NUMBERS_PER_SCHEMA) as u32
}

pub(crate) fn schema(version: u32) -> Schema {
    Schema {
        id: SchemaId(u64::from(version).to_le_bytes()),
        version,
        bytes: vec![version as u8; 9].into(),
    }
}

/// The stream at the origin.
pub(crate) struct OriginLog {
    pub(crate) epochs: Vec<(u64, u64)>,
    pub(crate) first: u64,
    pub(crate) elements: BTreeMap<u64, Vec<u8>>,
    pub(crate) damaged: BTreeSet<u64>,
    next_epoch: u64,
}

impl OriginLog {
    pub(crate) fn new() -> Self {
        Self {
            epochs: vec![(1, 1)],
            first: 1,
            elements: BTreeMap::new(),
            damaged: BTreeSet::new(),
            next_epoch: 2,
        }
    }

    pub(crate) fn last(&self) -> u64 {
        let newest = self.elements.keys().next_back();
        newest.copied().unwrap_or(self.first - 1)
    }

    pub(crate) fn append(&mut self) -> u64 {
        let number = self.last() + 1;
        let position = self.position_of(number);
        self.elements.insert(number, payload(position));
        number
    }

    pub(crate) fn append_all(&mut self, count: u64) {
        for _ in 0..count {
            self.append();
        }
    }

    pub(crate) fn begin_epoch(&mut self) {
        let first = self.last() + 1;
        self.epochs.retain(|(_, begin)| *begin < first);
        self.epochs.push((self.next_epoch, first));
        self.next_epoch += 1;
    }

    /// Restores an earlier state: the elements after `last` are lost.
    pub(crate) fn restore(&mut self, last: u64) {
        let last = last.max(self.first);
        self.elements.split_off(&(last + 1));
        self.damaged.split_off(&(last + 1));
        self.epochs.retain(|(_, begin)| *begin <= last);
        self.begin_epoch();
    }

    pub(crate) fn trim(&mut self, first: u64) {
        self.first = self.first.max(first.min(self.last()));
        self.elements = self.elements.split_off(&self.first);
        self.damaged = self.damaged.split_off(&self.first);
    }

    pub(crate) fn position_of(&self, number: u64) -> Position {
        let known = self.epochs.iter().rev().find(|(_, begin)| *begin <= number);
        at(known.unwrap_or(&self.epochs[0]).0, number)
    }

    pub(crate) fn holes(&self, channel: Channel) -> Vec<Hole> {
        holes(channel, self.damaged.iter().map(|it| self.position_of(*it)))
    }

    pub(crate) fn put_back(&mut self, first: Position, records: &Records) {
        for (number, record) in (first.sequence..).zip(records) {
            let position = self.position_of(number);
            if position.epoch == first.epoch && self.damaged.remove(&number) {
                assert_eq!(record.payload, payload(position), "the same element");
            }
        }
    }

    fn resume(&self, have: Position) -> Resumption {
        let epochs = &self.epochs;
        let Some(index) = epochs.iter().position(|(epoch, _)| *epoch == have.epoch) else {
            let next = self.first;
            return Resumption::Rollback { kept: None, next };
        };
        let end = epochs
            .get(index + 1)
            .map_or(self.last() + 1, |(_, begin)| *begin);
        if have.sequence >= end {
            return Resumption::Rollback {
                kept: Some(at(have.epoch, end - 1)),
                next: end,
            };
        }
        if have.sequence == 0 {
            return Resumption::Next(self.first);
        }
        Resumption::Next(have.sequence + 1)
    }

    pub(crate) fn state(&self, positions: &[Position]) -> StreamState {
        StreamState {
            first: self.first,
            last: self.last(),
            level: Level::Power,
            epochs: self.epochs.clone(),
            resumptions: positions.iter().map(|have| self.resume(*have)).collect(),
        }
    }

    pub(crate) fn read(&self, request: ReadRequest) -> OriginCommand {
        let from = request.from;
        if from < self.first {
            let (next, reason) = (self.first, LossReason::Trimmed);
            return OriginCommand::Gap {
                request,
                next,
                reason,
            };
        }
        if self.damaged.contains(&from) {
            let sound = (from..).find(|number| !self.damaged.contains(number));
            return OriginCommand::Gap {
                request,
                next: sound.expect("numbers are finite"),
                reason: LossReason::Corrupt,
            };
        }
        let version = schema_version(from);
        let epoch = self.position_of(from).epoch;
        let mut bytes = 0;
        let fitting = self.elements.range(from..).take_while(|(number, payload)| {
            bytes += Records::packed_bytes(payload.len()) as u64;
            let is_first = **number == from;
            (is_first || bytes <= request.bytes)
                && **number - from < request.elements
                && !self.damaged.contains(number)
                && schema_version(**number) == version
                && self.position_of(**number).epoch == epoch
        });
        OriginCommand::Records {
            request,
            epoch,
            schema_version: version,
            records: fitting.map(|(number, it)| (*number as i64, it)).collect(),
        }
    }

    /// The answer to a question.
    pub(crate) fn answer(&mut self, event: OriginEvent) -> Option<OriginCommand> {
        match event {
            OriginEvent::Open {
                channel, positions, ..
            } => Some(OriginCommand::Opened {
                channel,
                stream: self.state(&positions),
            }),
            OriginEvent::Schema { channel, of } => Some(OriginCommand::Schema {
                channel,
                schema: schema(match of {
                    SchemaOf::Version(version) => version,
                    SchemaOf::Element(number) => schema_version(number),
                }),
            }),
            OriginEvent::Read(request) => Some(self.read(request)),
            OriginEvent::PutBack { first, records, .. } => {
                self.put_back(first, &records);
                None
            }
            _ => None,
        }
    }
}

/// The element of a position; no two are equal.
pub(crate) fn payload(position: Position) -> Vec<u8> {
    format!("{position}").into_bytes()
}

/// Consecutive damaged numbers of one epoch.
fn holes(channel: Channel, damaged: impl Iterator<Item = Position>) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    for position in damaged {
        match holes.last_mut() {
            Some(hole) if hole.epoch == position.epoch && hole.next == position.sequence => {
                hole.next += 1;
            }
            _ => holes.push(Hole {
                channel,
                epoch: position.epoch,
                from: position.sequence,
                next: position.sequence + 1,
            }),
        }
    }
    holes
}

/// The copy at the subscriber.
#[derive(Default)]
pub(crate) struct CopyLog {
    /// The elements that reached the disk, in order.
    pub(crate) elements: Vec<Position>,
    /// The numbers named as lost.
    pub(crate) lost: Vec<Position>,
    pub(crate) damaged: BTreeSet<Position>,
    /// The last position that is stored, lost or skipped by a rollback.
    pub(crate) last: Option<Position>,
    pub(crate) rollbacks: u64,
    /// The newest position of each epoch, the newest last.
    newest: Vec<Position>,
    /// The version that the session defined last.
    defined: BTreeSet<u32>,
}

/// One change in flight to the disk.
pub(crate) struct Change {
    channel: Channel,
    elements: Vec<Position>,
    lost: Vec<Position>,
    is_rollback: bool,
    last: Position,
}

impl CopyLog {
    pub(crate) fn subscription(&mut self, name: &str) -> (Option<Position>, Subscription) {
        self.defined.clear();
        let mut subscription = Subscription::new(name, Start::First);
        let newest = self.last.map(|last| last.epoch);
        let earlier = self.newest.iter().rev();
        subscription.earlier = earlier
            .filter(|at| Some(at.epoch) != newest)
            .copied()
            .collect();
        (self.last, subscription)
    }

    /// Queues a change, and the answer to the machine if it is a batch.
    pub(crate) fn change(
        &mut self,
        channel: Channel,
        request: StorageRequest,
        queue: &mut VecDeque<Change>,
    ) -> Option<SubscriberCommand> {
        let mut change = Change {
            channel,
            elements: Vec::new(),
            lost: Vec::new(),
            is_rollback: false,
            last: at(0, 0),
        };
        let mut queued = None;
        match request {
            StorageRequest::Define { schema } => {
                self.defined.insert(schema.version);
                return None;
            }
            StorageRequest::Append {
                first,
                schema_version: version,
                records,
                ..
            } => {
                assert!(self.defined.contains(&version), "the schema is defined");
                for (sequence, record) in (first.sequence..).zip(&records) {
                    let position = at(first.epoch, sequence);
                    assert_eq!(record.payload, payload(position), "the right number");
                    assert_eq!(schema_version(sequence), version, "the right schema");
                    change.elements.push(position);
                }
                change.last = *change.elements.last().expect("a batch has elements");
                queued = Some(SubscriberCommand::Queued {
                    last: change.last,
                    count: change.elements.len() as u64,
                    dead_letter: None,
                });
            }
            StorageRequest::Begin { at } => change.last = at,
            StorageRequest::Lost { from, next, .. } => {
                let numbers = from.sequence..next;
                change.lost = numbers.map(|it| at(from.epoch, it)).collect();
                change.last = at(from.epoch, next - 1);
            }
            StorageRequest::Rollback { next, .. } => {
                change.is_rollback = true;
                change.last = at(next.epoch, next.sequence - 1);
            }
        }
        queue.push_back(change);
        queued
    }

    /// A change reaches the disk; returns whether it is a batch.
    pub(crate) fn store(&mut self, change: Change) -> bool {
        self.elements.extend(&change.elements);
        self.lost.extend(&change.lost);
        self.rollbacks += u64::from(change.is_rollback);
        self.last = Some(change.last);
        if let Some(last) = change.elements.last() {
            self.newest.retain(|it| it.epoch != last.epoch);
            self.newest.push(*last);
        }
        !change.elements.is_empty()
    }

    pub(crate) fn holes(&self, channel: Channel) -> Vec<Hole> {
        holes(channel, self.damaged.iter().copied())
    }

    /// The undamaged elements of a range, starting with the first of them.
    pub(crate) fn read(&self, epoch: u64, from: u64, next: u64) -> (u64, Records) {
        let is_here = |number: &u64| {
            let position = at(epoch, *number);
            self.elements.contains(&position) && !self.damaged.contains(&position)
        };
        let first = (from..next).find(is_here).unwrap_or(from);
        let numbers = (first..next).take_while(is_here);
        let records = numbers.map(|it| (it as i64, payload(at(epoch, it))));
        (first, records.collect())
    }

    pub(crate) fn put_back(&mut self, first: Position, records: &Records) {
        for (sequence, record) in (first.sequence..).zip(records) {
            let position = at(first.epoch, sequence);
            if self.damaged.remove(&position) {
                assert_eq!(record.payload, payload(position), "the same element");
            }
        }
    }
}

impl Change {
    pub(crate) const fn channel(&self) -> Channel {
        self.channel
    }
}

/// A refusal, for streams that do not exist.
pub(crate) fn refusal(channel: Channel) -> OriginCommand {
    OriginCommand::Refuse {
        channel,
        reason: RefusalReason::UnknownStream,
        text: "unknown".to_owned(),
    }
}
