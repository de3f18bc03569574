//! Pacing of reliable senders: flooding, windows and periods set by hand, NAPA as published ("NAPA:
//! An algorithm to auto-tune unicast reliable communications over DDS"), and this project's pacer,
//! which has no setting.
//!
//! | part | content |
//! |---|---|
//! | `simulation` | the product's pacers in front of a simulated bottleneck |
//! | `zeromq` | between two processes, over the sessions of links |
//! | `dds` | the same, over DDS |
//! | `ddsperf` | `chappe perf` over DDS, next to the program of Cyclone DDS |
//!
//! The last two run on plain loopback and through a bottleneck, DDS also through lossy ones; see
//! [`carriers`] for how they are judged. They want a quiet machine.
//!
//! In simulation, windows (1, 2, 4, … 1024 samples) and periods (25, evenly on a logarithmic axis
//! from half to ten times the time that a sample needs on the slowest part of the path) are the
//! settings that an expert could have chosen. Their *front* is the points that no other of them
//! beats in both throughput and median latency. A pacer's **distance** from it is the least d such
//! that with (1 + d) times its throughput and its latency divided by (1 + d) no point of the front
//! would beat it: on logarithmic axes, how far it would have to move in both to reach the front; 0
//! on it or beyond. Since a pacer that sends little also lies on the front, at its slow end, a
//! second target demands nine tenths of the front's highest throughput. Throughput counts bytes
//! delivered in order; latency is measured from the time when the pacer lets a sample be written to
//! its delivery. Each point is the median of three seeds.

mod bottleneck;
mod cable;
mod carriers;
mod ddsperf;
mod simulation;
mod unsafe_tap;

use crate::{Error, Report, Settings};

/// The scenario.
pub(crate) const NAME: &str = "napa";
/// The part that needs no network, and the one next to another program.
const SIMULATION: &str = "simulation";
const DDSPERF: &str = "ddsperf";

/// The parts: one without a network, one for each carrier, and one next to another program.
pub(crate) fn parts() -> Vec<&'static str> {
    let carriers = carriers::Carrier::ALL.iter().map(|it| it.name());
    let parts = std::iter::once(SIMULATION).chain(carriers);
    parts.chain([DDSPERF]).collect()
}

/// Runs the selected parts.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new(NAME, settings.seed);
    if let Some(size) = settings
        .sizes
        .iter()
        .find(|it| !carriers::SIZES.contains(it))
    {
        let sizes = carriers::SIZES.map(|it| it.to_string()).join(", ");
        let what = format!("{NAME} has no size {size}; its sizes of samples are {sizes}");
        return Err(Error::Failed(what));
    }
    let wanted = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    let carriers = || {
        let all = carriers::Carrier::ALL.iter();
        all.filter(|carrier| wanted(carrier.name()))
    };
    let mut settings = settings.clone();
    if carriers().next().is_some() || wanted(DDSPERF) {
        // Before the simulation, whose results a missing program would lose.
        settings.program = Some(settings.chappe()?);
    }
    if wanted(SIMULATION) {
        simulation::fronts(&settings, &mut report);
        simulation::events(&settings, &mut report);
        simulation::receivers(&settings, &mut report);
        simulation::period(&settings, &mut report);
    }
    for carrier in carriers() {
        carriers::run(*carrier, &settings, &mut report)?;
    }
    if wanted(DDSPERF)
        && let Err(error) = ddsperf::run(&settings, &mut report)
    {
        report.failed(DDSPERF, &error);
    }
    Ok(report)
}
