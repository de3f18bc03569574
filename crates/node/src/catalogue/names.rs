//! The names of renamed streams.
//!
//! Inside the node a stream has the name under which it was defined, its first name: the maps of sensors, links and
//! devices, the record of losses, the keys of the registry and everything in files use it, so a rename changes none
//! of them. Names from outside are resolved here, and answers show the current name.

use std::collections::{HashMap, VecDeque};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use chappe_stream::StreamLog;

/// The most renames that are remembered for clients that follow renamed streams.
const RENAMES_MAX: usize = 1_024;

/// The other names of streams. See the [module documentation](self).
#[derive(Default)]
pub(crate) struct Names {
    known: RwLock<Known>,
    renames: RwLock<Renames>,
}

/// The newest renames of this run.
#[derive(Default)]
struct Renames {
    /// The number of renames in this run.
    count: u64,
    newest: VecDeque<Rename>,
}

/// A rename, or the loss of a former name.
struct Rename {
    /// Counted from 1 in this run.
    number: u64,
    /// The name under which the stream was defined.
    first: String,
    /// The number of the stream's next element before it was renamed.
    next: u64,
}

/// The streams that were renamed.
#[derive(Default)]
pub(super) struct Known {
    /// The first names of streams by their other names.
    first: HashMap<String, String>,
    /// The current names of streams by their first ones, where they differ.
    current: HashMap<String, String>,
}

impl Known {
    /// The first name of the stream that has or had this other name.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.first.get(name).map(String::as_str)
    }

    /// Makes a name refer to the stream that was defined as `first`.
    pub(super) fn reserve(&mut self, name: &str, first: &str) {
        self.first.insert(name.to_owned(), first.to_owned());
    }

    /// Forgets all other names of a stream.
    pub(super) fn forget(&mut self, first: &str) {
        self.first.retain(|_, of| of != first);
        self.current.remove(first);
    }

    /// Takes over the names of a stream.
    pub(super) fn learn(&mut self, log: &StreamLog) {
        let (first, current) = (log.name(), log.current_name());
        self.forget(first);
        for name in log.names() {
            if name != first {
                self.reserve(&name, first);
            }
        }
        if current != first {
            self.current.insert(first.to_owned(), current);
        }
    }
}

impl Names {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of renames in this run.
    pub(crate) fn renames(&self) -> u64 {
        let renames = self.renames.read().unwrap_or_else(PoisonError::into_inner);
        renames.count
    }

    /// Records that the stream defined as `first` has other names from its element `next` on, or from an earlier one.
    pub(super) fn record_rename(&self, first: &str, next: u64) {
        let mut renames = self.renames.write().unwrap_or_else(PoisonError::into_inner);
        renames.count += 1;
        if renames.newest.len() == RENAMES_MAX {
            renames.newest.pop_front();
        }
        let rename = Rename {
            number: renames.count,
            first: first.to_owned(),
            next,
        };
        renames.newest.push_back(rename);
    }

    /// The number of a stream's next element at its first rename after the rename number `seen`, if that is
    /// remembered.
    pub(crate) fn renamed_from(&self, first: &str, seen: u64) -> Option<u64> {
        let renames = self.renames.read().unwrap_or_else(PoisonError::into_inner);
        let mut newest = renames.newest.iter();
        let rename = newest.find(|rename| rename.number > seen && rename.first == first)?;
        Some(rename.next)
    }

    /// The first name of the stream that has or had this name; the name itself if it is no other name of any.
    pub(crate) fn resolve(&self, name: &str) -> String {
        self.read().first(name).unwrap_or(name).to_owned()
    }

    /// The current name of the stream that has or had this name; the name itself if no stream was renamed so.
    pub(crate) fn current(&self, name: &str) -> String {
        let known = self.read();
        let first = known.first(name).unwrap_or(name);
        known
            .current
            .get(first)
            .map_or(first, String::as_str)
            .to_owned()
    }
}
