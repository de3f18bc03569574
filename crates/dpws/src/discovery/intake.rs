//! What both machines do first with a datagram, and their books.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use chappe_machine::Instant;
use chappe_soap::Envelope;
use chappe_soap::udp::{Arrival, RECEIVED_ENVELOPE_BYTES_MAX, Seen};
use chappe_xml::Limits;

use super::drops::Reports;
use super::message::Message;
use super::{DropCounts, DropReason, Inbound};

/// Why a message goes no further, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) reason: DropReason,
    pub(crate) detail: String,
}

impl Dropped {
    pub(crate) fn new(reason: DropReason, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { reason, detail }
    }
}

/// Reads a datagram.
pub(crate) fn read(datagram: &Inbound) -> Result<Message, Dropped> {
    let size = datagram.bytes.len();
    if size > RECEIVED_ENVELOPE_BYTES_MAX {
        let detail = format!("{size} bytes, at most {RECEIVED_ENVELOPE_BYTES_MAX}");
        return Err(Dropped::new(DropReason::TooLarge, detail));
    }
    let envelope = Envelope::parse_within(&datagram.bytes, Limits::datagram())
        .map_err(|error| Dropped::new(DropReason::Malformed, error.to_string()))?;
    Message::from_envelope(&envelope)
        .map_err(|error| Dropped::new(error.drop_reason(), error.to_string()))
}

/// The count of arrived messages, and what became of them.
#[derive(Debug, Clone)]
pub(crate) struct Books {
    pub(crate) seen: Seen,
    pub(crate) drops: DropCounts,
    reports: Reports,
    /// The last message of each reason that was not reported yet.
    held: BTreeMap<DropReason, (String, SocketAddr)>,
    received: u64,
    used: u64,
}

impl Books {
    pub(crate) fn new(seen_capacity: usize, seed: u64) -> Self {
        Self {
            seen: Seen::new(seen_capacity, seed),
            drops: DropCounts::default(),
            reports: Reports::default(),
            held: BTreeMap::new(),
            received: 0,
            used: 0,
        }
    }

    /// Drops a message that was seen before.
    pub(crate) fn first_time(&mut self, message: &Message) -> Result<(), Dropped> {
        let id = &message.message_id;
        match self.seen.arrived(id) {
            Arrival::New => Ok(()),
            Arrival::Duplicate => Err(Dropped::new(DropReason::Duplicate, id.clone())),
            Arrival::Own => Err(Dropped::new(DropReason::Own, id.clone())),
        }
    }

    /// Enters what became of a message; gives what to report, if it is time to.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        from: SocketAddr,
        result: Result<(), Dropped>,
    ) -> Option<(Dropped, SocketAddr, u64)> {
        self.received += 1;
        let Err(dropped) = result else {
            self.used += 1;
            return None;
        };
        self.drops.add(dropped.reason);
        let Some(suppressed) = self.reports.pass(now, dropped.reason) else {
            self.held.insert(dropped.reason, (dropped.detail, from));
            return None;
        };
        self.held.remove(&dropped.reason);
        Some((dropped, from, suppressed))
    }

    /// When what was held back is to be reported.
    pub(crate) fn next_report(&self) -> Option<Instant> {
        self.reports.next()
    }

    /// What was held back long enough, told by the last message of its kind: so that every drop is
    /// reported within [`REPORT_PERIOD`](super::drops::REPORT_PERIOD) although none follows it.
    pub(crate) fn held_back(&mut self, now: Instant) -> Option<(Dropped, SocketAddr, u64)> {
        let (reason, count) = self.reports.due(now)?;
        let (detail, from) = self.held.remove(&reason)?;
        Some((Dropped { reason, detail }, from, count - 1))
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Every message is used or dropped, once; the set of identifiers keeps its bound.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (received, used, dropped) = (self.received, self.used, self.drops.total());
        if received != used + dropped {
            return Err(format!(
                "{received} received, {used} used, {dropped} dropped"
            ));
        }
        if self.seen.len() > self.seen.capacity() {
            return Err(format!("{} identifiers remembered", self.seen.len()));
        }
        Ok(())
    }
}
