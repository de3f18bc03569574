//! Slots for connections, which idle clients cannot take from active ones.
//!
//! A connection is waiting until one of its requests has been read completely, and again once that is answered. When
//! all slots are taken, the longest waiting connection of the peer with most waiting connections is displaced, so that
//! a flood displaces itself. Connections with a request in progress are never displaced.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A bounded number of slots.
#[derive(Debug)]
pub struct Places {
    places_max: usize,
    per_peer_max: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    places: HashMap<u64, Open>,
    next: u64,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    /// When it started to wait, as an increasing number; `None` while a request is in progress.
    waiting: Option<u64>,
    leave: Arc<Notify>,
}

/// The result of taking a slot.
#[derive(Debug)]
pub enum Taking {
    /// There was room.
    Free(Place),
    /// A waiting connection was displaced.
    Displaced(Place, Crowd),
    /// All slots have a request in progress.
    Full(Crowd),
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// Connections in total.
    All,
    /// Connections of one peer.
    Peer,
}

/// One slot, released when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    leave: Arc<Notify>,
}

impl Places {
    /// A total number of slots, and a limit for each peer: an IPv4 address or an IPv6 /64.
    #[must_use]
    pub fn new(places_max: usize, per_peer_max: usize) -> Arc<Self> {
        Arc::new(Self {
            places_max: places_max.max(1),
            per_peer_max: per_peer_max.max(1),
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Takes a slot for a connection of `peer`, which starts as waiting.
    #[must_use]
    pub fn take(self: &Arc<Self>, peer: SocketAddr) -> Taking {
        let peer = neighbourhood(peer);
        let mut taken = self.taken();
        let of_peer = taken.places.values().filter(|open| open.peer == peer);
        let crowd = match of_peer.count() {
            many if many >= self.per_peer_max => Some(Crowd::Peer),
            _ if taken.places.len() >= self.places_max => Some(Crowd::All),
            _ => None,
        };
        if let Some(crowd) = crowd {
            let of = match crowd {
                Crowd::All => taken.greediest(),
                Crowd::Peer => Some(peer),
            };
            let Some(number) = of.and_then(|peer| taken.longest_waiting(peer)) else {
                return Taking::Full(crowd);
            };
            if let Some(open) = taken.places.remove(&number) {
                open.leave.notify_one();
            }
        }
        let number = taken.number();
        let leave = Arc::new(Notify::new());
        let open = Open {
            peer,
            waiting: Some(number),
            leave: Arc::clone(&leave),
        };
        taken.places.insert(number, open);
        drop(taken);
        let place = Place {
            places: Arc::clone(self),
            number,
            leave,
        };
        match crowd {
            None => Taking::Free(place),
            Some(crowd) => Taking::Displaced(place, crowd),
        }
    }

    /// The number of taken slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.taken().places.len()
    }

    /// Whether no slot is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a slot is released or its connection waits.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Every change leaves the slots consistent.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The peer with most waiting connections.
    fn greediest(&self) -> Option<IpAddr> {
        let mut waiting: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.places.values().filter(|open| open.waiting.is_some()) {
            *waiting.entry(open.peer).or_default() += 1;
        }
        let most = waiting.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(peer, _)| peer)
    }

    fn longest_waiting(&self, peer: IpAddr) -> Option<u64> {
        let of_peer = self.places.iter().filter(|(_, open)| open.peer == peer);
        let waiting = of_peer.filter_map(|(number, open)| Some((open.waiting?, *number)));
        waiting.min().map(|(_, number)| number)
    }
}

impl Place {
    /// A request was read completely: the connection is not displaced until [`Place::waits`].
    pub fn is_answered(&self) {
        if let Some(open) = self.places.taken().places.get_mut(&self.number) {
            open.waiting = None;
        }
    }

    /// The request is answered: the connection waits for the next one.
    pub fn waits(&self) {
        let mut taken = self.places.taken();
        let since = taken.number();
        if let Some(open) = taken.places.get_mut(&self.number) {
            open.waiting = Some(since);
        }
        drop(taken);
        self.places.freed.notify_one();
    }

    /// Waits until the slot is given to another connection: this one must end.
    pub async fn displaced(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().places.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// The network that is counted as one peer: one IPv4 address, one IPv6 /64.
pub(crate) fn neighbourhood(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & (u128::MAX << 64)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 9))
    }

    fn taken(taking: Taking) -> Place {
        match taking {
            Taking::Free(place) | Taking::Displaced(place, _) => place,
            Taking::Full(crowd) => panic!("full: {crowd:?}"),
        }
    }

    #[tokio::test]
    async fn the_longest_waiting_connection_of_the_greediest_peer_is_displaced() {
        let places = Places::new(3, 8);
        let honest = taken(places.take(peer(1)));
        let first = taken(places.take(peer(2)));
        let second = taken(places.take(peer(2)));
        let Taking::Displaced(newcomer, Crowd::All) = places.take(peer(3)) else {
            panic!("no connection was displaced");
        };
        first.displaced().await;
        assert_eq!(places.len(), 3);
        drop(first);
        assert_eq!(
            places.len(),
            3,
            "its slot belongs to another connection already"
        );
        drop((honest, second, newcomer));
        assert!(places.is_empty());
    }

    #[tokio::test]
    async fn only_waiting_connections_are_displaced() {
        let places = Places::new(2, 1);
        let one = taken(places.take(peer(1)));
        one.is_answered();
        assert!(matches!(places.take(peer(1)), Taking::Full(Crowd::Peer)));
        let two = taken(places.take(peer(2)));
        two.is_answered();
        assert!(matches!(places.take(peer(3)), Taking::Full(Crowd::All)));
        one.waits();
        places.freed().await;
        let three = places.take(peer(3));
        assert!(matches!(three, Taking::Displaced(_, Crowd::All)));
        one.displaced().await;
    }
}
