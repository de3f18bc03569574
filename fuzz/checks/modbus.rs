//! Invariants of the answers of Modbus devices, for any bytes.

use chappe_wrappers::modbus::read_answer;

use crate::bounds::Bound;

/// A frame has at most 260 bytes, and what is sent unasked is discarded up to 4 KiB; the rest is that of a runtime.
const BOUND: Bound = Bound::memory(256 << 10, 40);

/// No panic; no waiting: the connection ends; an answer has as many registers as were asked for. The first byte says in
/// which form the frame is, and how many registers are asked for.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let Some((first, answer)) = data.split_first() else {
            return;
        };
        let count = u16::from(first >> 1).clamp(1, 125);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let reading = read_answer(first & 1 == 1, count, answer);
        if let Ok(words) = runtime.expect("a runtime").block_on(reading) {
            assert_eq!(words.len(), usize::from(count));
        }
    });
}
