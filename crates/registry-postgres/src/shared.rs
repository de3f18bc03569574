//! What the journal's callers and the thread of the connection share.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use chappe_registry::JournalError;
use tokio::sync::{Notify, oneshot};

/// Records in memory for the registries of this process to follow.
const RING_RECORDS: usize = 1_024;
/// Their bytes.
const RING_BYTES: usize = 16 << 20;

/// Records that wait to be appended.
pub(crate) struct Append {
    pub(crate) expected: u64,
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) done: oneshot::Sender<Result<(), JournalError>>,
}

impl Append {
    pub(crate) fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }
}

/// A command that its caller waits for.
pub(crate) enum Command {
    /// Whether this session may write a snapshot.
    Lock(std::sync::mpsc::Sender<Result<bool, JournalError>>),
    /// The snapshot is written, or given up.
    Unlock,
    /// A snapshot starts here.
    Snapshot(u64, std::sync::mpsc::Sender<Result<bool, JournalError>>),
}

#[derive(Default)]
pub(crate) struct State {
    /// The last position of the store, as far as it is known.
    pub(crate) known: u64,
    /// The last position given to an append.
    pub(crate) assigned: u64,
    /// How often appends in flight were refused together.
    pub(crate) conflicts: u64,
    pub(crate) snapshot: u64,
    /// Records without a gap.
    ring: VecDeque<(u64, Vec<u8>)>,
    ring_bytes: usize,
    pub(crate) queue: VecDeque<Append>,
    pub(crate) commands: VecDeque<Command>,
    /// The position that a reader waits for.
    pub(crate) wanted: Option<u64>,
    /// Records before this position are removed.
    pub(crate) first: u64,
    /// The reason why there is no connection.
    pub(crate) outage: Option<String>,
    /// Counts what followers should look at.
    pub(crate) arrivals: u64,
    pub(crate) is_closed: bool,
}

impl State {
    /// Records from `from` on, if they are in memory.
    pub(crate) fn in_memory(&self, from: u64, max: usize) -> Option<Vec<(u64, Vec<u8>)>> {
        let first = self.ring.front()?.0;
        let skip = usize::try_from(from.checked_sub(first)?).ok()?;
        // Records are read after the end that is known, so there may be more of them. A registry that took those would
        // be ahead of the end at which it may append.
        let known = |(position, _): &&(u64, Vec<u8>)| *position <= self.known;
        let from = self.ring.iter().skip(skip).take(max).take_while(known);
        (skip < self.ring.len()).then(|| from.cloned().collect())
    }

    /// Keeps a record that follows those in memory.
    pub(crate) fn remember(&mut self, position: u64, record: Vec<u8>) {
        match self.ring.back() {
            Some((last, _)) if *last + 1 != position => return,
            _ => {}
        }
        self.ring_bytes += record.len();
        self.ring.push_back((position, record));
        while self.ring.len() > RING_RECORDS || self.ring_bytes > RING_BYTES {
            let Some((_, oldest)) = self.ring.pop_front() else {
                break;
            };
            self.ring_bytes -= oldest.len();
        }
    }

    /// Keeps only these records.
    pub(crate) fn replace(&mut self, records: Vec<(u64, Vec<u8>)>) {
        self.ring_bytes = records.iter().map(|(_, record)| record.len()).sum();
        self.ring = records.into();
    }

    /// The position after the last record in memory.
    pub(crate) fn next_in_memory(&self) -> Option<u64> {
        self.ring.back().map(|(last, _)| last + 1)
    }

    /// Refuses what waits to be appended; what follows is counted from the known end.
    pub(crate) fn refuse_all(&mut self) -> Vec<Append> {
        self.conflicts += 1;
        self.arrivals += 1;
        self.assigned = self.known;
        self.queue.drain(..).collect()
    }
}

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Signalled when the state changed, for threads that wait.
    pub(crate) changed: Condvar,
    /// Wakes the thread of the connection.
    pub(crate) wake: Notify,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the threads that wait for it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A registry that was ahead of the known end could append nothing until the next look at the store.
    #[test]
    fn records_after_the_known_end_are_not_followed() {
        let mut state = State {
            known: 2,
            ..State::default()
        };
        for position in 1..=4 {
            state.remember(position, vec![0]);
        }
        let positions = |state: &State, from| {
            let records = state.in_memory(from, 10).unwrap();
            records
                .into_iter()
                .map(|(position, _)| position)
                .collect::<Vec<_>>()
        };
        assert_eq!(positions(&state, 1), [1, 2]);
        state.known = 4;
        assert_eq!(positions(&state, 3), [3, 4]);
    }
}
