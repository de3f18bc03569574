//! The state of one channel of a receiver.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::message::{Entry, Stage};
use crate::planted::{self, Defect};
use crate::{Credit, Position, Subscription};

/// The state of one channel.
#[derive(Debug)]
pub(super) struct ChannelState {
    pub(super) subscription: Subscription,
    pub(super) credit: Credit,
    pub(super) phase: Phase,
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    /// The last number handed out.
    pub(super) delivered: u64,
    /// The last number up to which everything is stored or refused.
    pub(super) stored: u64,
    /// Elements handed out and not stored, in order.
    pub(super) unstored: VecDeque<Run>,
    /// Refused elements after the first that is not stored.
    pub(super) refused_ahead: BTreeSet<u64>,
    /// Elements and packed bytes handed out and stored in this stage.
    pub(super) handed_out: Credit,
    pub(super) stored_total: Credit,
    /// Bytes of earlier stages that are handed out and not known to be stored.
    pub(super) residue: VecDeque<Run>,
    /// The versions of the schemas, by their index.
    pub(super) schemas: Vec<u32>,
    /// How many newer elements the origin has.
    pub(super) behind: u64,
    pub(super) refused: u64,
    /// Whether an acknowledgement is pending.
    pub(super) news: bool,
    /// Elements stored and not acknowledged.
    pub(super) unacknowledged: Credit,
    /// The limits last announced to the origin.
    pub(super) announced: Credit,
}

/// The progress of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The handshake is not finished.
    Waiting,
    /// The subscription was sent.
    Asked,
    /// It was granted.
    Open,
    /// The end was requested.
    Leaving,
}

/// A run of numbers that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) epoch: u64,
    /// The number after the last.
    pub(super) next: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

const NOTHING: Credit = Credit {
    bytes: 0,
    elements: 0,
};

impl ChannelState {
    pub(super) fn new(subscription: Subscription, credit: Credit) -> Self {
        Self {
            subscription,
            credit,
            phase: Phase::Waiting,
            stage: Stage::default(),
            epoch: 0,
            delivered: 0,
            stored: 0,
            unstored: VecDeque::new(),
            refused_ahead: BTreeSet::new(),
            handed_out: NOTHING,
            stored_total: NOTHING,
            residue: VecDeque::new(),
            schemas: Vec::new(),
            behind: 0,
            refused: 0,
            news: false,
            unacknowledged: NOTHING,
            announced: credit,
        }
    }

    /// The last element handed out.
    pub(super) fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            sequence: self.delivered,
        }
    }

    /// The limits of this stage that an acknowledgement would announce now.
    pub(super) fn limit(&self) -> Credit {
        if planted::is(Defect::CreditStuck) && self.subscription.start.have().is_some() {
            return self.credit;
        }
        Credit {
            bytes: self.stored_total.bytes.saturating_add(self.credit.bytes),
            elements: self
                .stored_total
                .elements
                .saturating_add(self.credit.elements),
        }
    }

    /// Packed bytes of this stage handed out and not stored.
    pub(super) fn unstored_bytes(&self) -> u64 {
        self.handed_out.bytes - self.stored_total.bytes
    }

    /// Packed bytes that the caller has not stored.
    pub(super) fn held_bytes(&self) -> u64 {
        let residue: u64 = self.residue.iter().map(|run| run.bytes).sum();
        self.unstored_bytes() + residue
    }

    /// Notes that elements of earlier stages are stored up to this position. Returns the bytes
    /// freed.
    pub(super) fn store_residue(&mut self, position: Position) -> u64 {
        let present = position.epoch == self.epoch;
        let mut freed = 0;
        // The caller stores in order: with an element of this stage, all earlier ones are stored.
        while let Some(run) = self.residue.front() {
            if !present && (run.epoch != position.epoch || run.next - 1 > position.sequence) {
                break;
            }
            freed += run.bytes;
            self.residue.pop_front();
        }
        freed
    }

    /// Begins a stage: elements handed out before stay with the caller.
    pub(super) fn begin_stage(&mut self, stage: Stage, epoch: u64, next: u64) {
        self.residue.append(&mut self.unstored);
        self.stage = stage;
        self.epoch = epoch;
        self.delivered = next - 1;
        self.stored = next - 1;
        self.handed_out = NOTHING;
        self.stored_total = NOTHING;
        self.refused_ahead.clear();
        self.unacknowledged = NOTHING;
        self.announced = self.credit;
    }

    /// Notes that everything up to this number is stored; returns the packed bytes freed.
    pub(super) fn store(&mut self, sequence: u64) -> u64 {
        let mut stored = self.stored.max(sequence);
        let mut freed = 0;
        loop {
            while self.refused_ahead.remove(&(stored + 1)) {
                stored += 1;
            }
            let Some(run) = self.unstored.front().copied() else {
                break;
            };
            if run.elements == 0 {
                // Lost numbers need not be stored; all numbers before them are.
                stored = stored.max(run.next - 1);
            }
            if run.next > stored + 1 {
                break;
            }
            self.unstored.pop_front();
            self.stored_total.bytes += run.bytes;
            self.stored_total.elements += run.elements;
            self.unacknowledged.bytes += run.bytes;
            self.unacknowledged.elements += run.elements;
            freed += run.bytes;
        }
        while self
            .refused_ahead
            .first()
            .is_some_and(|first| *first <= stored)
        {
            self.refused_ahead.pop_first();
        }
        self.stored = stored;
        freed
    }

    /// The acknowledgement of the current state.
    pub(super) fn entry(&self, channel: u32) -> Entry {
        let limit = self.limit();
        let early = planted::is(Defect::AcknowledgesEarly);
        Entry {
            channel,
            stage: self.stage.number,
            stored: if early { self.delivered } else { self.stored },
            elements: self.stored_total.elements,
            bytes: self.stored_total.bytes,
            elements_limit: limit.elements,
            bytes_limit: limit.bytes,
            refused: self.refused,
        }
    }

    /// Whether the origin has nearly exhausted the announced limits.
    pub(super) fn credit_runs_low(&self) -> bool {
        let announced = self.announced;
        let bytes = announced.bytes.saturating_sub(self.handed_out.bytes);
        let elements = announced.elements.saturating_sub(self.handed_out.elements);
        bytes < self.credit.bytes / 2 || elements < self.credit.elements / 2
    }
}
