//! Injects faults into the library's own threads: where it wakes a task that waits for an acknowledgement, while
//! it holds its lock. For tests only.

use std::sync::{Mutex, PoisonError};

use crate::Guid;

/// The injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A panic.
    Panic,
    /// The thread blocks forever and keeps its lock.
    Stall,
}

static PLANTED: Mutex<Option<(String, Fault)>> = Mutex::new(None);

/// Injects a fault at the next acknowledgement of a participant, in its library's thread.
pub fn fail_next_acknowledgement(participant: &str, fault: Fault) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    *planted = Some((participant.to_owned(), fault));
}

/// Called where the library wakes: fails once, if a fault is planted.
pub(crate) fn fail_if_planted(participant: Guid) {
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
