//! The state of one channel of a sender: a few numbers, whatever the stream's size.

use alloc::vec::Vec;

use chappe_machine::Instant;

use crate::message::{Entry, Stage};
use crate::{Credit, Grant, RecordsBuilder, SchemaId};

/// The state of one channel.
#[derive(Debug)]
pub(super) struct ChannelState {
    /// The schema that the subscriber knows.
    pub(super) known: Option<SchemaId>,
    pub(super) credit: Credit,
    /// `None` until the caller answers the subscription.
    pub(super) open: Option<Open>,
}

/// The state of a granted channel.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    /// The next number to be sent in this stage.
    pub(super) next: u64,
    /// The newest number at the origin.
    pub(super) last: u64,
    /// The number after the highest sent in this stage; above `next` after a rollback.
    pub(super) sent_next: u64,
    /// The last acknowledgement of the stage, initially from the grant.
    pub(super) acknowledged: Entry,
    /// Elements and packed bytes sent in this stage.
    pub(super) sent: Credit,
    /// The open read of the caller.
    pub(super) reading: Option<OpenRead>,
    /// The next stage, which begins when everything sent is stored.
    pub(super) switch: Option<Switch>,
    /// The versions of the announced schemas, by their index.
    pub(super) schemas: Vec<u32>,
    /// The queue in which the channel waits.
    pub(super) queued: Queued,
    pub(super) catching_up: bool,
    pub(super) stalled: bool,
    /// Records that wait for more.
    pub(super) lingering: Option<Lingering>,
    /// The element whose round trip is being measured, and its send time.
    pub(super) timed: Option<(u64, Instant)>,
}

/// An open read of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenRead {
    pub(super) from: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
    /// The log was rolled back since: the answer is dropped.
    pub(super) outdated: bool,
}

/// The start of the next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) epoch: u64,
    pub(super) first: u64,
    pub(super) kept: u64,
}

/// The queue of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    No,
    /// Waits for more records to share a frame.
    Lingering,
    Live,
    CatchUp,
}

/// Records that were passed in and are not yet sent.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) first: u64,
    pub(super) schema: u32,
    pub(super) records: RecordsBuilder,
}

impl Open {
    pub(super) fn new(grant: &Grant, credit: Credit) -> Self {
        let next = grant.next;
        Self {
            stage: Stage::default(),
            epoch: grant.epoch,
            next,
            last: grant.last.max(next - 1),
            sent_next: next,
            acknowledged: initial_entry(next, credit),
            sent: Credit {
                bytes: 0,
                elements: 0,
            },
            reading: None,
            switch: None,
            schemas: alloc::vec![grant.schema.version],
            queued: Queued::No,
            catching_up: false,
            stalled: false,
            lingering: None,
            timed: None,
        }
    }

    /// The credit in use: sent and not stored.
    pub(super) fn in_flight(&self) -> Credit {
        Credit {
            bytes: self.sent.bytes - self.acknowledged.bytes,
            elements: self.sent.elements - self.acknowledged.elements,
        }
    }

    /// The count of unsent numbers.
    pub(super) fn lag(&self) -> u64 {
        (self.last + 1).saturating_sub(self.next)
    }

    /// Whether the subscriber has room for a useful amount: a frame of `fill` bytes, or of the
    /// whole credit, must be a quarter full, unless nothing is in flight.
    pub(super) fn has_credit(&self, credit: Credit, fill: u64) -> bool {
        let bytes = self
            .acknowledged
            .bytes_limit
            .saturating_sub(self.sent.bytes);
        let elements = self
            .acknowledged
            .elements_limit
            .saturating_sub(self.sent.elements);
        let idle = self.sent.elements == self.acknowledged.elements;
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

    /// Whether everything sent in this stage that still exists is stored.
    pub(super) fn is_drained(&self) -> bool {
        self.acknowledged.stage == self.stage.number && self.acknowledged.stored + 1 >= self.next
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
        // The stage confirmed by the subscriber stays, and so do the counts over all stages.
        self.acknowledged = Entry {
            stage: self.acknowledged.stage,
            refused: self.acknowledged.refused,
            ..initial_entry(switch.first, credit)
        };
        self.timed = None;
        self.lingering = None;
    }

    /// The index of a schema version; `None` if it was not announced.
    pub(super) fn schema_index(&self, version: u32) -> Option<u32> {
        let found = self.schemas.iter().rposition(|known| *known == version)?;
        u32::try_from(found).ok()
    }
}

/// The initial acknowledgement of a stage: nothing is stored.
fn initial_entry(next: u64, credit: Credit) -> Entry {
    Entry {
        stored: next - 1,
        elements_limit: credit.elements,
        bytes_limit: credit.bytes,
        ..Entry::default()
    }
}
