//! `chappe-lab bench`: scenarios next to their peers and floors, with targets.

use std::fmt::Write as _;

use chappe_lab::{Report, SCENARIOS, Settings};
use chappe_terminal::interrupt::at_interrupt;
use chappe_terminal::output::{self, Failure, Outcome};

use crate::cli::Bench;

/// The scenarios and their parts, for the help.
pub(crate) fn help() -> String {
    let mut text = "Examples:\n  chappe-lab bench readiness --quick\n  chappe-lab bench registry --out figures --json\n  \
                    chappe-lab bench lookup --only sizes\n\nScenarios, with the parts that --only takes:\n"
        .to_owned();
    for scenario in &SCENARIOS {
        let _ = writeln!(text, "  {:<10} {}", scenario.name, scenario.what);
        let parts = (scenario.parts)();
        if !parts.is_empty() {
            let _ = writeln!(text, "  {:<10} parts: {}", "", parts.join(", "));
        }
    }
    text + "\nA target is a ratio to a peer or floor of the same run; without that it is skipped, with the reason.\nExit code 1 when a target is missed."
}

/// Runs a scenario; a missed target is a negative result.
pub(crate) fn run(flags: Bench, json: bool) -> Outcome {
    // The signal reaches only this program, which ends the programs under test.
    at_interrupt(|| chappe_lab::exit(130))?;
    let settings = Settings {
        quick: flags.quick,
        only: flags.only.clone(),
        sizes: flags.sizes.clone(),
        seed: flags.seed,
        program: flags.program.clone(),
        progress: |what| output::note(format_args!("bench: {what}")),
    };
    if let Some(folder) = &flags.out {
        output::folder(folder)?;
    }
    let report: Report = chappe_lab::run(&flags.scenario, &settings).map_err(failure)?;
    if let Some(folder) = &flags.out {
        report.write(folder)?;
        output::note(format_args!(
            "bench: results written to {}",
            folder.display()
        ));
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

/// An error of a scenario, with its hint.
fn failure(error: chappe_lab::Error) -> Failure {
    let hint = error.hint();
    Failure::from(error).hint_if(hint)
}
