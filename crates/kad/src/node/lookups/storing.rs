//! Stores a record at the nodes of its region.

use super::context::{Context, on_gather_answer};
use crate::config::{FIND_CONTACTS, REGION_CONTACTS};
use crate::gather::{Gather, Next};
use crate::message::Verdict;
use crate::node::question::{Answer, Purpose, Question, TaskId};
use crate::size::Size;
use crate::types::{Event, Published};
use crate::{Contact, Key, Record, SALT_LEVELS_MAX, Salt};

/// A record to store: own ones only.
#[derive(Debug)]
pub(in crate::node) struct NewRecord {
    pub(in crate::node) slot: u16,
    pub(in crate::node) level: u8,
    pub(in crate::node) record: Record,
    /// It replaces the record of a publication that has ended.
    pub(in crate::node) is_withdrawal: bool,
}

/// The result of storing a record.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::node) struct StoredRecord {
    pub(in crate::node) slot: u16,
    pub(in crate::node) key: Key,
    pub(in crate::node) level: u8,
    pub(in crate::node) is_withdrawal: bool,
    pub(in crate::node) outcome: Published,
}

impl StoredRecord {
    /// Number of nodes that answered.
    pub(in crate::node) fn answers(&self) -> u32 {
        let Published {
            kept,
            outdated,
            full,
            rejected,
            ..
        } = self.outcome;
        kept + outdated + full + rejected
    }

    pub(in crate::node) fn into_event(self) -> Event {
        Event::Published {
            slot: self.slot,
            key: self.key,
            level: self.level,
            outcome: self.outcome,
        }
    }

    /// Whether the record must also be stored one level of salt down. More than a third must report that
    /// they are full: a few may lie. A node that has stored the record keeps it.
    pub(super) fn must_go_deeper(&self) -> bool {
        self.outcome.full * 3 > self.answers() && self.level < SALT_LEVELS_MAX
    }
}

/// The next step of storing a record.
pub(super) enum StoringStep {
    Ask(Contact, Question, Purpose),
    /// This node is itself in the region.
    StoreHere(Key, Record),
    Wait,
    Ended(StoredRecord),
}

/// The task that stores one record.
#[derive(Debug)]
pub(super) struct Storing {
    new: NewRecord,
    gather: Gather,
    is_gathered: bool,
    in_flight: usize,
    outcome: Published,
}

impl Storing {
    pub(super) fn new(new: NewRecord, size: &Size, context: &mut Context<'_>) -> Self {
        let place = new
            .record
            .key
            .salted(Salt::of_record(new.record.identity(), new.level));
        // A path that asks an attacker's node may end among the attacker's nodes. A search that finds nothing
        // continues elsewhere, but a misplaced record is missing until it is renewed.
        let paths = 4 * context.config.paths;
        // A third more than searches expect: a searcher may estimate the network as smaller.
        let bits = size.region_bits(context.config.region_nodes * 4 / 3);
        let most = context.config.region_nodes_max;
        let gather = context.gather((place, bits), paths, true, most, size);
        Self {
            new,
            gather,
            is_gathered: false,
            in_flight: 0,
            outcome: Published::default(),
        }
    }

    pub(super) fn step(&mut self, id: TaskId, context: &mut Context<'_>) -> StoringStep {
        if !self.is_gathered {
            let (contact, target, count, purpose) = match self
                .gather
                .next(usize::MAX, context.random)
            {
                Next::Walk(contact, point) => (contact, point, FIND_CONTACTS, Purpose::Walk(id)),
                Next::Probe(contact, point) => {
                    (contact, point, REGION_CONTACTS, Purpose::Probe(id))
                }
                Next::Wait => return StoringStep::Wait,
                Next::Done => {
                    self.is_gathered = true;
                    let own = context.table.own();
                    if !context.config.client && self.gather.holds(own) {
                        let record = self.new.record.clone();
                        return StoringStep::StoreHere(self.gather.place, record);
                    }
                    return self.step(id, context);
                }
            };
            return StoringStep::Ask(contact, Question::Find { target, count }, purpose);
        }
        if self.in_flight < context.config.store_parallel
            && let Some(member) = self.gather.take(context.random)
        {
            self.in_flight += 1;
            let question = Question::Store {
                level: self.new.level,
                record: self.new.record.clone(),
            };
            return StoringStep::Ask(member, question, Purpose::Store(id));
        }
        match self.in_flight {
            0 => StoringStep::Ended(self.stored()),
            _ => StoringStep::Wait,
        }
    }

    fn stored(&self) -> StoredRecord {
        StoredRecord {
            slot: self.new.slot,
            key: self.new.record.key,
            level: self.new.level,
            is_withdrawal: self.new.is_withdrawal,
            outcome: self.outcome,
        }
    }

    pub(super) fn on_answer(&mut self, purpose: Purpose, place: Key, answer: &Answer) {
        match purpose {
            Purpose::Store(_) => {
                self.in_flight = self.in_flight.saturating_sub(1);
                match answer {
                    Answer::Stored(verdict) => self.count(*verdict),
                    _ => self.outcome.silent += 1,
                }
            }
            _ => on_gather_answer(&mut self.gather, purpose, place, answer),
        }
    }

    pub(super) fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Kept => &mut self.outcome.kept,
            Verdict::Outdated => &mut self.outcome.outdated,
            Verdict::Full => &mut self.outcome.full,
            Verdict::Rejected => &mut self.outcome.rejected,
        };
        *count += 1;
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.gather.walk().check()
    }
}
