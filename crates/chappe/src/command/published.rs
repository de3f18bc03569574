//! The part of a search that goes through the distributed hash table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::{Found, Search};
use chappe_dpws::discovery::MatchRule;
use chappe_kad::service::{device_key, type_key};
use chappe_kad::{Entrance, Report};
use chappe_transport::kad::{Finding, KadNode};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::overlay;
use crate::output::{self, Failure};

/// Bytes that one search may bring in: some ten thousand devices.
const SEARCH_BYTES: u64 = 8 << 20;
/// First pause before the same search is begun again, doubled after each: a minute has six searches.
const PAUSE: Duration = Duration::from_secs(1);

/// A search in the distributed hash table, begun when a first entrance is known, and repeated until its
/// time is over.
pub(crate) struct Published {
    client: Arc<DeviceClient>,
    search: Search,
    node: Option<KadNode>,
    /// Until when somebody must have answered, and the search is repeated.
    until: Instant,
    findings: Option<mpsc::Receiver<Finding>>,
    /// When it is searched again, and the pause after that.
    again: (Instant, Duration),
    /// What was found and is being handed on.
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
            again: (Instant::now(), PAUSE),
            pending: None,
            ended: false,
        }
    }

    /// Enters here too.
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

    /// Whether something may come yet.
    pub(crate) fn is_open(&self) -> bool {
        self.node.is_some() && !self.ended
    }

    /// The endpoint of the next device that fits, which the client knows then. To be called while
    /// [open](Self::is_open); may be cancelled.
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
                    self.pending = self.fits(&found).then_some(found);
                }
                Some(Finding::Ended { exhausted, .. }) => {
                    if exhausted {
                        output::note("there is more in the distributed hash table: name a --type");
                    }
                    let (now, pause) = (Instant::now(), self.again.1);
                    self.ended = exhausted || now + pause >= self.until;
                    if self.ended {
                        return None;
                    }
                    // A device may be published after this search, or an answer may be lost.
                    self.findings = None;
                    self.again = (now + pause, pause * 2);
                }
                None => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }

    /// Searches as soon as the network is entered.
    async fn begin(&mut self) {
        let Some(node) = &self.node else {
            self.ended = true;
            return;
        };
        tokio::time::sleep_until(self.again.0).await;
        let mut report = node.report();
        let told =
            |report: &Report| !report.contacts.is_empty() || overlay::hears_members_alone(report);
        let entered = report.wait_for(told);
        match tokio::time::timeout_at(self.until, entered).await {
            Ok(Ok(report)) if overlay::hears_members_alone(&report) => {
                output::note("the distributed hash table there hears members of its network alone");
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
                    "nobody answers at the entrances of the distributed hash table; see: \
                     chappe doctor --entrance ADDRESS:PORT",
                );
                self.ended = true;
            }
        }
    }

    fn fits(&self, found: &Found) -> bool {
        let typed = self.search.types.iter().all(|of| found.types.contains(of));
        let scoped = self.search.scopes.iter().all(|asked| {
            let holds = |held: &String| MatchRule::Rfc3986.matches(asked, held);
            found.scopes.iter().any(holds)
        });
        typed && scoped
    }
}
