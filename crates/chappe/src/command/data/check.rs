//! `chappe data check`: what is there, what is lost, what is damaged.

use std::path::Path;

use chappe_log::Report;
use chappe_transport::FileDisk;

use super::{as_json, logs, print_streams, print_summary};
use crate::output::{self, Failure, Outcome};

/// Reads every frame of the log and of the registry's journal below `directory` and says what is
/// damaged.
pub(crate) fn check(directory: &Path, json: bool) -> Outcome {
    let mut reports = Vec::new();
    for (name, path) in logs(directory)? {
        output::progress(format_args!("reading {}", path.display()));
        reports.push((name, read(&path)?));
    }
    let healthy = reports.iter().all(|(_, report)| report.healthy());
    let (_, log) = &reports[0];
    let registry = reports.get(1).map(|(_, report)| report);
    if json {
        let mut whole = as_json(log);
        whole["healthy"] = healthy.into();
        whole["registry"] = registry.map(as_json).into();
        output::json(&whole);
    } else {
        print_streams(log);
        print_summary(log);
        if let Some(registry) = registry {
            output::line("the registry's journal:");
            print_summary(registry);
        }
        output::line(if healthy { "healthy" } else { "damaged" });
    }
    if healthy {
        return Ok(());
    }
    output::note(
        "hint: what a subscriber still has can be put back; what nobody has is given up by \
         `chappe data repair`, with the node stopped",
    );
    Err(Failure::negative())
}

fn read(log: &Path) -> Result<Report, Failure> {
    let disk = FileDisk::open_unlocked(log)?;
    Ok(chappe_log::check(&disk)?)
}
