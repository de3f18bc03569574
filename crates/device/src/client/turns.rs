//! Turns to ask devices whether they are there: a host on the link may announce thousands at addresses
//! without a host. Turns to read descriptions, by address: one host may claim to be a thousand devices,
//! each with documents of the largest size.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Descriptions of one address in memory at the same time. Default 4: each may take
/// [`description_bytes`](super::ClientOptions::description_bytes), and a silent device behind a gateway must not
/// block all others there.
const AT_ONCE_MAX: usize = 4;
/// Maximum number of devices checked for presence at the same time. Default 256: each needs a connection,
/// which an unused address occupies for two seconds, and a process has 1,024 open files by default.
const ASKED_MAX: usize = 256;
/// The same, of the devices that one address has announced. Default 32: a host that answers slowly for a
/// thousand devices leaves turns for those of other hosts.
const ASKED_OF_SENDER_MAX: usize = 32;

/// The turns of all devices.
#[derive(Debug)]
pub(super) struct Turns {
    asked: Semaphore,
    asked_of_sender: AddressTurns,
    described: AddressTurns,
}

/// Held as long as a description is in memory.
pub(super) type Turn = Arc<OwnedSemaphorePermit>;

/// Held while a device is checked for presence.
pub(super) type Asking<'a> = (OwnedSemaphorePermit, SemaphorePermit<'a>);

impl Default for Turns {
    fn default() -> Self {
        Self {
            asked: Semaphore::new(ASKED_MAX),
            asked_of_sender: AddressTurns::new(ASKED_OF_SENDER_MAX),
            described: AddressTurns::new(AT_ONCE_MAX),
        }
    }
}

impl Turns {
    /// Waits until fewer than [`ASKED_MAX`] devices are checked for presence, and fewer than
    /// [`ASKED_OF_SENDER_MAX`] of this sender.
    pub(super) async fn ask(&self, sender: IpAddr) -> Option<Asking<'_>> {
        let of_sender = self.asked_of_sender.wait(sender).await?;
        Some((of_sender, self.asked.acquire().await.ok()?))
    }

    /// Waits until fewer than [`AT_ONCE_MAX`] descriptions of an address are in memory.
    pub(super) async fn wait(&self, address: IpAddr) -> Option<Turn> {
        self.described.wait(address).await.map(Arc::new)
    }
}

/// The turns of each address.
#[derive(Debug)]
pub(super) struct AddressTurns {
    at_once_max: usize,
    /// The addresses that have a turn or wait for one.
    turns: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl AddressTurns {
    pub(super) fn new(at_once_max: usize) -> Self {
        Self {
            at_once_max,
            turns: Mutex::default(),
        }
    }

    pub(super) async fn wait(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        let of_address = {
            let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // A task that waits or has a turn holds its own reference.
            all.retain(|_, known| Arc::strong_count(known) > 1);
            let known = all.entry(address.to_canonical());
            Arc::clone(known.or_insert_with(|| Arc::new(Semaphore::new(self.at_once_max))))
        };
        of_address.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn at_once<T>(future: impl Future<Output = Option<T>>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[test]
    fn devices_asked_at_once_are_bounded_in_total_and_by_sender() {
        let turns = Turns::default();
        let ask = |sender: usize| {
            let sender = [192, 0, 2, u8::try_from(sender).unwrap()].into();
            at_once(turns.ask(sender))
        };
        let asked: Vec<_> = (0..ASKED_OF_SENDER_MAX).map(|_| ask(1).unwrap()).collect();
        assert!(ask(1).is_none());
        let of_others = ASKED_OF_SENDER_MAX..ASKED_MAX;
        let mut others: Vec<_> = of_others.map(|n| ask(2 + n / 4).unwrap()).collect();
        assert!(ask(3).is_none(), "all turns are taken");
        others.pop();
        drop(ask(3).unwrap());
        drop((asked, others));
        drop(ask(1).unwrap());
        assert_eq!(turns.asked_of_sender.turns.lock().unwrap().len(), 1);
    }

    #[test]
    fn turns_of_an_address_are_bounded_and_freed() {
        let turns = Turns::default();
        let ready = |address: &str| at_once(turns.wait(address.parse().unwrap()));
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
        assert_eq!(turns.described.turns.lock().unwrap().len(), 1);
    }
}
