//! Panics on purpose in the library's own threads: where it wakes whoever waits for an
//! acknowledgement, under its lock. For tests only.

use std::sync::atomic::{AtomicBool, Ordering};

static PANIC: AtomicBool = AtomicBool::new(false);

/// The next acknowledgement panics in the library's thread.
pub fn panic_at_the_next_acknowledgement() {
    PANIC.store(true, Ordering::SeqCst);
}

/// Called where the library wakes: panics once, if it was asked for.
pub(crate) fn in_the_library() {
    let thread = std::thread::current();
    let of_the_library = thread
        .name()
        .is_some_and(|name| name.starts_with("RustDDS"));
    if of_the_library && PANIC.swap(false, Ordering::SeqCst) {
        panic!("planted");
    }
}
