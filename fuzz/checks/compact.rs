//! What must hold of the compact message of an event, which any member of a tree could send.

use chappe_dpws::eventing::CompactCodec;

/// Reads bytes as one; what can be read can be written, and that is read and written as the same.
pub fn check(data: &[u8]) {
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
