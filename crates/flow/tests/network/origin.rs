//! The origin's log, as a model: numbered records in epochs, trimming, damage, going back.

use std::collections::BTreeMap;

use chappe_flow::{
    Grant, Level, LossReason, Offer, Position, Records, Schema, SchemaId, Start, Subscription,
};

/// One stream at the origin.
#[derive(Debug)]
pub(crate) struct OriginStream {
    /// Number to (epoch, payload).
    pub(crate) records: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Epochs with the number with which each starts.
    pub(crate) epochs: Vec<(u64, u64)>,
    /// The first number kept.
    pub(crate) first: u64,
    /// The next number to be assigned.
    pub(crate) next: u64,
    /// Damaged ranges: numbers that cannot be read.
    pub(crate) damaged: Vec<(u64, u64)>,
    pub(crate) schema_version: u32,
    next_epoch: u64,
}

/// An answer to a read.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Records {
        epoch: u64,
        records: Records,
    },
    Gap {
        epoch: u64,
        next: u64,
        reason: LossReason,
    },
}

impl OriginStream {
    pub(crate) fn new(salt: u64) -> Self {
        let epoch = 1_000 * (salt + 1);
        Self {
            records: BTreeMap::new(),
            epochs: vec![(epoch, 1)],
            first: 1,
            next: 1,
            damaged: Vec::new(),
            schema_version: 1,
            next_epoch: epoch + 1,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epochs.last().expect("there is one").0
    }

    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn append(&mut self, payload: Vec<u8>) -> u64 {
        let number = self.next;
        self.records.insert(number, (self.epoch(), payload));
        self.next += 1;
        number
    }

    /// The log continues counting in a new epoch; nothing is lost.
    pub(crate) fn new_epoch(&mut self) {
        if self.epochs.last().expect("there is one").1 == self.next {
            self.epochs.pop();
        }
        self.epochs.push((self.next_epoch, self.next));
        self.next_epoch += 1;
    }

    /// The log is rolled back to before `next`, which is renumbered.
    pub(crate) fn go_back(&mut self, next: u64) {
        self.records.split_off(&next);
        self.next = next;
        self.epochs
            .retain(|(_, first)| *first < next || *first == 1);
        self.new_epoch();
        self.damaged.retain(|(_, end)| *end <= next);
    }

    pub(crate) fn trim(&mut self, first: u64) {
        self.first = self.first.max(first.min(self.next));
        self.records = self.records.split_off(&self.first);
    }

    /// The epoch of a number (also of the next one).
    pub(crate) fn epoch_of(&self, number: u64) -> u64 {
        let found = self.epochs.iter().rev().find(|(_, first)| *first <= number);
        found.unwrap_or(&self.epochs[0]).0
    }

    fn grant(&self, next: u64) -> Grant {
        Grant {
            epoch: self.epoch_of(next),
            next,
            last: self.last(),
            level: Level::Power,
            schema: self.schema(),
        }
    }

    pub(crate) fn schema(&self) -> Schema {
        Schema {
            id: SchemaId([self.schema_version as u8; 8]),
            version: self.schema_version,
            bytes: vec![b's'; 20].into(),
        }
    }

    pub(crate) fn offer(&self, subscription: &Subscription) -> Offer {
        let have = match subscription.start {
            Start::First => return Offer::Accept(self.grant(self.first)),
            Start::New => return Offer::Accept(self.grant(self.next)),
            Start::After(have) => have,
        };
        if let Some(end) = self.end_of(have.epoch).filter(|end| have.sequence < *end) {
            assert!(end > 0);
            return Offer::Accept(self.grant(have.sequence + 1));
        }
        // The newest epoch that both know says how far they agree.
        let mut known = std::iter::once(&have).chain(&subscription.earlier);
        let common = known.find_map(|have| Some((have, self.end_of(have.epoch)?)));
        let Some((have, end)) = common else {
            return Offer::Rollback {
                kept: None,
                grant: self.grant(self.first),
            };
        };
        let kept = Position {
            epoch: have.epoch,
            sequence: have.sequence.min(end - 1),
        };
        Offer::Rollback {
            kept: (kept.sequence > 0).then_some(kept),
            grant: self.grant(kept.sequence + 1),
        }
    }

    /// The number after the last one of an epoch.
    fn end_of(&self, epoch: u64) -> Option<u64> {
        let at = self.epochs.iter().position(|(known, _)| *known == epoch)?;
        Some(
            self.epochs
                .get(at + 1)
                .map_or(self.next, |(_, first)| *first),
        )
    }

    /// The offer of a rollback while the session is open.
    pub(crate) fn rollback(&self, next: u64, old_epoch: u64) -> Offer {
        Offer::Rollback {
            kept: (next > 1).then_some(Position {
                epoch: old_epoch,
                sequence: next - 1,
            }),
            grant: self.grant(next),
        }
    }

    pub(crate) fn read(&self, from: u64, bytes: u64, elements: u64) -> Answer {
        if from < self.first {
            return self.gap(from, self.first, LossReason::Trimmed);
        }
        if let Some((_, next)) = self.damage(from) {
            return self.gap(from, next, LossReason::Corrupt);
        }
        let epoch = self.epoch_of(from);
        let mut taken = Vec::new();
        let mut size = 0;
        for (number, (of, payload)) in self.records.range(from..) {
            let more = Records::packed_bytes(payload.len()) as u64;
            let full = !taken.is_empty() && size + more > bytes;
            if *of != epoch
                || taken.len() as u64 >= elements
                || full
                || self.damage(*number).is_some()
            {
                break;
            }
            size += more;
            taken.push((*number as i64, payload));
        }
        Answer::Records {
            epoch,
            records: taken.into_iter().collect(),
        }
    }

    /// Those of the lost numbers that are of the first one's epoch.
    fn gap(&self, from: u64, next: u64, reason: LossReason) -> Answer {
        let epoch = self.epoch_of(from);
        let end = self.end_of(epoch).unwrap_or(next);
        Answer::Gap {
            epoch,
            next: if end > from { next.min(end) } else { next },
            reason,
        }
    }

    fn damage(&self, number: u64) -> Option<(u64, u64)> {
        let mut damaged = self.damaged.iter();
        damaged
            .find(|(from, next)| (*from..*next).contains(&number))
            .copied()
    }
}
