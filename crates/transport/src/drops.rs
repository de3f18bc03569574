//! The one record of what was dropped, refused or lost, and why.
//!
//! "Why is my device not shown?" is answered from here: whoever drops a message says so once, with
//! the reason, the peer, and what can be done. Counts are exact; the entries with their details are
//! bounded, and the oldest give way.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

/// Entries kept. Default and bound: a busy day of a hospital floor; about 300 kB at most.
pub const DROPS_MAX: usize = 1_024;
/// Bytes kept of a detail: enough for a message and an address.
const DETAIL_BYTES_MAX: usize = 256;

/// Where on a message's way it was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Hop {
    /// WS-Discovery: Hello, Bye, Probe, Resolve and their answers.
    Discovery,
    /// An address that came in a message and is not contacted.
    Address,
    /// An HTTP connection or request.
    Http,
    /// Reading a device's description.
    Metadata,
    /// Calling an operation.
    Call,
    /// Subscriptions and notifications.
    Event,
    /// From a notification to stream elements.
    Element,
    /// Links between nodes and ZeroMQ sockets.
    Exchange,
    /// Sockets and interfaces of this host.
    Network,
}

impl Hop {
    /// The word used in the REST API, in metrics and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Address => "address",
            Self::Http => "http",
            Self::Metadata => "metadata",
            Self::Call => "call",
            Self::Event => "event",
            Self::Element => "element",
            Self::Exchange => "exchange",
            Self::Network => "network",
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was dropped at one place for one reason from one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Where.
    pub hop: Hop,
    /// Why, in a few words that are always the same.
    pub reason: &'static str,
    /// Whose it was: an address or a device's identifier; empty when nobody's.
    pub peer: String,
    /// How often.
    pub count: u64,
    /// When it last happened.
    pub last_at: SystemTime,
    /// What was special about the last one.
    pub detail: String,
    /// What can be done, when that is known.
    pub hint: Option<String>,
}

type Key = (Hop, &'static str, String);

#[derive(Default)]
struct Record {
    entries: HashMap<Key, (u64, Dropped)>,
    by_age: BTreeMap<u64, Key>,
    totals: BTreeMap<(Hop, &'static str), u64>,
    revision: u64,
    forgotten: u64,
}

/// The record, shared by its clones.
///
/// ```
/// use chappe_transport::{Drops, Hop};
/// let drops = Drops::default();
/// drops.record(Hop::Discovery, "not XML", "192.0.2.7", "5 bytes", None);
/// drops.record(Hop::Discovery, "not XML", "192.0.2.7", "9 bytes", None);
/// assert_eq!(drops.entries()[0].count, 2);
/// assert_eq!(drops.total(Hop::Discovery, "not XML"), 2);
/// ```
#[derive(Clone)]
pub struct Drops {
    record: Arc<Mutex<Record>>,
    revision: Arc<watch::Sender<u64>>,
}

impl Default for Drops {
    fn default() -> Self {
        Self {
            record: Arc::default(),
            revision: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Drops {
    /// Notes one drop.
    pub fn record(
        &self,
        hop: Hop,
        reason: &'static str,
        peer: impl fmt::Display,
        detail: impl Into<Cow<'static, str>>,
        hint: Option<String>,
    ) {
        self.record_times(1, hop, reason, peer, detail, hint);
    }

    /// Notes drops that nobody needs to hear of one by one, such as repeats of a message: they are
    /// counted and make no entry.
    pub fn count(&self, times: u64, hop: Hop, reason: &'static str) {
        *self.lock().totals.entry((hop, reason)).or_default() += times;
    }

    /// Notes several drops for the same reason, told by the last of them.
    pub fn record_times(
        &self,
        times: u64,
        hop: Hop,
        reason: &'static str,
        peer: impl fmt::Display,
        detail: impl Into<Cow<'static, str>>,
        hint: Option<String>,
    ) {
        let detail = cut(detail.into().into_owned());
        let peer = cut(peer.to_string());
        tracing::debug!(%hop, reason, peer, detail, "dropped");
        let mut record = self.lock();
        record.revision += 1;
        let revision = record.revision;
        *record.totals.entry((hop, reason)).or_default() += times;
        let key = (hop, reason, peer.clone());
        let count = match record.entries.remove(&key) {
            Some((age, before)) => {
                record.by_age.remove(&age);
                before.count
            }
            None => 0,
        };
        let dropped = Dropped {
            hop,
            reason,
            peer,
            count: count + times,
            last_at: SystemTime::now(),
            detail,
            hint,
        };
        record.by_age.insert(revision, key.clone());
        record.entries.insert(key, (revision, dropped));
        if record.entries.len() > DROPS_MAX
            && let Some((_, oldest)) = record.by_age.pop_first()
        {
            record.entries.remove(&oldest);
            record.forgotten += 1;
        }
        drop(record);
        self.revision.send_replace(revision);
    }

    /// The entries, the latest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Dropped> {
        let record = self.lock();
        let newest = record.by_age.values().rev();
        newest
            .filter_map(|key| record.entries.get(key).map(|(_, dropped)| dropped.clone()))
            .collect()
    }

    /// The entries about one peer, the latest first.
    #[must_use]
    pub fn about(&self, peer: impl fmt::Display) -> Vec<Dropped> {
        let peer = peer.to_string();
        let mut entries = self.entries();
        entries.retain(|dropped| dropped.peer == peer);
        entries
    }

    /// How often this happened in all; exact, whatever was forgotten.
    #[must_use]
    pub fn total(&self, hop: Hop, reason: &'static str) -> u64 {
        self.lock().totals.get(&(hop, reason)).copied().unwrap_or(0)
    }

    /// All exact counts, for metrics.
    #[must_use]
    pub fn totals(&self) -> Vec<(Hop, &'static str, u64)> {
        let record = self.lock();
        let totals = record.totals.iter();
        totals
            .map(|((hop, reason), count)| (*hop, *reason, *count))
            .collect()
    }

    /// Entries whose details gave way to newer ones.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.lock().forgotten
    }

    /// Rises with each drop: to wait for the next.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // Every change leaves the record whole, so a panic elsewhere does not spoil it.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most `DETAIL_BYTES_MAX` bytes of whole characters.
fn cut(text: String) -> String {
    if text.len() <= DETAIL_BYTES_MAX {
        return text;
    }
    let end = (0..=DETAIL_BYTES_MAX)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    // A copy: a text that is cut in place keeps the memory of the whole.
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_keeps_no_more_memory_than_it_shows() {
        let drops = Drops::default();
        let detail = format!("a{}", "é".repeat(1 << 20));
        drops.record(Hop::Event, "long", "b".repeat(1 << 20), detail, None);
        let record = drops.lock();
        for (_, dropped) in record.entries.values() {
            assert_eq!(dropped.detail.len(), DETAIL_BYTES_MAX - 1);
            let kept = dropped.detail.capacity() + dropped.peer.capacity();
            assert!(kept <= 2 * DETAIL_BYTES_MAX, "{kept} bytes are kept");
        }
    }

    #[test]
    fn strangers_cannot_make_it_grow_and_counts_stay_exact() {
        let drops = Drops::default();
        let peers = 2 * DROPS_MAX as u64;
        for peer in 0..peers {
            drops.record(Hop::Http, "too slow", peer, "x".repeat(10_000), None);
        }
        let entries = drops.entries();
        assert_eq!(entries.len(), DROPS_MAX);
        assert_eq!(entries[0].peer, (peers - 1).to_string());
        assert_eq!(entries[0].detail.len(), DETAIL_BYTES_MAX);
        assert_eq!(drops.total(Hop::Http, "too slow"), peers);
        assert_eq!(drops.forgotten(), peers - DROPS_MAX as u64);
        assert_eq!(*drops.changes().borrow(), peers);
    }

    #[test]
    fn details_are_cut_between_characters() {
        let drops = Drops::default();
        drops.record(
            Hop::Event,
            "odd",
            "peer",
            "é".repeat(DETAIL_BYTES_MAX),
            None,
        );
        assert!(drops.entries()[0].detail.len() <= DETAIL_BYTES_MAX);
        assert_eq!(drops.about("peer").len(), 1);
        assert!(drops.about("other").is_empty());
    }
}
