//! Benchmark scenarios beside their peers and floors.
//!
//! A scenario is run as `chappe bench SCENARIO`. It prints its rows and ends with its targets; a peer
//! that is not installed is skipped by name, and the floor (a raw socket, an fdatasync) is a row of
//! the same run. Nothing here is a timed test.

#![deny(unsafe_code)]

mod checkout;
mod device;
mod exchange;
mod exi;
mod floor;
mod lookup;
mod machine;
mod memory_group;
mod napa;
mod notify;
pub mod perf;
mod pinned;
mod process;
mod query;
mod readiness;
mod registry;
mod report;

pub use machine::Machine;
pub use process::exit;
pub use report::{Bound, Report, Row, Target};

use std::time::Duration;

/// How a scenario is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Fewer repeats.
    pub quick: bool,
    /// Only these parts of a scenario; none: all.
    pub only: Vec<String>,
    /// Where choices come from.
    pub seed: u64,
    /// The program under test, for scenarios that run it as a process.
    pub program: std::path::PathBuf,
    /// Takes what is being done, for whoever waits.
    pub progress: fn(&str),
}

/// The scenarios by name.
pub const SCENARIOS: [&str; 9] = [
    "readiness",
    "device",
    "registry",
    "exchange",
    "query",
    "notify",
    "exi",
    "lookup",
    "napa",
];

/// Runs a scenario. It takes from seconds to some minutes, and the thread that calls.
///
/// # Errors
/// When there is no such scenario, or it could not be run. A target that is missed is no error.
pub fn run(scenario: &str, settings: &Settings) -> Result<Report, Error> {
    match scenario {
        "readiness" => readiness::run(settings),
        "device" => device::run(settings),
        "registry" => registry::run(settings),
        "exchange" => exchange::run(settings),
        "query" => query::run(settings),
        "lookup" => lookup::run(settings),
        "napa" => napa::run(settings),
        "notify" => notify::run(settings),
        "exi" => exi::run(settings),
        _ => Err(Error::Failed(format!(
            "there is no scenario {scenario}, but {}",
            SCENARIOS.join(", ")
        ))),
    }
}

/// Is a process of a scenario: what [`Settings::program`] does when the scenario starts it.
///
/// # Errors
/// What keeps it from its part; the scenario is told.
pub fn process(arguments: &[std::ffi::OsString]) -> Result<(), Error> {
    exchange::process(arguments)
}

/// Why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
    /// Something under test did not do its part.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An error of the operating system while doing `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Something that should have worked while doing `what`.
    fn failed<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

/// The value below which `percent` of the samples lie, by the nearest-rank method.
#[must_use]
pub fn percentile(samples: &mut [Duration], percent: f64) -> Duration {
    samples.sort_unstable();
    let rank = (percent / 100.0 * samples.len() as f64).ceil() as usize;
    samples
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut samples: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut samples, 50.0), Duration::from_millis(50));
        assert_eq!(percentile(&mut samples, 99.0), Duration::from_millis(99));
        assert_eq!(percentile(&mut samples, 100.0), Duration::from_millis(100));
        assert_eq!(percentile(&mut [], 50.0), Duration::ZERO);
    }
}
