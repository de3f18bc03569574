//! In simulation: the front, and the reaction to changes.

use std::fmt::Write as _;
use std::time::Duration;

use chappe_flow::pacer::{Choice, NapaConfig, Waits};
use chappe_sim::pacing::{
    Change, Moment, Outcome, Point, Settings as Path, beyond_front, front, run,
};

use crate::plot::{self, Mark, Plot, Scale, Series};
use crate::report::file_name;
use crate::timing::median;
use crate::{Limit, Reference, Report, Settings};

/// Size of the paper's samples, and of a quick run's, in bytes.
const SIZES: [u64; 6] = [5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
const SIZES_QUICK: [u64; 2] = [20_000, 100_000];
/// Seeds of a point.
const REPEATS: u64 = 3;
/// Periods of the sweep.
const PERIODS: u32 = 25;
/// The largest distance from the front as a factor, and the smallest share of its highest throughput.
const DISTANCE: f64 = 1.05;
const THROUGHPUT: f64 = 0.9;

/// A network of the sweep.
struct Network {
    name: &'static str,
    bytes_per_s: f64,
    latency_us: u64,
    /// K.
    every: u64,
    receiver_bytes_per_s: f64,
    jitter: f64,
    loss: f64,
}

const GIGABIT: Network = Network {
    name: "gigabit",
    bytes_per_s: 125e6,
    latency_us: 100,
    every: 1,
    receiver_bytes_per_s: 500e6,
    jitter: 0.1,
    loss: 0.0,
};

const NETWORKS: [Network; 7] = [
    GIGABIT,
    Network {
        name: "gigabit, K 10",
        every: 10,
        ..GIGABIT
    },
    Network {
        name: "slow receiver",
        bytes_per_s: 1_250e6,
        latency_us: 20,
        receiver_bytes_per_s: 400e6,
        jitter: 0.3,
        ..GIGABIT
    },
    Network {
        name: "100 Mbit/s, 20 ms",
        bytes_per_s: 12.5e6,
        latency_us: 20_000,
        every: 2,
        ..GIGABIT
    },
    Network {
        name: "gigabit, 0.1 % lost",
        loss: 0.001,
        ..GIGABIT
    },
    Network {
        name: "gigabit, 1 % lost",
        loss: 0.01,
        ..GIGABIT
    },
    Network {
        name: "gigabit, 5 % lost",
        loss: 0.05,
        ..GIGABIT
    },
];

impl Network {
    fn path(&self, seed: u64, size_bytes: u64, choice: Choice) -> Path {
        let mut path = Path::new(seed, choice, size_bytes);
        path.bottleneck.bytes_per_s = self.bytes_per_s;
        path.bottleneck.latency = Duration::from_micros(self.latency_us);
        path.bottleneck.loss = self.loss;
        path.acknowledging.every = self.every;
        path.acknowledging.missing_interval += 2 * path.bottleneck.latency;
        path.receivers[0].bytes_per_s = self.receiver_bytes_per_s;
        path.receivers[0].jitter = self.jitter;
        path
    }

    fn napa(&self) -> Choice {
        Choice::Napa(NapaConfig {
            capacity_bytes_per_s: self.bytes_per_s,
            acknowledged_at_once: self.every,
            ..NapaConfig::default()
        })
    }

    /// The periods of the sweep at a size.
    fn periods(&self, size: u64) -> impl Iterator<Item = Duration> {
        let path = self.path(0, size, Choice::Flood);
        let least = size as f64 / path.capacity_bytes_per_s();
        (0..PERIODS).map(move |step| {
            let factor = 0.5 * 20_f64.powf(f64::from(step) / f64::from(PERIODS - 1));
            Duration::from_secs_f64((least * factor).min(1.0))
        })
    }
}

/// The median over the repeats, and the first of them.
fn measured(path: &Path) -> (Point, Outcome) {
    let outcomes: Vec<Outcome> = (0..REPEATS)
        .filter_map(|repeat| {
            let seed = path.seed + repeat;
            run(&Path {
                seed,
                ..path.clone()
            })
            .into_iter()
            .next()
        })
        .collect();
    let of = |value: fn(&Outcome) -> f64| median(outcomes.iter().map(value));
    let point = Point {
        throughput_bytes_per_s: of(|it| it.throughput_bytes_per_s),
        latency_s: of(|it| it.latency_p50_s),
    };
    (point, outcomes.into_iter().next().unwrap_or_default())
}

/// Every size on every network: the sweeps, their front, and the pacers compared with it; the paper's
/// figures 7 and 8 are throughput and latency by size.
pub(super) fn fronts(bench: &Settings, report: &mut Report) {
    let sizes: &[u64] = if bench.quick { &SIZES_QUICK } else { &SIZES };
    for network in &NETWORKS {
        let (mut throughput, mut latency) = (Vec::new(), Vec::new());
        let (mut farthest, mut least_share) = (0.0_f64, f64::INFINITY);
        let mut table = String::from(
            "bytes,pacer,received_bytes_per_s,latency_p50_s,latency_p99_s,sent,sent_again\n",
        );
        for size in sizes {
            (bench.progress)(&format!("simulation: {}, {size} bytes", network.name));
            let windows = (0..=10).map(|power| Choice::FixedWindow(1 << power));
            let swept: Vec<Choice> = windows
                .chain(network.periods(*size).map(Choice::FixedPeriod))
                .collect();
            let mut all = Vec::new();
            for choice in swept {
                let name = choice.to_string();
                let (point, outcome) = measured(&network.path(bench.seed, *size, choice));
                line(&mut table, *size, &name, &point, &outcome);
                all.push(point);
            }
            let front = front(&all);
            let best = front.last().map_or(0.0, |it| it.throughput_bytes_per_s);
            let pacers = [
                ("flood", Choice::Flood),
                ("fixed_window:4", Choice::FixedWindow(4)),
                ("napa", network.napa()),
                ("adaptive", Choice::default()),
            ];
            for (name, choice) in pacers {
                let (point, outcome) = measured(&network.path(bench.seed, *size, choice));
                let distance = beyond_front(point, &front) * 100.0;
                let share = point.throughput_bytes_per_s / best.max(1.0);
                row(report, network, *size, name, &point, &outcome, distance);
                if name != "fixed_window:4" {
                    line(&mut table, *size, name, &point, &outcome);
                }
                if name == "adaptive" {
                    farthest = farthest.max(distance);
                    least_share = least_share.min(share);
                }
                let kilobytes = *size as f64 / 1e3;
                let megabytes = point.throughput_bytes_per_s / 1e6;
                plot::add(&mut throughput, name, (kilobytes, megabytes));
                let microseconds = point.latency_s.max(1e-6) * 1e6;
                plot::add(&mut latency, name, (kilobytes, microseconds));
            }
        }
        let name = format!("{}: adaptive, farthest from the front", network.name);
        let on_front = Reference::new("the front", 1.0);
        let factor = (1.0 + farthest / 100.0, "");
        report.target(name, factor, on_front, Limit::AtMost(DISTANCE));
        let name = format!("{}: adaptive, smallest throughput", network.name);
        let highest = Reference::new("the front's highest", 1.0);
        report.target(name, (least_share, ""), highest, Limit::AtLeast(THROUGHPUT));
        let file = file_name(network.name);
        report.tables.insert(file.clone(), table);
        let title = format!("Throughput by size ({}, simulated)", network.name);
        let plot = Plot::new(title, "kB", "MB/s").with(throughput);
        report.figure(format!("throughput-{file}"), &plot);
        let title = format!("Median latency by size ({}, simulated)", network.name);
        let plot = Plot {
            scales: [Scale::Linear, Scale::Logarithmic],
            ..Plot::new(title, "kB", "µs").with(latency)
        };
        report.figure(format!("latency-{file}"), &plot);
    }
}

fn row(
    report: &mut Report,
    network: &Network,
    size: u64,
    name: &str,
    point: &Point,
    outcome: &Outcome,
    distance: f64,
) {
    let capacity = network.path(0, size, Choice::Flood).capacity_bytes_per_s();
    let note = format!(
        "{:.1} % of the slowest part; p50 {:.3} ms, p99 {:.3} ms; {:.1} % retransmitted; {distance:.1} % from the front",
        point.throughput_bytes_per_s / capacity * 100.0,
        point.latency_s * 1e3,
        outcome.latency_p99_s * 1e3,
        outcome.sent_again as f64 / outcome.sent.max(1) as f64 * 100.0,
    );
    let row = format!("{}: {} kB, {name}", network.name, size / 1_000);
    report.row(&row, point.throughput_bytes_per_s / 1e6, "MB/s", note);
}

/// A line of the table of a network: the figures of one pacer with samples of one size.
fn line(table: &mut String, size: u64, name: &str, point: &Point, outcome: &Outcome) {
    let _ = writeln!(
        table,
        "{size},{name},{},{},{},{},{}",
        point.throughput_bytes_per_s,
        point.latency_s,
        outcome.latency_p99_s,
        outcome.sent,
        outcome.sent_again
    );
}

/// The mean of the moments from one second to another.
pub(super) fn mean(moments: &[Moment], from: f64, until: f64, of: fn(&Moment) -> f64) -> f64 {
    let within = |it: &&Moment| it.at_s > from && it.at_s <= until + 1e-9;
    let values: Vec<f64> = moments.iter().filter(within).map(of).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The number of seconds after which throughput is again at nine tenths and latency below the bound
/// for three tenths of a second.
pub(super) fn back_after(moments: &[Moment], from: f64, rate: f64, latency: f64) -> f64 {
    let later: Vec<&Moment> = moments.iter().filter(|it| it.at_s > from).collect();
    let well = |it: &&Moment| {
        it.throughput_bytes_per_s >= 0.9 * rate
            && it.latency_p50_s > 0.0
            && it.latency_p50_s <= latency
    };
    let at = later.windows(3).find(|three| three.iter().all(well));
    // The moment ends a tenth of a second after it starts.
    at.map_or(f64::INFINITY, |three| three[0].at_s - 0.1 - from)
}

/// Over time: a collapsed start, a receiver that halves its speed, two senders.
pub(super) fn events(bench: &Settings, report: &mut Report) {
    let seconds = Duration::from_secs;
    for size in SIZES {
        (bench.progress)(&format!("simulation: changes, {size} bytes"));
        let kilobytes = size / 1_000;
        for pacer in ["napa", "adaptive"] {
            let choice = match pacer {
                "napa" => GIGABIT.napa(),
                _ => Choice::default(),
            };
            let mut path = GIGABIT.path(bench.seed, size, Choice::Flood);
            path.window = 256;
            path.changes = vec![(
                seconds(2),
                Change::Pacer {
                    sender: 0,
                    choice: choice.clone(),
                },
            )];
            path.duration = seconds(6);
            let rate = path.capacity_bytes_per_s();
            let latency = 2.0 * path.latency_least_s();
            let moments = outcome_of(&path).moments;
            let name =
                format!("{kilobytes} kB: {pacer} takes over after 2 s of flooding: back after");
            let back = back_after(&moments, 2.0, rate, latency);
            report.row(&name, back, "s", format!(
                "256 samples in flight; latency before {:.0} ms; back is 90 % of the rate at twice the lowest latency",
                mean(&moments, 1.0, 2.0, |it| it.latency_p50_s) * 1e3
            ));
            if pacer == "adaptive" {
                let flooded = Reference::new("the flooding before", 2.0);
                report.target(name, (back, "s"), flooded, Limit::AtMost(1.0));
                over_time(report, &format!("collapsed-{kilobytes}-kB"), &moments);
            }
            let mut path = GIGABIT.path(bench.seed, size, choice.clone());
            path.receivers[0].bytes_per_s = path.bottleneck.bytes_per_s * 1.1;
            path.changes = vec![(
                seconds(3),
                Change::Slower {
                    receiver: 0,
                    factor: 2.0,
                },
            )];
            path.duration = seconds(6);
            let rate = path.capacity_bytes_per_s() / 2.0;
            path.bottleneck.queue_bytes = 4 << 20;
            let outcome = outcome_of(&path);
            let service = size as f64 / rate;
            let least = size as f64 / path.bottleneck.bytes_per_s + 100e-6 + service;
            let back = back_after(&outcome.moments, 3.0, rate, 2.0 * least);
            let again = outcome.sent_again as f64 / outcome.sent.max(1) as f64 * 100.0;
            let name =
                format!("{kilobytes} kB: the receiver halves its speed, {pacer}: back after");
            report.row(
                &name,
                back,
                "s",
                format!(
                    "90 % of the new rate at twice the new least latency; {again:.1} % retransmitted"
                ),
            );
            if pacer == "adaptive" {
                let steady = Reference::new("the steady time before", 3.0);
                report.target(name, (back, "s"), steady, Limit::AtMost(1.0 / 3.0));
                let name = format!("{kilobytes} kB: the receiver halves its speed: sent again");
                let sent = Reference::new("sent", outcome.sent as f64);
                let again = (outcome.sent_again as f64, "samples");
                report.target(name, again, sent, Limit::AtMost(0.01));
                over_time(report, &format!("halved-{kilobytes}-kB"), &outcome.moments);
            }
            let mut path = GIGABIT.path(bench.seed, size, choice.clone());
            path.senders.push((choice, seconds(2)));
            path.warm_up = seconds(5);
            path.duration = seconds(15);
            let outcomes = run(&path);
            let rates: Vec<f64> = outcomes
                .iter()
                .map(|it| it.throughput_bytes_per_s)
                .collect();
            let (least, most) = (rates[0].min(rates[1]), rates[0].max(rates[1]));
            let unfair = (most / least.max(1.0) - 1.0) * 100.0;
            let name =
                format!("{kilobytes} kB: two senders share, {pacer}: the larger has more by");
            report.row(
                &name,
                unfair,
                "%",
                format!(
                    "{:.1} and {:.1} MB/s, p50 {:.3} and {:.3} ms; the second began 2 s later",
                    rates[0] / 1e6,
                    rates[1] / 1e6,
                    outcomes[0].latency_p50_s * 1e3,
                    outcomes[1].latency_p50_s * 1e3,
                ),
            );
            if pacer == "adaptive" {
                let name = format!("{kilobytes} kB: two senders share, {pacer}: the larger");
                let smaller = Reference::new("the smaller", least / 1e6);
                report.target(name, (most / 1e6, "MB/s"), smaller, Limit::AtMost(1.2));
            }
        }
    }
}

fn outcome_of(path: &Path) -> Outcome {
    run(path).into_iter().next().unwrap_or_default()
}

/// Throughput and latency over time.
fn over_time(report: &mut Report, file: &str, moments: &[Moment]) {
    let line = |name: &str, of: fn(&Moment) -> f64| {
        let points = moments.iter().map(|it| (it.at_s, of(it)));
        Series::new(name, Mark::Line).with(points)
    };
    let lines = [
        line("MB/s", |it| it.throughput_bytes_per_s / 1e6),
        line("samples in flight", |it| it.occupation as f64),
    ];
    let plot = Plot::new(format!("{file}, adaptive, simulated"), "s", "").with(lines);
    report.figure(file, &plot);
}

/// One to many: the slowest sets the pace, unless a policy excludes it.
pub(super) fn receivers(bench: &Settings, report: &mut Report) {
    for count in [1_usize, 2, 4, 8, 16] {
        (bench.progress)(&format!("simulation: {count} receivers"));
        let mut path = GIGABIT.path(bench.seed, 50_000, Choice::default());
        path.receivers = vec![path.receivers[0].clone(); count];
        path.receivers[count - 1].bytes_per_s = 60e6;
        let outcome = outcome_of(&path);
        let share = outcome.throughput_bytes_per_s / path.capacity_bytes_per_s() * 100.0;
        let name = format!("{count} receivers, one at 60 MB/s: of what the slowest takes");
        report.row(
            &name,
            share,
            "%",
            format!(
                "50 kB; p50 {:.3} ms; {} sent again",
                outcome.latency_p50_s * 1e3,
                outcome.sent_again
            ),
        );
        let name = format!("{count} receivers, one at 60 MB/s");
        let slowest = Reference::new("the slowest takes", path.capacity_bytes_per_s() / 1e6);
        let reached = (outcome.throughput_bytes_per_s / 1e6, "MB/s");
        report.target(name, reached, slowest, Limit::AtLeast(THROUGHPUT));
    }
    let mut path = GIGABIT.path(bench.seed, 50_000, Choice::default());
    path.receivers = vec![path.receivers[0].clone(); 4];
    path.changes = vec![(Duration::from_secs(1), Change::Dead { receiver: 3 })];
    for (word, waits) in [
        ("waited for", Waits::All),
        (
            "excluded after 0.5 s of silence",
            Waits::Silence(Duration::from_millis(500)),
        ),
    ] {
        path.waits = waits;
        let outcome = outcome_of(&path);
        let rate = mean(&outcome.moments, 2.0, 3.0, |it| it.throughput_bytes_per_s) * 4.0 / 3.0;
        let name = format!("one of 4 receivers dies, {word}: the others' rate");
        report.row(&name, rate / 1e6, "MB/s", "50 kB; from 1 s after it");
    }
}

/// The paper's figure 2: throughput and latency against the time between samples, 100 kB.
pub(super) fn period(bench: &Settings, report: &mut Report) {
    (bench.progress)("simulation: time between samples");
    const SIZE: u64 = 100_000;
    let mut throughput = Vec::new();
    let mut latency = Vec::new();
    for period in GIGABIT.periods(SIZE) {
        let choice = Choice::FixedPeriod(period);
        let (point, outcome) = measured(&GIGABIT.path(bench.seed, SIZE, choice));
        let micros = period.as_secs_f64() * 1e6;
        throughput.push((micros, point.throughput_bytes_per_s / 1e6));
        latency.push((micros, point.latency_s.max(1e-6) * 1e6));
        report.row(
            &format!("gigabit: 100 kB every {micros:.0} us"),
            point.throughput_bytes_per_s / 1e6,
            "MB/s",
            format!(
                "p50 {:.3} ms; {:.1} % retransmitted",
                point.latency_s * 1e3,
                outcome.sent_again as f64 / outcome.sent.max(1) as f64 * 100.0
            ),
        );
    }
    let lines = [
        Series::new("MB/s", Mark::Line).with(throughput),
        Series::new("median latency, µs", Mark::Line).with(latency),
    ];
    let title = "100 kB by the time between samples (gigabit, simulated)";
    let plot = Plot {
        scales: [Scale::Linear, Scale::Logarithmic],
        ..Plot::new(title, "µs between samples", "").with(lines)
    };
    report.figure("period", &plot);
}
