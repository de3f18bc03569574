//! Injects faults into the threads of a participant: a panic of the thread that calls the library, or a thread of the
//! library that stops or aborts where it has received an acknowledgement, while it holds the writer's lock. For tests only.

use std::sync::{Mutex, PoisonError};

#[cfg(cyclone)]
use crate::Guid;

/// The injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The thread that calls the library panics.
    Panic,
    /// The library's thread blocks forever and keeps its lock.
    Stall,
    /// The library runs out of memory in its own thread, and calls `abort`.
    Abort,
}

static PLANTED: Mutex<Option<(String, Fault)>> = Mutex::new(None);

/// Injects a fault at the next acknowledgement of a participant.
pub fn fail_next_acknowledgement(participant: &str, fault: Fault) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    *planted = Some((participant.to_owned(), fault));
}

/// Called where this fault can happen: fails once, if it is planted.
#[cfg(cyclone)]
pub(crate) fn fail_if_planted(participant: Guid, here: Fault) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    let participant = participant.to_string();
    let found = planted.take_if(|(of, fault)| *of == participant && *fault == here);
    drop(planted);
    match found {
        None => {}
        Some((_, Fault::Panic)) => panic!("planted"),
        Some((_, Fault::Stall)) => loop {
            std::thread::park();
        },
        Some((_, Fault::Abort)) => crate::unsafe_cyclone::abort_in_library(),
    }
}
