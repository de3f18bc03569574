//! What a node keeps: topics, events under way, names of jobs, tokens.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::Instant;

use crate::event::{Event, EventId};
use crate::job::{Asker, Job};
use crate::membership::{Contact, Membership};
use crate::message::{Response, SOURCE};
use crate::source::Tally;
use crate::window::Window;

/// Suspects remembered for each topic.
pub(crate) const SUSPECTS_KNOWN_MAX: usize = 65_536;

/// An event under way or kept.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) event: Arc<Event>,
    pub(crate) membership: Option<Arc<Membership>>,
    /// This node's number in it.
    pub(crate) number: Option<u32>,
    pub(crate) verified: bool,
    /// When it was received or published, and its age then.
    pub(crate) since: Instant,
    pub(crate) age_us: u32,
    /// Who sent it first.
    pub(crate) parent: u32,
    pub(crate) jobs: Vec<Job>,
    /// The source's.
    pub(crate) tally: Option<Box<Tally>>,
}

/// A version and this node's number in it.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) membership: Arc<Membership>,
    pub(crate) number: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: u64,
    pub(crate) source: Contact,
    /// Not a topic of this node any more.
    pub(crate) left: bool,
    /// This node is the source: its boot, and the last sequence number.
    pub(crate) own: Option<(u32, u64)>,
    pub(crate) versions: Vec<Version>,
    pub(crate) version_missed: Option<u32>,
    pub(crate) window: Window,
    pub(crate) records: VecDeque<Record>,
    /// The serial number of the first record.
    pub(crate) base: u64,
    /// Numbers in the newest version.
    pub(crate) suspects: BTreeSet<u32>,
    /// Who was caught sending on what the source did not sign.
    pub(crate) distrusted: BTreeSet<Contact>,
    /// Attempts to get what was missed.
    pub(crate) pulls: Option<u8>,
}

impl Topic {
    pub(crate) fn version(&self, version: u32) -> Option<&Version> {
        self.versions
            .iter()
            .find(|it| it.membership.version() == version)
    }

    pub(crate) fn serial_of(&self, id: EventId) -> Option<u64> {
        let at = self
            .records
            .iter()
            .rposition(|record| record.event.id() == id)?;
        Some(self.base + at as u64)
    }

    /// Who has this number in a version.
    pub(crate) fn contact(&self, version: u32, number: u32) -> Option<Contact> {
        match number {
            SOURCE => Some(self.source),
            _ => self.version(version)?.membership.sink(number).copied(),
        }
    }

    /// Whether a number of a version is the same sink's in the newest, by whose numbers suspects are known.
    pub(crate) fn is_current(&self, version: u32, sink: u32) -> bool {
        let Some(newest) = self.versions.last().map(|it| &it.membership) else {
            return false;
        };
        newest.version() == version || {
            let known = self.contact(version, sink);
            known.is_some() && known.as_ref() == newest.sink(sink)
        }
    }

    /// A sink of this number in a version is silent.
    pub(crate) fn silent(&mut self, version: u32, sink: u32) {
        if self.is_current(version, sink) {
            self.suspect(sink);
        }
    }

    /// A sink of this number in a version is there.
    pub(crate) fn there(&mut self, version: u32, sink: u32) {
        if self.is_current(version, sink) {
            self.suspects.remove(&sink);
        }
    }

    pub(crate) fn suspect(&mut self, sink: u32) {
        if self.suspects.len() < SUSPECTS_KNOWN_MAX {
            self.suspects.insert(sink);
        }
    }
}

/// Names a job; stays right when older events are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId {
    pub(crate) topic: u32,
    pub(crate) serial: u64,
    pub(crate) job: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A part's head is silent.
    Part(u32, u16),
    /// A head says that it still waits.
    Progress,
    /// Coverage is due.
    Due,
    /// Missed events are asked for.
    Pull,
    /// A question about an address is not answered.
    Proof,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Sending {
    /// All parts of a job from its `next` on.
    Job(JobId),
    /// One part again.
    Part(JobId, u32),
}

/// The stamp of a moment.
pub(crate) fn stamp(at: Instant) -> u32 {
    // The lower 32 bits: an answer comes within the hour that they last.
    (at.as_nanos() / 1_000) as u32
}

pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl Record {
    /// The response to one of those who gave a job, with the time it was held.
    pub(crate) fn response(&self, job: &Job, asker: &Asker, at: Instant) -> Response {
        Response {
            id: self.event.id(),
            version: self.event.version(),
            first: job.first,
            end: job.end,
            stamp_us: asker.stamp_us,
            dwell_us: micros(at.saturating_since(asker.received)),
        }
    }
}
