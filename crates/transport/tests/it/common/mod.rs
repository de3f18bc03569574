//! Unused addresses of this host.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};

/// An address of this host that nothing else uses: a released port of it is still free when it is bound again.
pub(crate) fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, high % 127 + 1, low, number)
}
