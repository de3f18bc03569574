//! What a sender knows of one channel: a few numbers, whatever the stream holds.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use chappe_machine::Instant;

use crate::message::{Entry, Rolled, Stage};
use crate::{Credit, Grant, Records, RecordsBuilder, Schema, SchemaId};

/// Ranges remembered of what was named lost in a stage and is not acknowledged; of what is forgotten,
/// the session ends if it comes after all, and begins anew.
const NAMED_LOST_MAX: usize = 64;

/// Everything of one channel.
#[derive(Debug)]
pub(super) struct ChannelState {
    /// The schema that the subscriber has.
    pub(super) known: Option<SchemaId>,
    pub(super) credit: Credit,
    /// `None`: the caller has not answered the subscription yet.
    pub(super) open: Option<Open>,
}

/// A channel that was granted.
#[derive(Debug)]
pub(super) struct Open {
    /// What was granted, until the subscriber shows that it has heard it.
    pub(super) answer: Option<Box<(Rolled, Grant)>>,
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    /// The next number to be sent for the first time in this stage.
    pub(super) next: u64,
    /// The newest number here.
    pub(super) last: u64,
    /// One behind the highest number sent in this stage; above `next` after a rollback.
    pub(super) sent_next: u64,
    /// What the last acknowledgement of the stage said, at first the grant.
    pub(super) said: Entry,
    /// Elements and packed bytes sent for the first time in this stage.
    pub(super) sent: Credit,
    /// The caller's answer is awaited.
    pub(super) reading: Option<Reading>,
    /// Numbers that must go again.
    pub(super) again: Option<Range>,
    /// Up to where numbers went again last, and when.
    pub(super) went_again: Option<(u64, Instant)>,
    /// A new stage begins when everything sent is stored.
    pub(super) switch: Option<Switch>,
    /// What was charged for numbers that turned out to be lost is never given back: when everything
    /// else is stored, what was sent is counted anew.
    pub(super) recount: bool,
    /// The versions of the schemas announced, by their index.
    pub(super) schemas: Vec<u32>,
    /// Schemas that the subscriber has not confirmed.
    pub(super) unconfirmed: VecDeque<(u32, Schema)>,
    /// In which queue it waits for its turn.
    pub(super) queued: Queued,
    pub(super) catching_up: bool,
    pub(super) stalled: bool,
    /// Records at hand that wait for more.
    pub(super) lingering: Option<Lingering>,
    /// Numbers named lost in this stage that were never sent: they may come after all, when the log
    /// got them back before the subscriber asked again.
    pub(super) named_lost: Vec<Range>,
    /// The element whose way is being timed.
    pub(super) timed: Option<(u64, Instant)>,
    /// Since when no news came although something is on the way.
    pub(super) doubt_since: Instant,
    /// How often it was asked for news since there were any.
    pub(super) questions: u32,
    /// What was sent when the subscriber was asked for news last.
    pub(super) probed_next: u64,
    /// The serial number of the last acknowledgement with news of this channel.
    pub(super) serial: u64,
}

/// A range of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) next: u64,
}

impl Range {
    fn has(self, number: u64) -> bool {
        (self.from..self.next).contains(&number)
    }
}

/// An open question to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) from: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
    /// Whether these numbers were sent before.
    pub(super) again: bool,
    /// The log went back since: the answer is not to be used.
    pub(super) outdated: bool,
}

/// How the next stage begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) epoch: u64,
    pub(super) first: u64,
    pub(super) kept: u64,
    /// The present stage is sent up to here, exclusively.
    pub(super) until: u64,
}

/// In which queue a channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    No,
    /// Waits for more records to share a frame with.
    Lingering,
    Live,
    CatchUp,
}

/// Records that are at hand and not yet sent.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) first: u64,
    pub(super) schema: u32,
    pub(super) records: RecordsBuilder,
}

impl Open {
    pub(super) fn new(rolled: Rolled, grant: Grant, credit: Credit, now: Instant) -> Self {
        let next = grant.next;
        Self {
            stage: Stage::default(),
            epoch: grant.epoch,
            next,
            last: grant.last.max(next - 1),
            sent_next: next,
            said: begun(next, credit),
            sent: Credit {
                bytes: 0,
                elements: 0,
            },
            reading: None,
            again: None,
            went_again: None,
            switch: None,
            recount: false,
            schemas: alloc::vec![grant.schema.version],
            unconfirmed: VecDeque::new(),
            queued: Queued::No,
            catching_up: false,
            stalled: false,
            lingering: None,
            named_lost: Vec::new(),
            timed: None,
            doubt_since: now,
            questions: 0,
            probed_next: next,
            serial: 0,
            answer: Some(Box::new((rolled, grant))),
        }
    }

    /// What is on the way: sent and not stored.
    pub(super) fn in_flight(&self) -> Credit {
        Credit {
            bytes: self.sent.bytes - self.said.bytes,
            elements: self.sent.elements - self.said.elements,
        }
    }

    /// How many numbers were not sent yet.
    pub(super) fn lag(&self) -> u64 {
        (self.last + 1).saturating_sub(self.next)
    }

    /// Whether the subscriber has room for more, and not for a crumb: a frame of `fill` bytes, or of
    /// the whole credit, must be a quarter full, unless nothing is on the way.
    pub(super) fn has_credit(&self, credit: Credit, fill: u64) -> bool {
        let bytes = self.said.bytes_limit.saturating_sub(self.sent.bytes);
        let elements = self.said.elements_limit.saturating_sub(self.sent.elements);
        let idle = self.sent.elements == self.said.elements;
        let least = if idle {
            1
        } else {
            (credit.bytes.min(fill) / 4).max(1)
        };
        let least_elements = if idle {
            1
        } else {
            (credit.elements / 4).clamp(1, 16)
        };
        bytes >= least && elements >= least_elements
    }

    /// Whether something sent is not stored yet, as far as is known here.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.said.stored + 1 < self.next
            || self.said.stage < self.stage.number
            || !self.unconfirmed.is_empty()
    }

    /// Whether everything sent in this stage, as far as it still exists, is stored.
    pub(super) fn is_drained(&self) -> bool {
        self.said.stage == self.stage.number && self.said.stored + 1 >= self.next
    }

    /// Begins the next stage.
    pub(super) fn begin_stage(&mut self, switch: Switch, credit: Credit) {
        self.stage = Stage {
            number: self.stage.number + 1,
            first: switch.first,
            kept: switch.kept,
        };
        self.epoch = switch.epoch;
        self.next = switch.first;
        self.sent_next = switch.first;
        self.sent = Credit {
            bytes: 0,
            elements: 0,
        };
        // The stage that the subscriber has confirmed stays, and what goes on through stages.
        let said = self.said;
        self.said = Entry {
            stage: said.stage,
            refused: said.refused,
            schemas: said.schemas,
            ..begun(switch.first, credit)
        };
        self.again = None;
        self.recount = false;
        self.went_again = None;
        self.named_lost.clear();
        self.timed = None;
        self.lingering = None;
        self.probed_next = switch.first;
    }

    /// Notes numbers that were named lost instead of being sent.
    pub(super) fn name_lost(&mut self, range: Range) {
        let stored = self.said.stored;
        self.named_lost.retain(|one| one.next > stored + 1);
        if self.named_lost.len() >= NAMED_LOST_MAX {
            self.named_lost.remove(0);
        }
        self.named_lost.push(range);
    }

    /// What of these records, sent again, was named lost before and never counted as sent.
    pub(super) fn take_late(&mut self, first: u64, records: &Records) -> Credit {
        let mut late = Credit {
            bytes: 0,
            elements: 0,
        };
        if self.named_lost.is_empty() {
            return late;
        }
        for (number, record) in (first..).zip(records.iter()) {
            if self.named_lost.iter().any(|one| one.has(number)) {
                late.bytes += Records::packed_bytes(record.payload.len()) as u64;
                late.elements += 1;
            }
        }
        let next = first + records.len() as u64;
        let rest = |one: Range| {
            let (from, until) = (one.from, one.next);
            [(from, until.min(first)), (from.max(next), until)]
        };
        let named = core::mem::take(&mut self.named_lost);
        let parts = named.into_iter().flat_map(rest);
        let parts = parts.filter(|(from, next)| from < next);
        self.named_lost = parts.map(|(from, next)| Range { from, next }).collect();
        self.named_lost.truncate(NAMED_LOST_MAX);
        late
    }

    /// The index of a version of the schema; `None`: it was not announced.
    pub(super) fn schema_index(&self, version: u32) -> Option<u32> {
        let found = self.schemas.iter().rposition(|known| *known == version)?;
        u32::try_from(found).ok()
    }
}

/// What a subscriber says at the beginning of a stage.
fn begun(next: u64, credit: Credit) -> Entry {
    Entry {
        stored: next - 1,
        received: next - 1,
        elements_limit: credit.elements,
        bytes_limit: credit.bytes,
        schemas: 1,
        ..Entry::default()
    }
}
