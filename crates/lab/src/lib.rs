//! Benchmark scenarios, each next to its peers and floors.
//!
//! `chappe-lab bench SCENARIO` runs one. It prints its figures as rows and ends with its targets. Every
//! target is a ratio to a peer or a floor of the same run ([`Target`]), so it holds on any machine; absolute
//! figures are printed and not judged. A peer that is not installed is named as skipped, and so is each
//! target that needs it. Nothing here is a timed test.

#![deny(unsafe_code)]

mod checkout;
mod device;
mod exchange;
mod exi;
mod floor;
mod history;
mod lookup;
mod machine;
mod memory_group;
mod napa;
mod notify;
mod pinned;
mod process;
mod program;
mod query;
mod readiness;
mod registry;
mod report;
mod streams;
mod target;
mod timing;
mod write;

pub mod plot;

pub use machine::Machine;
pub use process::exit;
pub use report::{Report, Row};
pub use target::{Limit, Reference, Target, Verdict};

use std::time::Duration;

/// How a scenario is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Fewer repeats.
    pub quick: bool,
    /// Only these parts of a scenario; none: all.
    pub only: Vec<String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The program `chappe` for scenarios that run it as a process; `None`: the release build of the
    /// checkout, or the one in the folder of this program.
    pub program: Option<std::path::PathBuf>,
    /// Called with each step, for a line of progress.
    pub progress: fn(&str),
}

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What is measured, in a line.
    pub what: &'static str,
    /// The parts that can be run alone; none: all of it is one.
    pub parts: fn() -> Vec<&'static str>,
    run: fn(&Settings) -> Result<Report, Error>,
}

const fn scenario(
    name: &'static str,
    what: &'static str,
    parts: fn() -> Vec<&'static str>,
    run: fn(&Settings) -> Result<Report, Error>,
) -> Scenario {
    Scenario {
        name,
        what,
        parts,
        run,
    }
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 12] = [
    scenario(
        "readiness",
        "from a search to a description, from a device to its first element",
        Vec::new,
        readiness::run,
    ),
    scenario(
        "device",
        "size and memory of a small device (in a checkout, which it is built from)",
        Vec::new,
        device::run,
    ),
    scenario(
        "registry",
        "100,000 services in memory",
        Vec::new,
        registry::run,
    ),
    scenario(
        "streams",
        "creating, restarting and binding with 100,000 streams; opening a log of 1,600 segments",
        Vec::new,
        streams::run,
    ),
    scenario(
        "exchange",
        "24 nodes that all subscribe to all, next to GSN, mosquitto and NATS JetStream",
        exchange::parts,
        exchange::run,
    ),
    scenario(
        "query",
        "a virtual sensor from log to log, compiled and by SQLite",
        Vec::new,
        query::run,
    ),
    scenario(
        "write",
        "elements that clients write over HTTP, next to the log's group commit and PostgreSQL",
        Vec::new,
        write::run,
    ),
    scenario(
        "history",
        "SQL over 100,000 to 100 million stored elements, next to a scan of the log",
        history::parts,
        history::run,
    ),
    scenario(
        "notify",
        "notification trees: plans side by side, dead sinks, loss, emulated links",
        || {
            vec![
                "simulated",
                "million",
                "failures",
                "sources",
                "mixed",
                "security",
                "emulated",
                "emulated-dead",
            ]
        },
        notify::run,
    ),
    scenario(
        "exi",
        "encoding and decoding next to EXIficient, parsing of the text and gzip",
        Vec::new,
        exi::run,
    ),
    scenario(
        "lookup",
        "results and costs of searches in a Kademlia network, next to a multicast probe",
        || lookup::PARTS.to_vec(),
        lookup::run,
    ),
    scenario(
        "napa",
        "pacers next to the front of fixed windows and periods, between two processes",
        napa::parts,
        napa::run,
    ),
];

/// Runs a scenario. It takes from seconds to some minutes, and the thread that calls.
///
/// # Errors
/// When there is no such scenario or part, or it could not be run. A target that is missed is no error.
pub fn run(scenario: &str, settings: &Settings) -> Result<Report, Error> {
    let Some(wanted) = SCENARIOS.iter().find(|it| it.name == scenario) else {
        let names = SCENARIOS.map(|it| it.name).join(", ");
        let what = format!("there is no scenario {scenario}; there are {names}");
        return Err(Error::Failed(what));
    };
    let parts = (wanted.parts)();
    let mut only = settings.only.iter();
    match only.find(|part| !parts.contains(&part.as_str())) {
        None => (wanted.run)(settings),
        Some(part) => {
            let but = match parts.as_slice() {
                [] => "it is measured as a whole".to_owned(),
                parts => format!("only {}", parts.join(", ")),
            };
            let what = format!("{scenario} has no part {part:?}, {but}");
            Err(Error::Failed(what))
        }
    }
}

/// Runs a process of a scenario, which starts this program again for it.
///
/// # Errors
/// When it cannot play its role; the scenario gets the error, too.
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
        /// Its error.
        source: std::io::Error,
    },
    /// Something under test did not do its part.
    #[error("{0}")]
    Failed(String),
    /// The program under test is not there.
    #[error("there is no program {}", path.display())]
    NoProgram {
        /// The path at which it was expected.
        path: std::path::PathBuf,
    },
}

impl Error {
    /// The remedy, when it is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoProgram { .. } => {
                Some("run it in a checkout, which is built, or name a program with --program")
            }
            _ => None,
        }
    }

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

/// The percentile of samples in any order; zero of none.
fn percentile(samples: &mut [Duration], percent: f64) -> Duration {
    samples.sort_unstable();
    chappe_sim::percentile(samples, percent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_there_is_refused_by_every_scenario() {
        for scenario in SCENARIOS {
            let settings = Settings {
                quick: true,
                only: vec!["nonsense".to_owned()],
                seed: 1,
                program: None,
                progress: |_| {},
            };
            let refused = run(scenario.name, &settings).unwrap_err().to_string();
            assert!(refused.contains("\"nonsense\""), "{refused}");
            for part in (scenario.parts)() {
                assert!(refused.contains(part), "{refused}");
            }
        }
    }
}
