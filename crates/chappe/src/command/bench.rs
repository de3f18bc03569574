//! `chappe bench`: measured beside peers and floors, with targets.

use chappe_bench::{Report, Settings};

use crate::cli::Bench;
use crate::output::{self, Failure, Outcome};

/// Runs a scenario; a missed target is a negative result.
pub(crate) fn run(flags: Bench, json: bool) -> Outcome {
    let settings = Settings {
        quick: flags.quick,
        only: flags.only.clone(),
        seed: flags.seed,
        program: std::env::current_exe()?,
        progress: |what| output::note(format_args!("bench: {what}")),
    };
    let report: Report = chappe_bench::run(&flags.scenario, &settings)?;
    if let Some(folder) = &flags.out {
        report.write(folder)?;
        output::note(format_args!("bench: written below {}", folder.display()));
    }
    if json {
        output::json(&report);
    } else {
        output::line(report.to_string().trim_end());
    }
    if report.met() {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}
