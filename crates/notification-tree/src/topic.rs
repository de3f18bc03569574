//! The state of one topic: its versions, its events and its suspects.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::Instant;

use crate::error::Error;
use crate::event::{Event, EventId};
use crate::job::{Job, Requester};
use crate::membership::{Contact, Membership};
use crate::message::{Response, SOURCE};
use crate::tally::Tally;
use crate::window::Window;

/// Suspects of a topic, and senders of forged events.
pub(crate) const SUSPECTS_KNOWN_MAX: usize = 65_536;
/// Versions of a membership that are kept: the newest, and earlier ones for events under way.
///
/// Reason: sinks come and go one at a time, and answers of a forgotten version cannot be used.
pub(crate) const VERSIONS_KEPT: usize = 8;

/// An event under way, or kept for repair.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) event: Arc<Event>,
    pub(crate) membership: Option<Arc<Membership>>,
    /// This node's number in the membership.
    pub(crate) number: Option<u32>,
    pub(crate) is_verified: bool,
    /// The time at which it was received or published, and its age then.
    pub(crate) taken_at: Instant,
    pub(crate) age_us: u32,
    /// The node that sent it first.
    pub(crate) parent: u32,
    pub(crate) jobs: Vec<Job>,
    /// At the source, until the outcome.
    pub(crate) tally: Option<Box<Tally>>,
}

impl Record {
    /// The response to a requester of a job.
    pub(crate) fn response(&self, job: &Job, requester: &Requester, at: Instant) -> Response {
        Response {
            id: self.event.id(),
            version: self.event.version(),
            first: job.first,
            end: job.end,
            stamp_us: requester.stamp_us,
            dwell_us: micros(at.saturating_since(requester.received_at)),
        }
    }
}

/// A version of the membership and this node's number in it.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) membership: Arc<Membership>,
    pub(crate) number: Option<u32>,
}

/// The state of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publisher {
    pub(crate) boot: u32,
    /// The number of its last event.
    pub(crate) last_sequence: u64,
}

/// A topic of which this node is the source or a sink.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: u64,
    pub(crate) source: Contact,
    /// The node has left the topic; the entry waits for another one.
    pub(crate) is_vacant: bool,
    /// Set if this node is the source.
    pub(crate) publisher: Option<Publisher>,
    pub(crate) versions: Vec<Version>,
    /// The unknown version that was reported last.
    pub(crate) reported_version: Option<u32>,
    pub(crate) window: Window,
    pub(crate) records: VecDeque<Record>,
    /// The serial number of the first record.
    pub(crate) first_serial: u64,
    /// Numbers in the newest version.
    pub(crate) suspects: BTreeSet<u32>,
    /// Senders of events that the source did not sign.
    pub(crate) distrusted: BTreeSet<Contact>,
    /// Pulls sent for the events that are missing now; `None` if none are pulled.
    pub(crate) pull_attempts: Option<u8>,
}

impl Topic {
    pub(crate) fn new(
        id: u64,
        source: Contact,
        publisher: Option<Publisher>,
        window: Window,
    ) -> Self {
        Self {
            id,
            source,
            is_vacant: false,
            publisher,
            versions: Vec::new(),
            reported_version: None,
            window,
            records: VecDeque::new(),
            first_serial: 0,
            suspects: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            pull_attempts: None,
        }
    }

    pub(crate) fn version(&self, version: u32) -> Option<&Version> {
        self.versions
            .iter()
            .find(|it| it.membership.version() == version)
    }

    /// Adopts a version of the membership. `contact` is this node, `number` its number if known.
    ///
    /// # Errors
    /// A newer version is known.
    pub(crate) fn adopt(
        &mut self,
        membership: Arc<Membership>,
        number: Option<u32>,
        contact: &Contact,
    ) -> Result<(), Error> {
        if self.version(membership.version()).is_some() {
            return Ok(());
        }
        let newest = self.versions.last().map(|it| &it.membership);
        if newest.is_some_and(|newest| newest.version() > membership.version()) {
            return Err(Error::Membership("a newer version is known"));
        }
        match newest {
            Some(newest) => newest.renumber(&mut self.suspects, &membership),
            None => self.suspects.clear(),
        }
        let number = number.or_else(|| membership.number(contact));
        if self.versions.len() == VERSIONS_KEPT {
            self.versions.remove(0);
        }
        // Events that arrived before their list can be answered from now on.
        for record in &mut self.records {
            if record.membership.is_none() && record.event.version() == membership.version() {
                record.membership = Some(Arc::clone(&membership));
                record.number = number;
            }
        }
        self.versions.push(Version { membership, number });
        Ok(())
    }

    pub(crate) fn serial_of(&self, id: EventId) -> Option<u64> {
        let at = self
            .records
            .iter()
            .rposition(|record| record.event.id() == id)?;
        Some(self.first_serial + at as u64)
    }

    pub(crate) fn record(&self, serial: u64) -> Option<&Record> {
        let at = serial.checked_sub(self.first_serial)?;
        self.records.get(usize::try_from(at).ok()?)
    }

    pub(crate) fn record_mut(&mut self, serial: u64) -> Option<&mut Record> {
        let at = serial.checked_sub(self.first_serial)?;
        self.records.get_mut(usize::try_from(at).ok()?)
    }

    /// The node with this number in a version.
    pub(crate) fn contact(&self, version: u32, number: u32) -> Option<Contact> {
        match number {
            SOURCE => Some(self.source),
            _ => self.version(version)?.membership.sink(number).copied(),
        }
    }

    /// Whether a number of a version is the same sink's in the newest, whose numbers suspects have.
    fn is_current(&self, version: u32, sink: u32) -> bool {
        let Some(newest) = self.versions.last().map(|it| &it.membership) else {
            return false;
        };
        newest.version() == version || {
            let known = self.contact(version, sink);
            known.is_some() && known.as_ref() == newest.sink(sink)
        }
    }

    /// Suspects a sink, given by its number in a version.
    pub(crate) fn suspect_in(&mut self, version: u32, sink: u32) {
        if self.is_current(version, sink) {
            self.suspect(sink);
        }
    }

    /// Suspects a sink no longer, given by its number in a version.
    pub(crate) fn clear_suspect_in(&mut self, version: u32, sink: u32) {
        if self.is_current(version, sink) {
            self.suspects.remove(&sink);
        }
    }

    /// Suspects a sink, given by its number in the newest version.
    pub(crate) fn suspect(&mut self, sink: u32) {
        if self.suspects.len() < SUSPECTS_KNOWN_MAX {
            self.suspects.insert(sink);
        }
    }

    pub(crate) fn distrust(&mut self, sender: Contact) {
        if self.distrusted.len() < SUSPECTS_KNOWN_MAX {
            self.distrusted.insert(sender);
        }
    }

    /// How much longer than round trips suggest a source may wait for a silent sink: as long as events at the
    /// rate since the oldest open one leave half of `history` free. So a silent sink delays no later event.
    pub(crate) fn patience(&self, now: Instant, history: usize) -> Duration {
        let mut open = self.records.iter().enumerate();
        let oldest = open.find_map(|(at, record)| Some((at, record.tally.as_ref()?.published())));
        let Some((at, published)) = oldest else {
            return Duration::ZERO;
        };
        let under_way = self.records.len() - at;
        let free = (history / 2).saturating_sub(under_way);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let age = now.saturating_since(published);
        age.saturating_mul(number(free)) / number(under_way)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_vacant && !(self.records.is_empty() && self.versions.is_empty()) {
            return Err("a left topic keeps events or versions".into());
        }
        let versions = self.versions.iter().map(|it| it.membership.version());
        let versions: Vec<u32> = versions.collect();
        let increase = versions.windows(2).all(|two| two[0] < two[1]);
        if versions.len() > VERSIONS_KEPT || !increase {
            return Err(format!("it keeps the versions {versions:?}"));
        }
        let newest = self.versions.last();
        let sinks = newest.map_or(0, |it| it.membership.count());
        if let Some(last) = self.suspects.last().filter(|last| **last >= sinks) {
            return Err(format!("sink {last} of {sinks} is suspected"));
        }
        let (suspects, distrusted) = (self.suspects.len(), self.distrusted.len());
        if suspects.max(distrusted) > SUSPECTS_KNOWN_MAX {
            return Err(format!("{suspects} suspects, {distrusted} distrusted"));
        }
        let window = &self.window.numbers;
        if window.newest > 0 && window.seen & 1 == 0 {
            return Err(format!("the newest event was not seen: {window:?}"));
        }
        Ok(())
    }
}

/// The time stamp of a moment: microseconds, the lower 32 bits. Answers come within the hour that they last.
pub(crate) fn stamp(at: Instant) -> u32 {
    (at.as_nanos() / 1_000) as u32
}

pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(port: u16) -> Contact {
        Contact {
            address: ([10, 0, 0, 1], port).into(),
            key: [0; 32],
        }
    }

    fn list(version: u32, ports: &[u16]) -> Arc<Membership> {
        let sinks = ports.iter().map(|port| contact(*port)).collect();
        Arc::new(Membership::new(1, version, sinks).expect("a valid list"))
    }

    #[test]
    fn suspects_follow_their_sinks_through_versions() {
        let mut topic = Topic::new(1, contact(1), None, Window::default());
        let own = contact(11);
        topic.adopt(list(1, &[10, 11, 12]), None, &own).unwrap();
        assert_eq!(topic.versions[0].number, Some(1));
        topic.suspect_in(1, 2);
        topic.adopt(list(2, &[9, 10, 11, 12]), None, &own).unwrap();
        assert_eq!(topic.suspects, BTreeSet::from([3]));
        // In version 1, number 2 belonged to another sink.
        topic.suspect_in(1, 1);
        topic.clear_suspect_in(2, 3);
        assert!(topic.suspects.is_empty());
        assert!(topic.adopt(list(0, &[10]), None, &own).is_err());
        assert_eq!(topic.check(), Ok(()));
    }
}
