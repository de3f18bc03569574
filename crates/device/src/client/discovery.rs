//! Turns events of the machine into events for the application.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event};
use chappe_dpws::discovery::{DropReason, Target};
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets};
use chappe_transport::{Drops, Hop};
use tokio::sync::{broadcast, mpsc};

use super::table::{Remembered, TABLE_MAX};
use super::{Found, Search, Seen, Shared, liveness};
use crate::Error;

/// Devices that a reader is known to have seen. Larger than the table, since devices may have left it.
const KNOWN_MAX: usize = 2 * TABLE_MAX;

/// Discovery events in order. A slow reader that misses some receives the departed devices, and then
/// the whole table again.
pub struct Discovery {
    /// Weak: the end of the client ends this.
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
        // Subscribe before the table is read, so that no event is missed in between.
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

    /// The next event; `None` after the client has closed.
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
        // Evictions emit no Gone event.
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
            reason: "it disappeared while the reader was slow".to_owned(),
        });
        self.backlog.extend(gone);
        let found = table.values().map(|entry| Seen::Found(entry.found.clone()));
        self.backlog.extend(found);
    }
}

impl Shared {
    /// Searches in the groups or at discovery proxies, as the mode says, and at proxies that are not trusted.
    pub(super) async fn probe(self: &Arc<Self>, search: &Search) -> Result<u64, Error> {
        self.proxies.settled().await;
        let id = self.probes.fetch_add(1, Ordering::Relaxed);
        let command = Command::Probe {
            id,
            types: search.types.clone(),
            scopes: search.scopes.iter().cloned().map(Into::into).collect(),
            match_by: search.match_by,
            timeout: search.timeout,
        };
        self.command(command).await?;
        self.ask_proxies(search, id);
        Ok(id)
    }

    /// Searches twice: some devices answer only a search without types, others only a search for DPWS
    /// devices.
    pub(super) async fn probe_everything(self: &Arc<Self>) -> Result<(), Error> {
        self.probe(&Search::default()).await?;
        let search = Search {
            types: vec![Dialect::V2009.device_type()],
            ..Search::default()
        };
        self.probe(&search).await?;
        Ok(())
    }
}

/// Handles the events of the machine until it ends.
pub(super) async fn listen(shared: Arc<Shared>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        handle_event(&shared, event).await;
    }
}

async fn handle_event(shared: &Arc<Shared>, event: Event) {
    match event {
        Event::Found {
            target,
            dialect,
            from,
            ..
        } => take_up(shared, target, dialect, from, Seen::Found),
        Event::Changed {
            target,
            dialect,
            from,
            ..
        } => take_up(shared, target, dialect, from, Seen::Changed),
        // The machine resolves the difference itself, and reports a change.
        Event::Hello {
            target, differs, ..
        } => {
            let endpoint = &*target.endpoint.address;
            let known = shared
                .table()
                .get(endpoint)
                .map(|entry| entry.found.clone());
            if let Some(found) = known.filter(|_| !differs) {
                heard(shared, found.from.ip(), Seen::Hello(found));
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
        Event::Proxy { target, from, .. } => shared.hear_proxy(&target, from).await,
        Event::Match { id, endpoint } => {
            let endpoint = endpoint.to_string();
            shared.emit(Seen::Match { id, endpoint });
        }
        Event::ProbeEnded { id, count } => shared.emit(Seen::SearchEnded { id, count }),
        Event::ResolveEnded { endpoint, answered } => {
            let endpoint = endpoint.to_string();
            shared.emit(Seen::ResolveEnded { endpoint, answered });
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
        } => note_drop(&shared.drops, reason, from, detail, suppressed),
        // Addresses are checked when they are used.
        _ => {}
    }
}

/// Adds a device that announced itself, and reports it. An announcement proves nothing, not even the address of its
/// sender, so a device that was reached at an address that is not announced any longer is first looked for there.
fn take_up(
    shared: &Arc<Shared>,
    target: Target,
    dialect: Dialect,
    from: SocketAddr,
    report: fn(Found) -> Seen,
) {
    let found = Found::new(&target, dialect, from);
    if shared.table().is_elsewhere(&found) {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { liveness::confirm_found(&shared, target, from).await });
    } else if insert(shared, &found) {
        heard(shared, from.ip(), report(found));
    }
}

/// Reports a device that was heard, and asks its host whether it still has its subscriptions: the device may
/// have restarted, with another description, or have been gone for a moment.
pub(super) fn heard(shared: &Arc<Shared>, host: IpAddr, seen: Seen) {
    shared.emit(seen);
    let shared = Arc::clone(shared);
    // In a task: the sink's queue may be full of inputs that wait for this one.
    tokio::spawn(async move { shared.verify(host).await });
}

/// Counts a message that a machine dropped, and `suppressed` earlier ones, and records it unless that is ordinary.
pub(crate) fn note_drop(
    drops: &Drops,
    reason: DropReason,
    from: SocketAddr,
    detail: String,
    suppressed: u64,
) {
    let (times, hop, label) = (suppressed + 1, Hop::Discovery, reason.label());
    if is_ordinary_drop(reason) {
        drops.count(times, hop, label);
    } else {
        let hint = drop_hint(reason).map(str::to_owned);
        drops.record_times(times, hop, label, from.ip(), detail, hint);
    }
}

/// Whether a drop is normal on a healthy network and needs no record.
fn is_ordinary_drop(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::Duplicate
            | DropReason::Own
            | DropReason::OtherRole
            | DropReason::OtherDialect
            | DropReason::NoMatch
            | DropReason::OtherEndpoint
            | DropReason::NotStarted
            // Two sockets are read in no fixed order, so an answer may precede the Hello.
            | DropReason::Stale
    )
}

/// A remedy for a drop, if one is known.
fn drop_hint(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::TooLarge => Some("let the device announce fewer types and scopes"),
        DropReason::Malformed | DropReason::Invalid => {
            Some("inspect the message: chappe trace shows it decoded")
        }
        DropReason::RateLimited => Some("a host floods discovery: find it by its address"),
        DropReason::OtherInterface => Some("add the interface to the configuration"),
        DropReason::ReplyElsewhere => {
            Some("answers go to the sender only: fix the client's ReplyTo")
        }
        DropReason::TableFull => Some("raise the limit of known devices"),
        DropReason::SourceFull => {
            Some("one host claims to be too many devices: find it by its address")
        }
        DropReason::DiscoveryProxy => {
            Some("more hosts than plausible claim to be discovery proxies")
        }
        DropReason::HeldByOther => {
            Some("two devices share one identifier, or one of them is forged")
        }
        DropReason::Unrelated => Some("the answer arrived too late: search longer"),
        _ => None,
    }
}

/// Adds a device to the table. Returns whether there was room.
pub(super) fn insert(shared: &Arc<Shared>, found: &Found) -> bool {
    let remembered = shared.table().remember(found);
    admit(shared, found, remembered)
}

/// Reports a device that was displaced by one that was added to the table, or that there was no room. Returns whether
/// there was.
pub(super) fn admit(shared: &Arc<Shared>, found: &Found, remembered: Remembered) -> bool {
    let hop = Hop::Discovery;
    match remembered {
        Remembered::Added => true,
        Remembered::Replaced(endpoint) => {
            let reason = "it was evicted for a device of another address".to_owned();
            shared.drops.count(1, hop, "made room for another device");
            shared.emit(Seen::Gone {
                endpoint: endpoint.clone(),
                reason,
            });
            let shared = Arc::clone(shared);
            // In a task: the machine may be waiting for this one.
            tokio::spawn(async move {
                let endpoint = endpoint.into();
                shared.command(Command::Forget { endpoint }).await
            });
            true
        }
        Remembered::Rejected(reason, detail) => {
            let hint =
                Some("one host claims to be too many devices: find it by its address".to_owned());
            let detail = format!("{}: {detail}", found.endpoint);
            shared.drops.record(hop, reason, "", detail, hint);
            false
        }
    }
}

/// Searches periodically, since a Hello may be lost.
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
        if shared.command(Command::SetInterfaces(now)).await.is_err() {
            return;
        }
        if shared.probe_everything().await.is_err() {
            return;
        }
    }
}
