//! Invariants of the list of sinks that a source hands out: as a sink fetches it, and inside an event.
//!
//! On a trusted network, so that lists that a signature check would reject are read too.

use chappe_notification_tree::{Event, Membership, TrustedNetwork};

use crate::bounds::Bound;

/// The list, the list inside an event, and their copies.
const BOUND: Bound = Bound::memory(1 << 20, 200);

/// Reads bytes as both.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    if let Ok(list) = Membership::decode(data, &[0; 32], &mut TrustedNetwork) {
        let list = list.expect("whatever is signed");
        assert!(
            list.count() as usize * 39 <= data.len(),
            "more sinks than bytes"
        );
        let (signed, _) = data.split_at(data.len() - 64);
        let again = list.encode(&TrustedNetwork);
        assert_eq!(again[..again.len() - 64], *signed, "one form for each list");
    }
    if let Ok(event) = Event::decode(data) {
        assert_eq!(event.bytes(), data);
        if let Some(Ok(list)) = event.list() {
            let id = event.id();
            assert_eq!((list.topic(), list.version()), (id.topic, event.version()));
            for (number, sink) in (0..).zip(list.sinks()) {
                assert_eq!(list.number(sink), Some(number), "each stands there once");
            }
        }
    }
}
