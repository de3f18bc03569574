//! Invariants of the compact message of an event, which any member of a tree could send.

use chappe_dpws::eventing::CompactCodec;

use crate::bounds::Bound;

/// The tree is that of a datagram, 1 MiB at most, twice while its vectors grow and once more when it is
/// read again; the rest is the codec's grammars and tables.
const BOUND: Bound = Bound::memory(4 << 20, 100);

/// Reads bytes as one; what can be read can be written, and that is read and written as the same.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut codec = CompactCodec::default();
    let Ok(message) = codec.decode(data) else {
        return;
    };
    let bytes = codec
        .encode(&message)
        .expect("what was read can be written");
    // Not the same as the first: an empty text is no text when it is written.
    let again = codec.decode(&bytes).expect("what was written can be read");
    assert_eq!(codec.encode(&again).as_ref(), Ok(&bytes), "{message:?}");
}
