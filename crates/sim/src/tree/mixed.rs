//! Runs of mixed sizes and faults, each from its seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chappe_notification_tree::{Choice, Plan};

use super::{Lie, Report, Settings, run};

/// The largest mixed run.
const SINKS_MAX: u32 = 300;
/// Failed runs that a series keeps.
const FAILED_KEPT: usize = 20;

/// Settings drawn from a seed: 0 to 300 sinks, mostly few; every plan; 0, 1 or 5 % loss; 0, 1 or 10 %
/// dead; a third with liars, a quarter with crashes; signed or, without liars, trusted.
///
/// `k` is 8 at every loss rate: a message and its answer are both lost with 5 % loss 9.75 times of
/// 100, so that a live sink is reported as failed once in 10^8 at most.
#[must_use]
pub fn mixed(seed: u64) -> Settings {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7472_6565);
    let largest = [3, 20, 60, SINKS_MAX][random.usize(..4)];
    let mut settings = Settings::new(seed, random.u32(0..=largest));
    let postal = Choice::Measured {
        cap: [1, 2, 8, 128][random.usize(..4)],
    };
    let plan = match random.u32(..10) {
        0 => Choice::Fixed(Plan::Sequential),
        1 => Choice::Fixed(Plan::TwoHalves),
        2 => Choice::Fixed(Plan::Binomial),
        3 => Choice::Fixed(Plan::Kary(random.u16(2..8))),
        4 if settings.sinks <= 20 => Choice::Fixed(Plan::SequentialWaiting),
        _ => postal,
    };
    settings = settings.planned(plan);
    let micros = Duration::from_micros;
    settings.send_cost = micros(random.u64(2..40));
    settings.latency = micros([30, 1_000, 20_000][random.usize(..3)]);
    settings.jitter = settings.latency * random.u32(..3) / 2;
    settings.handling = micros(random.u64(..20));
    settings.loss = [0.0, 0.01, 0.05][random.usize(..3)];
    settings.dead = [0.0, 0.01, 0.1][random.usize(..3)];
    settings.suspected = [0.0, 0.9][random.usize(..2)];
    settings.wrongly_suspected = [0.0, 0.02][random.usize(..2)];
    settings.crashing = if random.u32(..4) == 0 { 0.05 } else { 0.0 };
    settings.liars = [0.0, 0.0, 0.0, 0.0, 0.01, 0.1][random.usize(..6)];
    settings.lies = match random.usize(..=Lie::ALL.len()) {
        all if all == Lie::ALL.len() => Lie::ALL.to_vec(),
        one => vec![Lie::ALL[one]],
    };
    settings.slow = [0.0, 0.0, 0.05][random.usize(..3)];
    settings.sources = [1, 1, 1, 2][random.usize(..4)];
    settings.events = [1, 1, 1, 3][random.usize(..4)];
    settings.authenticated = settings.liars > 0.0 || random.u32(..4) > 0;
    settings.inline = random.bool();
    settings.within = Duration::from_secs(30);
    settings
}

/// The combined results of many runs.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Runs.
    pub runs: u64,
    /// Sinks of all runs.
    pub sinks: u64,
    /// Events delivered.
    pub delivered: u64,
    /// Sinks reported as failed.
    pub failed_sinks: u64,
    /// Sinks without a result.
    pub unknown: u64,
    /// Detected false coverage.
    pub lies: u64,
    /// Forged events refused.
    pub forged: u64,
    /// Messages.
    pub messages: u64,
    /// Inputs handled.
    pub steps: u64,
    /// Runs in which a promise was broken.
    pub failures: u64,
    /// The first of them.
    pub failed: Vec<Report>,
}

/// Runs `runs` mixed settings, of `seed` and the seeds after it, `jobs` at a time. `broken`
/// receives each run that broke a promise immediately; `progress` is asked now and then whether to
/// continue.
pub fn series(
    seed: u64,
    runs: u64,
    jobs: usize,
    broken: impl Fn(&Report) + Sync,
    progress: impl Fn(&Series) -> bool + Sync,
) -> Series {
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Series::default());
    let worker = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= runs {
                return;
            }
            let settings = mixed(seed.wrapping_add(nth));
            let report = run(&settings, &mut |_| {});
            let mut sum = sum
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            sum.runs += 1;
            sum.sinks += u64::from(settings.sinks);
            sum.delivered += report.counters.delivered;
            sum.failed_sinks += report.failed;
            sum.unknown += report.unknown;
            sum.lies += report.lies;
            sum.forged += report.counters.forged;
            sum.messages += report.messages;
            sum.steps += report.steps;
            if !report.violations.is_empty() {
                sum.failures += 1;
                broken(&report);
                if sum.failed.len() < FAILED_KEPT {
                    sum.failed.push(report);
                }
            }
            if sum.runs.is_multiple_of(256) && !progress(&sum) {
                next.store(runs, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(worker);
        }
    });
    sum.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
