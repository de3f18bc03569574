//! Fails on purpose in the library's own threads: where it wakes whoever waits for an acknowledgement,
//! under its lock. For tests only.

use std::sync::{Mutex, PoisonError};

use crate::Guid;

/// How the library fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A panic.
    Panic,
    /// The thread never comes back, and keeps its lock.
    Stall,
}

static PLANTED: Mutex<Option<(String, Fault)>> = Mutex::new(None);

/// The next acknowledgement of a participant fails in its library's thread.
pub fn at_the_next_acknowledgement_of(participant: &str, fault: Fault) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    *planted = Some((participant.to_owned(), fault));
}

/// Called where the library wakes: fails once, if it was asked for.
pub(crate) fn in_the_library(participant: Guid) {
    let thread = std::thread::current();
    if !thread
        .name()
        .is_some_and(|name| name.starts_with("RustDDS"))
    {
        return;
    }
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    let here = participant.to_string();
    let Some((_, fault)) = planted.take_if(|(of, _)| *of == here) else {
        return;
    };
    drop(planted);
    match fault {
        Fault::Panic => panic!("planted"),
        Fault::Stall => loop {
            std::thread::park();
        },
    }
}
