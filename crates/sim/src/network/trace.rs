//! The last events, kept while a run continues and printed when it fails.

use std::collections::VecDeque;
use std::fmt;

use chappe_machine::Instant;

use super::Node;

/// Default number of notes: some seconds of a busy run, 200 kB.
pub const TRACE_NOTES: usize = 4_096;

/// An event. Small and without its own text, so that noting costs next to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When.
    pub at: Instant,
    /// At which node.
    pub node: Node,
    /// The event.
    pub what: &'static str,
    /// Numbers whose meaning `what` names.
    pub numbers: [u64; 3],
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.as_nanos() as f64 / 1e9;
        let [a, b, c] = self.numbers;
        write!(
            f,
            "{seconds:>14.6} s  node {:<4} {} {a} {b} {c}",
            self.node.0, self.what
        )
    }
}

/// The last notes.
#[derive(Clone, Debug)]
pub struct Trace {
    notes: VecDeque<Note>,
    limit: usize,
    noted: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Self::new(TRACE_NOTES)
    }
}

impl Trace {
    /// A trace of this many notes; 0 keeps none.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            notes: VecDeque::new(),
            limit,
            noted: 0,
        }
    }

    /// Adds a note.
    pub fn note(&mut self, note: Note) {
        self.noted += 1;
        if self.limit == 0 {
            return;
        }
        if self.notes.len() == self.limit {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    /// The notes that are still there, oldest first.
    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter()
    }

    /// The total number of notes.
    #[must_use]
    pub fn noted(&self) -> u64 {
        self.noted
    }
}
