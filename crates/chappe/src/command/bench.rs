//! `chappe bench`: measured beside peers and floors, with targets.

use std::fmt::Write as _;

use chappe_bench::{Report, SCENARIOS, Settings};

use crate::cli::Bench;
use crate::output::{self, Failure, Outcome};

/// What the scenarios are, and their parts, for the help.
pub(crate) fn help() -> String {
    let mut text = "Examples:\n  chappe bench readiness --quick\n  chappe bench registry --out figures --json\n  \
                    chappe bench lookup --only sizes\n\nScenarios, with the parts that --only takes:\n"
        .to_owned();
    for scenario in &SCENARIOS {
        let _ = writeln!(text, "  {:<10} {}", scenario.name, scenario.what);
        let parts = (scenario.parts)();
        if !parts.is_empty() {
            let _ = writeln!(text, "  {:<10} parts: {}", "", parts.join(", "));
        }
    }
    text + "\nExit code 1 when a target is missed."
}

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
    if let Some(folder) = &flags.out {
        output::folder(folder)?;
    }
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
