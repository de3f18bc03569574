//! The part of a search in the distributed hash table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::{Found, Search};
use chappe_kad::service::{device_key, type_key};
use chappe_kad::{Entrance, Report};
use chappe_transport::kad::{Finding, KadNode};
use chappe_xml::Str;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::overlay;
use crate::output::{self, Failure};

/// Maximum number of bytes received in one search: some ten thousand devices.
const SEARCH_BYTES: u64 = 8 << 20;
/// First pause between two searches, doubled after each: six searches in a minute.
const PAUSE: Duration = Duration::from_secs(1);

/// A search in the distributed hash table: starts with the first entrance and repeats until its time
/// is over.
pub(crate) struct Published {
    client: Arc<DeviceClient>,
    search: Search,
    node: Option<KadNode>,
    /// End of the wait for entrances, and of repeated searches.
    until: Instant,
    findings: Option<mpsc::Receiver<Finding>>,
    /// Time of the next search, and the pause after it.
    next_search: (Instant, Duration),
    /// A match that is not yet returned.
    pending: Option<Found>,
    ended: bool,
}

impl Published {
    pub(crate) fn new(client: &Arc<DeviceClient>, search: &Search) -> Self {
        Self {
            client: Arc::clone(client),
            search: search.clone(),
            node: None,
            until: Instant::now(),
            findings: None,
            next_search: (Instant::now(), PAUSE),
            pending: None,
            ended: false,
        }
    }

    /// Enters through this node too.
    pub(crate) async fn enter(&mut self, at: SocketAddr) -> Result<(), Failure> {
        let (address, public) = (at, None);
        match &self.node {
            Some(node) => node.enter(vec![Entrance { address, public }]).await,
            None => {
                self.node = Some(overlay::enter(&[at], self.client.drops().clone())?);
                self.until = Instant::now() + self.search.timeout.max(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// True while more matches are possible.
    pub(crate) fn is_open(&self) -> bool {
        self.node.is_some() && !self.ended
    }

    /// The endpoint of the next match, which the client has learnt by then. Call it while
    /// [open](Self::is_open); it is safe to cancel.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(found) = &self.pending {
                self.client.learn(found.clone()).await;
                return self.pending.take().map(|found| found.endpoint);
            }
            let Some(findings) = &mut self.findings else {
                self.begin().await;
                if self.ended {
                    return None;
                }
                continue;
            };
            match findings.recv().await {
                Some(Finding::Seen(sighting)) => {
                    let found = Found::published(&sighting);
                    self.pending = self.is_match(&found).then_some(found);
                }
                Some(Finding::Ended { exhausted, .. }) => {
                    if exhausted {
                        output::note(
                            "the distributed hash table has more devices than one search returns: name a --type",
                        );
                    }
                    let (now, pause) = (Instant::now(), self.next_search.1);
                    self.ended = exhausted || now + pause >= self.until;
                    if self.ended {
                        return None;
                    }
                    // A device may appear after this search, and answers may be lost.
                    self.findings = None;
                    self.next_search = (now + pause, pause * 2);
                }
                None => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }

    /// Starts a search once an entrance has answered.
    async fn begin(&mut self) {
        let Some(node) = &self.node else {
            self.ended = true;
            return;
        };
        tokio::time::sleep_until(self.next_search.0).await;
        let mut report = node.report();
        let is_answered =
            |report: &Report| !report.contacts.is_empty() || overlay::answers_members_only(report);
        let entered = report.wait_for(is_answered);
        match tokio::time::timeout_at(self.until, entered).await {
            Ok(Ok(report)) if overlay::answers_members_only(&report) => {
                output::note(
                    "the distributed hash table there answers members of its network only",
                );
                output::note(format_args!("hint: {}", overlay::MEMBERS_HINT));
                self.ended = true;
            }
            Ok(_) => {
                let first = self.search.types.first();
                let key = first.map_or_else(device_key, |of| {
                    type_key(&format!("{{{}}}{}", of.namespace, of.local))
                });
                self.findings = Some(node.find(key, SEARCH_BYTES).await);
            }
            Err(_) => {
                output::note(
                    "no entrance to the distributed hash table answers; find out why: \
                     chappe doctor --entrance ADDRESS:PORT",
                );
                self.ended = true;
            }
        }
    }

    fn is_match(&self, found: &Found) -> bool {
        let typed = self.search.types.iter().all(|of| found.types.contains(of));
        let shared =
            |scopes: &[String]| -> Vec<Str> { scopes.iter().cloned().map(Into::into).collect() };
        let (asked, held) = (shared(&self.search.scopes), shared(&found.scopes));
        let scoped = self.search.match_by.matches_all(&asked, &held);
        typed && scoped
    }
}
