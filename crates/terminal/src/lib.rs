//! The terminal of the programs `chappe` and `chappe-lab`.
//!
//! Results are printed to standard output, everything else to standard error ([`output`]). Exit codes: 0 for success; 1
//! for a negative result (nothing found, a check failed, a target missed); 2 for an error, with a `hint:` if a remedy
//! is known. Out of scope: the verbs and flags of a program.

#![forbid(unsafe_code)]

pub mod interrupt;
pub mod output;
mod quantity;

pub use quantity::{bytes_per_s, counted, duration, measured};

use std::process::ExitCode;

use output::{Failure, Outcome};

/// Prints why a command failed, and returns the exit code of the program.
#[must_use]
pub fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                output::note(format_args!("error: {}", failure.message));
            }
            if let Some(hint) = failure.hint {
                output::note(format_args!("hint: {hint}"));
            }
            if failure.error_code != Failure::GENERAL && !failure.message.is_empty() {
                output::note(format_args!("more: chappe explain {}", failure.error_code));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Writes logs to standard error; `CHAPPE_LOG` has the syntax of `tracing`'s filters.
pub fn logging(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("CHAPPE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour_of(&std::io::stderr()))
        // It would report a standard error that takes nothing there, and end the task that logs.
        .log_internal_errors(false)
        .init();
}
