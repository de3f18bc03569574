//! Runs seeds of the exchange and prints what came of them: the speed of the simulation, what
//! happened how often, and what was wrong.
//!
//! `cargo run --release -p chappe-sim --example exchange -- [first seed] [seeds] [hours each]`

use std::time::Instant;

use chappe_sim::exchange::{Settings, Sometimes, run};

fn argument<T: std::str::FromStr>(nth: usize, default: T) -> T {
    let given = std::env::args().nth(nth);
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let (first, seeds, hours) = (
        argument(1, 1_u64),
        argument(2, 100_u64),
        argument(3, 1.0_f64),
    );
    let begin = Instant::now();
    let mut sometimes = Sometimes::default();
    let (mut simulated, mut steps, mut accepted, mut lost, mut wrong) = (0.0, 0, 0, 0, 0);
    for seed in first..first + seeds {
        let report = run(&Settings {
            hours,
            trace_notes: if seeds == 1 { 1_000_000 } else { 0 },
            ..Settings::new(seed)
        });
        simulated += report.simulated.as_secs_f64() / 3_600.0;
        steps += report.steps;
        accepted += report.accepted;
        lost += report.lost;
        sometimes.add(&report.sometimes);
        if seeds == 1 {
            report.trace.notes().for_each(|note| println!("{note}"));
        }
        for violation in &report.violations {
            wrong += 1;
            println!("seed {seed}: {violation}");
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {simulated:.0} h in {seconds:.1} s ({:.1} h/s, {:.0} steps/s), \
         {accepted} accepted, {lost} said lost, {wrong} violations",
        simulated / seconds,
        steps as f64 / seconds
    );
    for (name, count) in sometimes.entries() {
        println!("{count:>10}  {name}");
    }
}
