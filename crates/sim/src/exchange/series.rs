//! Many seeds, on several threads, and their combined result.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{Report, Settings, Sometimes, run};

/// Runs after which every event must have happened, if all faults were allowed and each run has an
/// hour.
///
/// measured: the rarest event happens in one of 60 runs, so that 1,000 runs miss it once in ten
/// million times.
pub const RUNS_FOR_EVERYTHING: u64 = 1_000;

/// Reports of runs with violations that are kept; further ones are only counted.
pub const FAILED_KEPT: usize = 100;

/// The combined result of many runs.
#[derive(Debug, Default)]
pub struct Series {
    /// Runs that ended.
    pub runs: u64,
    /// Simulated hours.
    pub hours: f64,
    /// Steps of the networks.
    pub steps: u64,
    /// Elements accepted.
    pub accepted: u64,
    /// Numbers reported to subscribers as lost.
    pub lost: u64,
    /// The counts of events.
    pub sometimes: Sometimes,
    /// Runs with violations, the first of them, by seed.
    pub failed: Vec<Report>,
    /// Runs with violations, all of them.
    pub failures: u64,
    /// The last run without violations.
    pub passed: Option<Report>,
}

impl Series {
    /// The events that never happened.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        let never = |(name, count): (&'static str, u64)| (count == 0).then_some(name);
        self.sometimes
            .entries()
            .into_iter()
            .filter_map(never)
            .collect()
    }

    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.hours += report.simulated.as_secs_f64() / 3_600.0;
        self.steps += report.steps;
        self.accepted += report.accepted;
        self.lost += report.lost;
        self.sometimes.add(&report.sometimes);
        if report.violations.is_empty() {
            self.passed = Some(report);
        } else {
            self.failures += 1;
            if self.failed.len() < FAILED_KEPT {
                self.failed.push(report);
                self.failed.sort_by_key(|report| report.seed);
            }
        }
    }
}

/// Runs `runs` seeds, starting with that of `settings`, on several threads. `progress` receives the
/// series after each run, and stops it by returning false.
pub fn series(
    settings: &Settings,
    runs: u64,
    threads: usize,
    progress: impl Fn(&Series) -> bool + Sync,
) -> Series {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let series = Mutex::new(Series::default());
    let work = || {
        while !stopped.load(Ordering::Relaxed) {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= runs {
                break;
            }
            let seed = settings.seed.wrapping_add(nth);
            let report = run(&Settings {
                seed,
                ..settings.clone()
            });
            let mut series = series.lock().unwrap_or_else(PoisonError::into_inner);
            series.add(report);
            if !progress(&series) {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    series.into_inner().unwrap_or_else(PoisonError::into_inner)
}
