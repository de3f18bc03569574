//! Panics on purpose in the library's own threads: where it wakes whoever waits for an
//! acknowledgement, under its lock. For tests only.

use std::sync::{Mutex, PoisonError};

use crate::Guid;

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The next acknowledgement of a participant panics in its library's thread.
pub fn panic_at_the_next_acknowledgement_of(participant: &str) {
    *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(participant.to_owned());
}

/// Called where the library wakes: panics once, if it was asked for.
pub(crate) fn in_the_library(participant: Guid) {
    let thread = std::thread::current();
    if !thread
        .name()
        .is_some_and(|name| name.starts_with("RustDDS"))
    {
        return;
    }
    let mut planted = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
    if planted.as_deref() == Some(&participant.to_string()) {
        *planted = None;
        drop(planted);
        panic!("planted");
    }
}
