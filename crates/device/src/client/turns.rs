//! Turns to read descriptions, by address: one host may claim to be a thousand devices, each with documents of
//! the largest size.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptions of one address in memory at the same time. Default 4: each may take
/// [`description_bytes`](super::ClientOptions::description_bytes), and a silent device behind a gateway must not
/// block all others there.
const AT_ONCE_MAX: usize = 4;

/// The turns of all addresses.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<IpAddr, Arc<Semaphore>>>);

/// Held as long as a description is in memory.
pub(super) type Turn = Arc<OwnedSemaphorePermit>;

impl Turns {
    /// Waits until fewer than [`AT_ONCE_MAX`] descriptions of an address are in memory.
    pub(super) async fn wait(&self, address: IpAddr) -> Option<Turn> {
        let of_address = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A waiting or reading task holds its own reference.
            all.retain(|_, known| Arc::strong_count(known) > 1);
            let known = all.entry(address.to_canonical());
            Arc::clone(known.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_MAX))))
        };
        of_address.acquire_owned().await.ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn turns_of_an_address_are_bounded_and_freed() {
        let turns = Turns::default();
        let ready = |address: &str| {
            let turn = pin!(turns.wait(address.parse().unwrap()));
            match turn.poll(&mut Context::from_waker(Waker::noop())) {
                std::task::Poll::Ready(turn) => turn,
                std::task::Poll::Pending => None,
            }
        };
        let mut held: Vec<_> = (0..AT_ONCE_MAX)
            .map(|_| ready("192.0.2.1").unwrap())
            .collect();
        assert!(ready("192.0.2.1").is_none() && ready("::ffff:192.0.2.1").is_none());
        assert!(
            ready("192.0.2.2").is_some(),
            "another address does not wait"
        );
        let copy = held.pop().unwrap();
        assert!(
            ready("192.0.2.1").is_none(),
            "the description is still in memory"
        );
        drop(copy);
        held.push(ready("192.0.2.1").unwrap());
        held.clear();
        assert!(ready("192.0.2.3").is_some());
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
