//! Captures of any bytes: an error or messages, within bounded memory.

use chappe_device::capture::{Capture, Conversations, Message};

use crate::bounds::Bound;

/// A packet is copied, waits in its direction, and is parsed as HTTP; a message is a copy of its bytes, and gzip gives
/// 4 MiB at most for one of them. 4,096 streams of some hundred bytes each.
const BOUND: Bound = Bound::memory(12 << 20, 100);

/// No panic; messages have no more bytes than the limits allow.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let Ok(mut capture) = Capture::open(data) else {
            return;
        };
        let mut conversations = Conversations::new();
        let bounded = |message: Message| {
            let bytes = message.body.len();
            assert!(bytes <= 4 << 20, "{bytes} bytes");
        };
        while let Ok(Some(frame)) = capture.next_frame() {
            conversations.take(&frame, bounded);
        }
        assert!(
            conversations.bytes() <= data.len(),
            "more is remembered than came"
        );
        conversations.end(bounded);
    });
}
