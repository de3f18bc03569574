//! `chappe data check`: reports damage and missing records.

use std::path::Path;

use chappe_log::Report;
use chappe_transport::FileDisk;

use super::{as_json, logs, print_streams, print_summary};
use crate::output::{self, Failure, Outcome};

/// Reads every frame of the log and the registry's journal below `directory`, and reports damage.
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
        "hint: if a subscriber or another node still has the missing records, start the node and let it \
         fetch them; to give them up, stop the node and run: chappe data repair DIR",
    );
    Err(Failure::negative())
}

fn read(log: &Path) -> Result<Report, Failure> {
    let disk = FileDisk::open_unlocked(log)?;
    Ok(chappe_log::check(&disk)?)
}
