//! The readers of this node's streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_flow::{Counters, PacerStatus, SenderChannel};
use chappe_stream::Timestamp;

use super::meter::Meter;
use super::{LinkKind, LinksConfig, PeerStatus, Reader};

/// All who read now.
#[derive(Default)]
pub(crate) struct Peers {
    next: AtomicU64,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
}

/// One who reads: a session, a subscription or a pull.
pub(crate) struct Peer {
    number: u64,
    label: String,
    state: Mutex<(PeerStatus, Meter)>,
}

/// Lets go of the place of one who reads when dropped.
pub(crate) struct Place {
    peers: Arc<Peers>,
    /// How it does.
    pub(crate) peer: Arc<Peer>,
}

/// There is no place for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {limit} are there already, which is the limit")]
pub(crate) struct NoPlace {
    what: &'static str,
    limit: usize,
}

impl Peers {
    /// A place for one more.
    ///
    /// # Errors
    /// There are too many, in all or of this peer.
    pub(crate) fn place(
        self: &Arc<Self>,
        reader: &Reader,
        kind: LinkKind,
        config: &LinksConfig,
        now: Timestamp,
    ) -> Result<Place, NoPlace> {
        let label = reader.label();
        let mut peers = lock(&self.peers);
        if peers.len() >= config.sessions {
            let (what, limit) = ("readers", config.sessions);
            return Err(NoPlace { what, limit });
        }
        let of_peer = peers.values().filter(|peer| peer.label == label).count();
        if of_peer >= config.sessions_per_peer {
            let (what, limit) = ("readers of one peer", config.sessions_per_peer);
            return Err(NoPlace { what, limit });
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let address = reader.address.map(|address| address.to_string());
        let status = PeerStatus {
            address: address.unwrap_or_else(|| "this process".to_owned()),
            key: reader.key.map(|_| label.clone()),
            kind,
            streams: Vec::new(),
            read: BTreeMap::new(),
            since_ns: now.0,
            rate_per_s: 0.0,
            sent: 0,
            sent_again: 0,
            acknowledged: 0,
            in_flight: 0,
            occupation: 0.0,
            lag_elements: 0,
            stalls: 0,
            refused: 0,
            pacing: None,
        };
        let peer = Arc::new(Peer {
            number,
            label,
            state: Mutex::new((status, Meter::default())),
        });
        peers.insert(number, peer.clone());
        Ok(Place {
            peers: self.clone(),
            peer,
        })
    }

    /// How they do, the oldest first.
    pub(crate) fn list(&self) -> Vec<PeerStatus> {
        let peers: Vec<Arc<Peer>> = lock(&self.peers).values().cloned().collect();
        peers.iter().map(|peer| peer.status()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.peers.peers).remove(&self.peer.number);
    }
}

impl Peer {
    fn status(&self) -> PeerStatus {
        let mut state = lock(&self.state);
        let rate_per_s = state.1.rate_per_s();
        PeerStatus {
            rate_per_s,
            ..state.0.clone()
        }
    }

    /// It reads these streams.
    pub(crate) fn reads(&self, streams: Vec<String>) {
        lock(&self.state).0.streams = streams;
    }

    /// It has this stream up to a number.
    pub(crate) fn has(&self, stream: &str, number: u64) {
        let read = &mut lock(&self.state).0.read;
        match read.get_mut(stream) {
            Some(known) => *known = number,
            None => drop(read.insert(stream.to_owned(), number)),
        }
    }

    /// Elements were sent, acknowledged or refused, by a kind that has no windows.
    pub(crate) fn add(&self, sent: u64, acknowledged: u64, refused: u64) {
        let mut state = lock(&self.state);
        state.1.add(sent);
        state.0.sent += sent;
        state.0.acknowledged += acknowledged;
        state.0.refused += refused;
    }

    /// So many elements are not there yet, and so many of them on the way; of a kind that has no
    /// windows.
    pub(crate) fn behind(&self, lag: u64, in_flight: u64) {
        let mut state = lock(&self.state);
        state.0.lag_elements = lag;
        state.0.in_flight = in_flight;
    }

    /// Elements are to be sent again, since there was no room for them.
    pub(crate) fn again(&self, elements: u64) {
        let mut state = lock(&self.state);
        state.0.sent_again += elements;
        state.0.stalls += 1;
    }

    /// How its session does.
    pub(crate) fn tell(
        &self,
        streams: Vec<String>,
        read: BTreeMap<String, u64>,
        counters: &Counters,
        channels: &[SenderChannel],
        pacer: PacerStatus,
    ) {
        let mut state = lock(&self.state);
        let news = counters.elements.saturating_sub(state.0.sent);
        state.1.add(news);
        let full = |channel: &SenderChannel| match channel.window_bytes {
            0 => 0.0,
            window => channel.in_flight_bytes as f64 / window as f64,
        };
        let status = &mut state.0;
        status.streams = streams;
        status.read = read;
        status.sent = counters.elements;
        status.acknowledged = counters.acknowledged;
        status.stalls = counters.stalls;
        status.pacing = Some(pacer.into());
        status.refused = channels.iter().map(|channel| channel.refused).sum();
        status.in_flight = channels.iter().map(|it| it.in_flight_elements).sum();
        status.lag_elements = channels
            .iter()
            .map(|it| it.last.saturating_sub(it.acknowledged))
            .sum();
        status.occupation = channels.iter().map(full).fold(0.0, f64::max);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
