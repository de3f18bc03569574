//! `chappe bench`: measured beside peers and floors, with targets.

use chappe_bench::{Report, Settings};

use crate::cli::Bench;
use crate::output::{self, Failure, Outcome};

/// Runs a scenario; a missed target is a negative result.
pub(crate) fn run(flags: Bench, json: bool) -> Outcome {
    end_with_all_that_was_started()?;
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

/// At an interrupt the programs under test end with this one, which alone has the signal.
fn end_with_all_that_was_started() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        if runtime.block_on(super::network::interrupted()).is_ok() {
            chappe_bench::exit(130);
        }
    });
    Ok(())
}
