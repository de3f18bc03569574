//! Addresses of this host that nothing else uses.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address of this host that nothing else uses: a port of it that was given back is still free when
/// it is taken again.
pub(crate) fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU32 = AtomicU32::new(1);
    // Each process has 4,096 addresses from 127.1.0.0 on.
    let process = std::process::id() & 0x7FF;
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    assert!(number < 1 << 12, "this process has used all its addresses");
    Ipv4Addr::from_bits(0x7F01_0000 + (process << 12 | number))
}
