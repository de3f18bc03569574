//! Room for large bodies: the memory that peers can make a server hold, in all and for one peer.
//!
//! A body waits for its room before its bytes are read on, so that a peer that sends many, or sends
//! them slowly, is held back by its own connection. Each request takes room once and keeps it until it
//! is answered: nobody holds some and waits for more. Bodies of up to [`SMALL_BYTES`] take none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::neighbourhood;

/// Bytes up to which a body takes no room. Default 64 KiB: 512 connections hold 32 MiB of them, and
/// notifications are smaller.
pub(super) const SMALL_BYTES: usize = 64 << 10;
/// Share of the room that one peer may take: a quarter.
const PEER_SHARE: usize = 4;

/// The room of a server.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    bytes: u32,
    of_peers: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    peer_bytes: u32,
}

/// Room of one request, given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Room {
    /// Room of so many bytes, and at least for one body of `body_bytes`, packed and unpacked.
    pub(super) fn new(bytes: usize, body_bytes: usize) -> Self {
        let least = body_bytes.saturating_mul(2);
        let bytes = of_size(bytes.max(least));
        let peer_bytes = (bytes / of_size(PEER_SHARE)).max(of_size(least));
        Self {
            all: Arc::new(Semaphore::new(bytes as usize)),
            bytes,
            of_peers: Mutex::default(),
            peer_bytes,
        }
    }

    /// Waits for room of so many bytes; `None` when there is never as much.
    pub(super) async fn take(&self, peer: SocketAddr, bytes: usize) -> Option<Held> {
        let bytes = of_size(bytes).min(self.peer_bytes).min(self.bytes);
        let of_peer = self.of_peer(neighbourhood(peer));
        // The peer's own share first: who has used it up keeps nobody else waiting.
        let of_peer = of_peer.acquire_many_owned(bytes).await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok()?;
        Some(Held {
            _of_peer: of_peer,
            _of_all: of_all,
        })
    }

    fn of_peer(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut of_peers = self.of_peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds or waits for are whole again.
        of_peers.retain(|_, share| Arc::strong_count(share) > 1);
        let share = || Arc::new(Semaphore::new(self.peer_bytes as usize));
        Arc::clone(of_peers.entry(peer).or_insert_with(share))
    }
}

fn of_size(bytes: usize) -> u32 {
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

    /// The room of a peer by the last byte of its address, if it is there at once.
    fn at_once(room: &Room, peer: u8, bytes: usize) -> Option<Held> {
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
        let held: Vec<Held> = (0..10).map_while(|_| at_once(&room, ONE, 50)).collect();
        assert_eq!(held.len(), 4);
        assert!(at_once(&room, OTHER, 50).is_some());
        drop(held);
        assert!(at_once(&room, ONE, 200).is_some());
        assert_eq!(room.all.available_permits(), 800);
    }

    #[test]
    fn all_together_take_no_more_than_there_is() {
        let room = Room::new(100, 10);
        let held: Vec<Held> = (10..30)
            .filter_map(|peer| at_once(&room, peer, 20))
            .collect();
        assert_eq!(held.len(), 5);
        assert!(at_once(&room, ONE, 1).is_none());
    }

    #[test]
    fn a_body_of_the_largest_size_has_room() {
        let room = Room::new(0, 1 << 20);
        assert!(at_once(&room, ONE, 2 << 20).is_some());
    }
}
