//! The exchange between nodes under every fault for so many simulated hours, judged: `chappe-lab sim exchange`
//! for long runs, without building the whole program.
//!
//! `cargo run --release -p chappe-sim --example exchange -- [hours] [first seed] [threads]`
//!
//! A run that breaks a promise is played again in the end, and its last steps are printed; then how often
//! each fault took effect. The last line says what there was; the exit code is 1 when a promise was
//! broken.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chappe_sim::exchange::{RUNS_FOR_EVERYTHING, Series, Settings, run, series};
use chappe_sim::network::TRACE_NOTES;

/// The time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

fn argument<T: std::str::FromStr>(nth: usize, default: T) -> T {
    let given = std::env::args().nth(nth);
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn line(series: &Series, began: Instant) -> String {
    let seconds = began.elapsed().as_secs_f64();
    format!(
        "{:.0} hours, {} runs, {} elements accepted, {} said to be lost, {} runs with violations, \
         {seconds:.0} s, {:.1} hours a second",
        series.hours,
        series.runs,
        series.accepted,
        series.lost,
        series.failures,
        series.hours / seconds
    )
}

/// Says what was wrong with a run, and what came before it.
fn failed(seed: u64) {
    let report = run(&Settings {
        trace_notes: TRACE_NOTES,
        ..Settings::new(seed)
    });
    report.trace.notes().for_each(|note| println!("{note}"));
    for violation in &report.violations {
        println!("seed {seed}: {violation}");
    }
}

fn main() -> ExitCode {
    let (hours, first, threads) = (argument(1, 200.0), argument(2, 1), argument(3, 1));
    let began = Instant::now();
    let state = Mutex::new((began, 0));
    let series = series(&Settings::new(first), u64::MAX, threads, |series| {
        let mut state = state.lock().expect("no thread panics while it has it");
        let (said, failures) = &mut *state;
        if series.failures > *failures {
            *failures = series.failures;
            let seeds: Vec<u64> = series.failed.iter().map(|report| report.seed).collect();
            println!("failed so far: {seeds:?}");
        }
        if said.elapsed() >= EVERY {
            *said = Instant::now();
            println!("{}", line(series, began));
        }
        series.hours < hours
    });
    for report in &series.failed {
        failed(report.seed);
    }
    if series.runs >= RUNS_FOR_EVERYTHING {
        for never in series.never() {
            println!("never happened: {never}");
        }
    }
    for (what, count) in series.sometimes.entries() {
        println!("{count:>12} {what}");
    }
    println!("seeds from {first} on: {}", line(&series, began));
    ExitCode::from(u8::from(series.failures > 0))
}
