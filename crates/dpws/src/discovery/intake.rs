//! Decoding and counting of received datagrams, common to the machines of discovery.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use chappe_machine::Instant;
use chappe_soap::Envelope;
use chappe_soap::udp::{Arrival, RECEIVED_ENVELOPE_BYTES_MAX, Seen};
use chappe_xml::Limits;

use super::drops::ReportLimiter;
use super::message::Message;
use super::{DropCounts, DropReason, Inbound};
use crate::exi::{self, DecodeError, ServiceSchemas};

/// The reason why a message was dropped: the reason and its details.
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

/// A message as it was received.
pub(crate) struct Received {
    pub(crate) message: Message,
    /// Whether its answer may be EXI.
    pub(crate) takes_exi: bool,
}

/// Decodes a datagram: text, or EXI by `dev1`.
pub(crate) fn read(datagram: &Inbound) -> Result<Received, Dropped> {
    let size = datagram.bytes.len();
    if size > RECEIVED_ENVELOPE_BYTES_MAX {
        let detail = format!("{size} bytes (limit {RECEIVED_ENVELOPE_BYTES_MAX})");
        return Err(Dropped::new(DropReason::TooLarge, detail));
    }
    let text = match exi::is_exi(&datagram.bytes) {
        true => Cow::Owned(read_exi(&datagram.bytes)?),
        false => Cow::Borrowed(&*datagram.bytes),
    };
    let envelope = Envelope::parse_within(&text, Limits::datagram())
        .map_err(|error| Dropped::new(DropReason::Malformed, error.to_string()))?;
    let message = Message::from_envelope(&envelope)
        .map_err(|error| Dropped::new(error.drop_reason(), error.to_string()))?;
    let takes_exi = exi::is_offered(&envelope);
    Ok(Received { message, takes_exi })
}

/// The text of a datagram that is EXI.
fn read_exi(datagram: &[u8]) -> Result<Vec<u8>, Dropped> {
    let limits = Limits {
        bytes: RECEIVED_ENVELOPE_BYTES_MAX,
        ..Limits::datagram()
    };
    // The schemas of services have no part in discovery.
    let decoded = exi::decode(datagram, limits, &ServiceSchemas::default());
    match decoded {
        Ok(decoded) => Ok(decoded.text.into_bytes()),
        Err(error @ DecodeError::TooLarge) => {
            Err(Dropped::new(DropReason::TooLarge, error.to_string()))
        }
        Err(error) => {
            let detail = error.to_string().chars().take(128).collect::<String>();
            Err(Dropped::new(DropReason::Malformed, detail))
        }
    }
}

/// The bytes of an answer: as EXI if that is asked for and shorter.
pub(crate) fn bytes_of(answer: String, as_exi: bool) -> Vec<u8> {
    let coded = if as_exi {
        exi::encode(answer.as_bytes())
    } else {
        None
    };
    coded.unwrap_or_else(|| answer.into_bytes())
}

/// Refuses a datagram whose answer would go elsewhere than to its sender.
pub(crate) fn check_reply_to(message: &Message) -> Result<(), Dropped> {
    let anonymous = message.dialect.addressing().anonymous();
    match message.reply_to.as_deref() {
        Some(uri) if uri != anonymous => {
            let detail = uri.chars().take(128).collect::<String>();
            Err(Dropped::new(DropReason::ReplyElsewhere, detail))
        }
        _ => Ok(()),
    }
}

/// Deduplicates received messages and counts their outcomes.
#[derive(Debug, Clone)]
pub(crate) struct IntakeState {
    pub(crate) seen: Seen,
    pub(crate) drops: DropCounts,
    reports: ReportLimiter,
    /// The last unreported message of each reason.
    unreported: BTreeMap<DropReason, (String, SocketAddr)>,
    received: u64,
    used: u64,
}

impl IntakeState {
    pub(crate) fn new(seen_capacity: usize, seed: u64) -> Self {
        Self {
            seen: Seen::new(seen_capacity, seed),
            drops: DropCounts::default(),
            reports: ReportLimiter::default(),
            unreported: BTreeMap::new(),
            received: 0,
            used: 0,
        }
    }

    /// Rejects duplicates and the machine's own messages.
    pub(crate) fn check_duplicate(&self, message: &Message) -> Result<(), Dropped> {
        let id = &message.message_id;
        match self.seen.classify(id) {
            Arrival::New => Ok(()),
            Arrival::Duplicate => Err(Dropped::new(DropReason::Duplicate, id.clone())),
            Arrival::Own => Err(Dropped::new(DropReason::Own, id.clone())),
        }
    }

    /// Records a message's identifier, unless it was dropped for overload: its sender repeats it for that
    /// very case.
    pub(crate) fn arrived(&mut self, message: &Message, result: &Result<(), Dropped>) {
        let is_overload = |dropped: &Dropped| {
            let overloads = [DropReason::RateLimited, DropReason::QueueFull];
            overloads.contains(&dropped.reason)
        };
        if !result.as_ref().is_err_and(is_overload) {
            self.seen.arrived(&message.message_id);
        }
    }

    /// Counts a message's outcome; returns a report if the rate permits one.
    pub(crate) fn record(
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
            self.unreported
                .insert(dropped.reason, (dropped.detail, from));
            return None;
        };
        self.unreported.remove(&dropped.reason);
        Some((dropped, from, suppressed))
    }

    /// When the next suppressed report is due.
    pub(crate) fn next_report(&self) -> Option<Instant> {
        self.reports.next()
    }

    /// A due report about suppressed messages, with the details of the last one. Every drop is thus
    /// reported within [`REPORT_PERIOD`](super::drops::REPORT_PERIOD), even if none follows it.
    pub(crate) fn due_report(&mut self, now: Instant) -> Option<(Dropped, SocketAddr, u64)> {
        let (reason, count) = self.reports.due(now)?;
        let (detail, from) = self.unreported.remove(&reason)?;
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
                "{received} received, but {used} used and {dropped} dropped"
            ));
        }
        if self.seen.len() > self.seen.capacity() {
            return Err(format!(
                "{} identifiers stored, above the capacity",
                self.seen.len()
            ));
        }
        Ok(())
    }
}
