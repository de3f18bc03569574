//! Benchmark scenarios, each with its peers and floors.
//!
//! `chappe-lab bench SCENARIO` runs one. It prints its figures as rows and ends with its targets.
//! Each target is a ratio to a peer or a floor of the same run ([`Target`]), so it holds on any
//! machine; absolute figures are printed but not judged. A peer that is not installed is reported
//! as skipped, as is each target that needs it. No test depends on timing.

#![deny(unsafe_code)]

mod checkout;
mod device;
mod exchange;
mod exi;
mod floor;
mod history;
mod invoke;
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
mod sensorthings;
mod streams;
mod target;
mod timing;
mod wrappers;
mod write;

pub mod plot;

pub use machine::Machine;
pub use process::exit;
pub use report::{Report, Row};
pub use target::{Limit, Reference, Target, Verdict};

use std::time::Duration;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Fewer repeats.
    pub quick: bool,
    /// Runs only these parts of a scenario; empty: all.
    pub only: Vec<String>,
    /// Runs `napa` between two processes with samples of these bytes only; empty: all of its sizes.
    pub sizes: Vec<usize>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The program `chappe` for scenarios that run it as a process; `None`: the release build of
    /// the checkout, or the one in the folder of this program.
    pub program: Option<std::path::PathBuf>,
    /// Called with each step, for a line of progress.
    pub progress: fn(&str),
}

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The measured property, in one line.
    pub what: &'static str,
    /// The parts that can be run separately; empty: the scenario has no parts.
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
pub const SCENARIOS: [Scenario; 15] = [
    scenario(
        "readiness",
        "from a search to a description, from a device to its first element",
        Vec::new,
        readiness::run,
    ),
    scenario(
        "invoke",
        "calls of a device's operations next to gSOAP, zeep and sdc11073, raw TCP and bare HTTP",
        || invoke::PARTS.to_vec(),
        invoke::run,
    ),
    scenario(
        "device",
        "size and memory of a small device (built from the checkout)",
        Vec::new,
        device::run,
    ),
    scenario(
        "registry",
        "100,000 services in memory; 20,000 streams under one and under 10,000 access rules",
        || registry::PARTS.to_vec(),
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
        "wrappers",
        "lines of programs and files that become stored elements on one processor; dead exporters",
        || wrappers::PARTS.to_vec(),
        wrappers::run,
    ),
    scenario(
        "history",
        "SQL over 100,000 to 100 million stored elements, next to a scan of the log",
        history::parts,
        history::run,
    ),
    scenario(
        "sensorthings",
        "pages of 100,000 and of 10 million observations",
        Vec::new,
        sensorthings::run,
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
        napa::NAME,
        "pacers next to the front of fixed windows and periods, between two processes",
        napa::parts,
        napa::run,
    ),
];

/// Runs a scenario on the calling thread. Takes from seconds to some minutes.
///
/// # Errors
/// The scenario or part does not exist, or it could not be run. A missed target is not an error.
pub fn run(scenario: &str, settings: &Settings) -> Result<Report, Error> {
    let Some(wanted) = SCENARIOS.iter().find(|it| it.name == scenario) else {
        let names = SCENARIOS.map(|it| it.name).join(", ");
        let what = format!("unknown scenario {scenario}; the scenarios are {names}");
        return Err(Error::Failed(what));
    };
    if !settings.sizes.is_empty() && scenario != napa::NAME {
        let what = format!("{scenario} has no sizes of samples, only {}", napa::NAME);
        return Err(Error::Failed(what));
    }
    let parts = (wanted.parts)();
    let mut only = settings.only.iter();
    match only.find(|part| !parts.contains(&part.as_str())) {
        None => (wanted.run)(settings),
        Some(part) => {
            let but = match parts.as_slice() {
                [] => "it has no parts".to_owned(),
                parts => format!("only {}", parts.join(", ")),
            };
            let what = format!("{scenario} has no part {part:?}, {but}");
            Err(Error::Failed(what))
        }
    }
}

/// Runs a process of a scenario; the scenario starts this program again for it.
///
/// # Errors
/// The process fails; the scenario receives the error too.
pub fn process(arguments: &[std::ffi::OsString]) -> Result<(), Error> {
    match arguments.split_first() {
        Some((role, rest)) if role == invoke::process::ROLE => invoke::process::run(rest),
        _ => exchange::process(arguments),
    }
}

/// The reason why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}")]
    Io {
        /// The operation that failed.
        what: String,
        /// Its error.
        source: std::io::Error,
    },
    /// Something under test did not do its part.
    #[error("{0}")]
    Failed(String),
    /// The program under test is not there.
    #[error("program {} does not exist", path.display())]
    NoProgram {
        /// The path at which it was expected.
        path: std::path::PathBuf,
    },
}

impl Error {
    /// The remedy, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoProgram { .. } => {
                Some("run it in a checkout, or name a program with --program")
            }
            _ => None,
        }
    }

    /// An error of the operating system during `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// A failure during `what`.
    fn failed<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

/// The percentile of samples in any order; zero if there are none.
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
                sizes: Vec::new(),
                seed: 1,
                program: None,
                progress: |_| {},
            };
            let refused = run(scenario.name, &settings).unwrap_err().to_string();
            assert!(refused.contains("\"nonsense\""), "{refused}");
            for part in (scenario.parts)() {
                assert!(refused.contains(part), "{refused}");
            }
            let of_size = Settings {
                only: Vec::new(),
                sizes: vec![7],
                ..settings
            };
            let refused = run(scenario.name, &of_size).unwrap_err().to_string();
            assert!(refused.contains("sizes of samples"), "{refused}");
        }
    }
}
