//! `chappe bench napa`: pacers beside each other, as in the figures of "NAPA: An algorithm to auto-tune
//! unicast reliable communications over DDS".
//!
//! | part | what |
//! |---|---|
//! | `zeromq` | between two processes, over the sessions of links |
//! | `dds` | the same, over DDS |
//!
//! Both on plain loopback and through a narrow place. They are reported, not judged: on a machine
//! that others use too they say what was possible then.

mod bottleneck;
mod loopback;
mod scatter;

use crate::{Error, Report, Settings};

/// Runs the parts that are wanted.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("napa", settings.seed);
    for carrier in [loopback::Carrier::Zeromq, loopback::Carrier::Dds] {
        let wanted = |part: &String| part == carrier.name();
        if settings.only.is_empty() || settings.only.iter().any(wanted) {
            loopback::run(carrier, settings, &mut report)?;
        }
    }
    Ok(report)
}
