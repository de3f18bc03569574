//! One file a verb.

pub(crate) mod bench;
pub(crate) mod sim;
mod sim_lookup;
mod sim_tree;

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chappe_terminal::output;

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(1);

/// Prints progress of long work now and then.
struct Ticker(Mutex<Instant>);

impl Ticker {
    fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Prints a line unless the last one is too recent.
    fn tick<T: Display>(&self, line: impl FnOnce() -> T) {
        let mut printed_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if printed_at.elapsed() > EVERY {
            *printed_at = Instant::now();
            output::progress(format_args!("sim: {}", line()));
        }
    }
}
