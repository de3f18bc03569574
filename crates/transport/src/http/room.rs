//! Room for large bodies: limits the memory that peers can make a server hold, in total and for one peer.
//!
//! A body waits for room before its bytes are read further, so that back-pressure reaches a peer that sends many or
//! slow ones. Each request takes room once and holds it until it is answered, so none holds some while it waits for
//! more. An answer takes room after that, at once or never, and holds it until it is written: a peer that does not read
//! its answers gets no more of them. Bodies of up to [`SMALL_BYTES`] take none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::neighbourhood;

/// The largest body that takes no room. Default 64 KiB: 512 connections hold 32 MiB of them, and notifications are
/// smaller.
pub(super) const SMALL_BYTES: usize = 64 << 10;
/// The divisor of one peer's share of the room.
const PEER_SHARE: usize = 4;

/// The room of a server.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    bytes: u32,
    of_peers: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    peer_bytes: u32,
}

/// The room of one request, released when it is dropped.
#[derive(Debug)]
pub(super) struct RoomPermit {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// An answer that is not written yet.
struct Unwritten {
    answer: Bytes,
    _permit: RoomPermit,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl Room {
    /// Room of this size, at least for one body of `body_bytes`, compressed and decompressed.
    pub(super) fn new(bytes: usize, body_bytes: usize) -> Self {
        let least = body_bytes.saturating_mul(2);
        let bytes = permits_for(bytes.max(least));
        let peer_bytes = (bytes / permits_for(PEER_SHARE)).max(permits_for(least));
        Self {
            all: Arc::new(Semaphore::new(bytes as usize)),
            bytes,
            of_peers: Mutex::default(),
            peer_bytes,
        }
    }

    /// Waits for room; `None` if the request exceeds the total.
    pub(super) async fn take(&self, peer: SocketAddr, bytes: usize) -> Option<RoomPermit> {
        let bytes = permits_for(bytes).min(self.peer_bytes).min(self.bytes);
        let of_peer = self.peer_share(neighbourhood(peer));
        // The peer's own share first: a peer that has used it up keeps no other waiting.
        let of_peer = of_peer.acquire_many_owned(bytes).await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok()?;
        Some(RoomPermit {
            _of_peer: of_peer,
            _of_all: of_all,
        })
    }

    /// An answer that holds room until it is written; `None` if there is none now. Bytes that others hold as well, such
    /// as a document, take no room, as they need no further memory.
    pub(super) fn holding(&self, peer: SocketAddr, answer: Bytes) -> Option<Bytes> {
        if answer.len() <= SMALL_BYTES || !answer.is_unique() {
            return Some(answer);
        }
        let bytes = permits_for(answer.len()).min(self.peer_bytes);
        let of_peer = self.peer_share(neighbourhood(peer));
        let of_peer = of_peer.try_acquire_many_owned(bytes).ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_many_owned(bytes).ok()?;
        let permit = RoomPermit {
            _of_peer: of_peer,
            _of_all: of_all,
        };
        Some(Bytes::from_owner(Unwritten {
            answer,
            _permit: permit,
        }))
    }

    fn peer_share(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut of_peers = self.of_peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Shares without a holder or waiter are complete again.
        of_peers.retain(|_, share| Arc::strong_count(share) > 1);
        let share = || Arc::new(Semaphore::new(self.peer_bytes as usize));
        Arc::clone(of_peers.entry(peer).or_insert_with(share))
    }
}

fn permits_for(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX >> 3)
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ONE: u8 = 1;
    const OTHER: u8 = 2;

    /// The room of a peer, by the last byte of its address, if it is available at once.
    fn at_once(room: &Room, peer: u8, bytes: usize) -> Option<RoomPermit> {
        let peer = SocketAddr::from(([192, 0, 2, peer], 4711));
        let mut context = Context::from_waker(Waker::noop());
        match pin!(room.take(peer, bytes)).poll(&mut context) {
            Poll::Ready(held) => held,
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_peer_takes_no_more_than_its_share() {
        let room = Room::new(800, 50);
        let held: Vec<RoomPermit> = (0..10).map_while(|_| at_once(&room, ONE, 50)).collect();
        assert_eq!(held.len(), 4);
        assert!(at_once(&room, OTHER, 50).is_some());
        drop(held);
        assert!(at_once(&room, ONE, 200).is_some());
        assert_eq!(room.all.available_permits(), 800);
    }

    #[test]
    fn all_peers_together_stay_within_the_room() {
        let room = Room::new(100, 10);
        let held: Vec<RoomPermit> = (10..30)
            .filter_map(|peer| at_once(&room, peer, 20))
            .collect();
        assert_eq!(held.len(), 5);
        assert!(at_once(&room, ONE, 1).is_none());
    }

    #[test]
    fn answers_hold_room_until_they_are_written() {
        let room = Room::new(16 * SMALL_BYTES, SMALL_BYTES);
        let peer = |number| SocketAddr::from(([192, 0, 2, number], 4711));
        let large = || Bytes::from(vec![7; 2 * SMALL_BYTES]);
        let unwritten = [1, 2].map(|_| room.holding(peer(ONE), large()).unwrap());
        assert_eq!(room.holding(peer(ONE), large()), None);
        // Other peers, small answers and shared documents are served.
        assert_eq!(room.holding(peer(OTHER), large()), Some(large()));
        assert!(room.holding(peer(ONE), Bytes::from_static(b"a")).is_some());
        let document = large();
        assert!(room.holding(peer(ONE), document.clone()).is_some());
        drop(unwritten);
        assert!(room.holding(peer(ONE), large()).is_some());
        assert_eq!(room.all.available_permits(), 16 * SMALL_BYTES);
    }

    #[test]
    fn a_body_of_the_largest_size_has_room() {
        let room = Room::new(0, 1 << 20);
        assert!(at_once(&room, ONE, 2 << 20).is_some());
    }
}
