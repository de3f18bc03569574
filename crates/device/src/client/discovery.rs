//! From the machine's events to what the application sees.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::DropReason;
use chappe_dpws::discovery::client::{Command, Event};
use chappe_transport::Hop;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets};
use tokio::sync::{broadcast, mpsc};

use super::table::{Remembered, TABLE_MAX};
use super::{Found, Search, Seen, Shared, liveness};
use crate::Error;

/// Devices of which it is remembered that a reader was told of them: what is beyond the table has left it.
const KNOWN_MAX: usize = 2 * TABLE_MAX;

/// What a client sees, one after the other. A reader that falls behind is told what has gone meanwhile, and
/// given the table anew.
pub struct Discovery {
    /// Not held: what holds it is the client, whose end this is to notice.
    shared: Weak<Shared>,
    backlog: VecDeque<Seen>,
    /// The devices that the reader knows, by endpoint.
    known: HashSet<String>,
    receiver: broadcast::Receiver<Seen>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

impl Discovery {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        // Listening begins before the table is read, so that nothing falls between the two.
        let receiver = shared.seen.subscribe();
        let mut discovery = Self {
            shared: Arc::downgrade(shared),
            backlog: VecDeque::new(),
            known: HashSet::new(),
            receiver,
        };
        discovery.refill();
        discovery
    }

    /// The next; `None` when the client is closed.
    pub async fn next(&mut self) -> Option<Seen> {
        loop {
            if let Some(seen) = self.backlog.pop_front() {
                self.note(&seen);
                return Some(seen);
            }
            match self.receiver.recv().await {
                Ok(seen) => {
                    self.note(&seen);
                    return Some(seen);
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.refill(),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn note(&mut self, seen: &Seen) {
        match seen {
            Seen::Found(found) | Seen::Changed(found) => {
                self.known.insert(found.endpoint.clone());
            }
            Seen::Gone { endpoint, .. } => {
                self.known.remove(endpoint);
            }
            _ => {}
        }
        // Those that made room in the table are not said to have gone.
        if self.known.len() > KNOWN_MAX {
            self.refill();
        }
    }

    fn refill(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let table = shared.table();
        let gone = self.known.extract_if(|known| !table.contains_key(known));
        let gone = gone.map(|endpoint| Seen::Gone {
            endpoint,
            reason: "it went while much else happened".to_owned(),
        });
        self.backlog.extend(gone);
        let found = table.values().map(|entry| Seen::Found(entry.found.clone()));
        self.backlog.extend(found);
    }
}

impl Shared {
    pub(super) async fn probe(&self, search: &Search) -> Result<u64, Error> {
        let id = self.probes.fetch_add(1, Ordering::Relaxed);
        let command = Command::Probe {
            id,
            types: search.types.clone(),
            scopes: search.scopes.iter().cloned().map(Into::into).collect(),
            timeout: search.timeout,
        };
        self.order(command).await?;
        Ok(id)
    }

    /// Searches twice: some devices answer only when asked for nothing in particular, others only
    /// when asked for a DPWS device.
    pub(super) async fn probe_everything(&self) -> Result<(), Error> {
        self.probe(&Search::default()).await?;
        let search = Search {
            types: vec![Dialect::V2009.device_type()],
            ..Search::default()
        };
        self.probe(&search).await?;
        Ok(())
    }
}

/// Takes the machine's events until it ends.
pub(super) async fn listen(shared: Arc<Shared>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        take(&shared, event).await;
    }
}

async fn take(shared: &Arc<Shared>, event: Event) {
    match event {
        Event::Found {
            target,
            dialect,
            from,
            ..
        } => {
            let found = Found::new(&target, dialect, from);
            if shared.table().is_elsewhere(&found.endpoint, from.ip()) {
                let shared = Arc::clone(shared);
                tokio::spawn(async move { liveness::confirm_found(&shared, target, from).await });
            } else if insert(shared, &found) {
                shared.tell(Seen::Found(found));
            }
        }
        Event::Changed {
            target,
            dialect,
            from,
            ..
        } => {
            let found = Found::new(&target, dialect, from);
            if insert(shared, &found) {
                shared.tell(Seen::Changed(found));
            }
        }
        // What differs is asked for by the machine, and comes as a change.
        Event::Hello {
            target, differs, ..
        } => {
            let endpoint = &*target.endpoint.address;
            let known = shared
                .table()
                .get(endpoint)
                .map(|entry| entry.found.clone());
            if let Some(found) = known.filter(|_| !differs) {
                let (shared, host) = (Arc::clone(shared), found.from.ip());
                shared.tell(Seen::Hello(found));
                // Not here: the queue of the sink may be full of what waits for this task.
                tokio::spawn(async move { shared.doubt(host).await });
            }
        }
        Event::ByeHint { endpoint, from, .. } => {
            let (shared, endpoint) = (Arc::clone(shared), endpoint.to_string());
            tokio::spawn(async move { liveness::confirm_bye(&shared, &endpoint, from).await });
        }
        Event::MoveHint { target, from } => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move { liveness::confirm_move(&shared, target, from).await });
        }
        Event::Match { id, endpoint } => {
            let endpoint = endpoint.to_string();
            shared.tell(Seen::Match { id, endpoint });
        }
        Event::ProbeEnded { id, count } => shared.tell(Seen::SearchEnded { id, count }),
        Event::ResolveEnded { endpoint, answered } => {
            let endpoint = endpoint.to_string();
            shared.tell(Seen::ResolveEnded { endpoint, answered });
        }
        Event::NotSent { reason, .. } => {
            let what = "question not asked";
            shared.drops.record(Hop::Discovery, what, "", reason, None);
        }
        Event::Dropped {
            reason,
            from,
            detail,
            suppressed,
        } => {
            let times = suppressed + 1;
            if is_ordinary_drop(reason) {
                shared.drops.count(times, Hop::Discovery, reason.label());
            } else {
                let hint = drop_hint(reason).map(str::to_owned);
                let (hop, label) = (Hop::Discovery, reason.label());
                let drops = &shared.drops;
                drops.record_times(times, hop, label, from.ip(), detail, hint);
            }
        }
        // Addresses are judged where they are used.
        _ => {}
    }
}

/// Drops that happen on every sound network and concern nobody.
pub(crate) fn is_ordinary_drop(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::Duplicate
            | DropReason::Own
            | DropReason::OtherRole
            | DropReason::OtherDialect
            | DropReason::NoMatch
            | DropReason::OtherEndpoint
            | DropReason::NotStarted
            // Two sockets are read in no given order, so an answer overtakes the Hello before it.
            | DropReason::Stale
    )
}

/// What can be done about a drop.
pub(crate) fn drop_hint(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::TooLarge => Some("let the device announce fewer types and scopes"),
        DropReason::Malformed | DropReason::Invalid => {
            Some("look at the message: chappe trace shows it decoded")
        }
        DropReason::RateLimited => Some("a host floods discovery: find it by its address"),
        DropReason::OtherInterface => Some("add the interface to the configuration"),
        DropReason::ReplyElsewhere => Some("answers go only to who asks: mend the asker's ReplyTo"),
        DropReason::TableFull => Some("raise the limit of known devices"),
        DropReason::SourceFull => Some("one host claims to be very many devices: find it"),
        DropReason::DiscoveryProxy => Some("proxies are not used: devices must answer themselves"),
        DropReason::Unrelated => Some("the answer came too late: search longer"),
        _ => None,
    }
}

/// Remembers a device; says whether it has a place.
pub(super) fn insert(shared: &Arc<Shared>, found: &Found) -> bool {
    let remembered = shared.table().remember(found);
    let hop = Hop::Discovery;
    match remembered {
        Remembered::Yes => true,
        Remembered::InsteadOf(endpoint) => {
            let reason = "it made room for a device of another address".to_owned();
            shared.drops.count(1, hop, "made room for another device");
            shared.tell(Seen::Gone {
                endpoint: endpoint.clone(),
                reason,
            });
            let shared = Arc::clone(shared);
            // Not here: the machine may be waiting for this task.
            tokio::spawn(async move {
                let endpoint = endpoint.into();
                shared.order(Command::Forget { endpoint }).await
            });
            true
        }
        Remembered::No(reason, detail) => {
            let hint = Some("one host claims to be very many devices: find it".to_owned());
            let detail = format!("{}: {detail}", found.endpoint);
            shared.drops.record(hop, reason, "", detail, hint);
            false
        }
    }
}

/// Searches again and again, since a Hello may be lost.
pub(super) async fn probe_regularly(shared: Arc<Shared>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        if shared.probe_everything().await.is_err() {
            return;
        }
    }
}

/// Follows changes of the interfaces.
pub(super) async fn watch_interfaces(shared: Arc<Shared>) {
    let options = UdpOptions::new(Role::Client);
    let mut before = shared.options.selection.resolve().ok();
    loop {
        tokio::time::sleep(shared.options.interfaces_period).await;
        let Ok(now) = shared.options.selection.resolve() else {
            continue;
        };
        if before.as_ref() == Some(&now) || now.is_empty() {
            continue;
        }
        let Ok(sockets) = UdpSockets::bind(&now, &options, &shared.drops) else {
            continue;
        };
        tracing::info!(?now, "the interfaces have changed");
        before = Some(now.clone());
        if shared.orders.send(Order::Sockets(sockets)).await.is_err() {
            return;
        }
        if shared.order(Command::SetInterfaces(now)).await.is_err() {
            return;
        }
        if shared.probe_everything().await.is_err() {
            return;
        }
    }
}
