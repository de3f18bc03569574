//! Notification trees compared with plain notification: the figures 6 to 9 of "An Optimized
//! WS-Eventing for Large-Scale Networks" (time until the last sink has the event, by the number of
//! sinks), and more.
//!
//! All times are in units of `o`, the time a node needs for one send; `o` and `L` (the latency) are
//! printed too, which allows a comparison with other machines. The peers are plans of the same
//! machine: sequential with and without waiting for responses (WS-Eventing), two halves (the
//! paper's).
//!
//! - `--only simulated`: plans compared, 1 to 18 sinks and up to 100,000, without failures
//! - `--only million`: 1,000,000 sinks
//! - `--only failures`: dead sinks, loss
//! - `--only sources`: several sources at once, with and without a pacer
//! - `--only mixed`: runs of mixed faults, judged
//! - `--only emulated`: real sockets on loopback, a link emulator in user space
//! - `--only emulated-dead`: the same with dead sinks
//! - `--only security`: the cost of signatures, tags, receipts and windows on disk, and an event at nine nodes with and
//!   without them

mod emulated;
mod fit;
mod machine;
mod security;
mod simulated;

use crate::{Error, Report, Settings};

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("notify", settings.seed);
    let wanted = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    if wanted("simulated") {
        simulated::plans(settings, &mut report)?;
    }
    if wanted("million") {
        match settings.quick && settings.only.is_empty() {
            true => report.skipped.push("million: a quick run".to_owned()),
            false => simulated::million(settings, &mut report)?,
        }
    }
    if wanted("failures") {
        simulated::failures(settings, &mut report)?;
        simulated::plans_with_failures(settings, &mut report)?;
    }
    if wanted("sources") {
        simulated::sources(settings, &mut report)?;
    }
    if wanted("mixed") {
        simulated::mixed(settings, &mut report);
    }
    if wanted("security") {
        security::run(settings, &mut report)?;
    }
    if wanted("emulated") {
        emulated::run(settings, &mut report)?;
    }
    if wanted("emulated-dead") {
        emulated::dead(settings, &mut report)?;
    }
    Ok(report)
}
