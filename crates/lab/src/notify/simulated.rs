//! The product's machine on simulated networks.

use std::fmt::Write as _;
use std::time::Duration;

use chappe_notification_tree::schedule::{Cost, completion};
use chappe_notification_tree::{Choice, Plan};
use chappe_sim::{Distribution, tree};
use chappe_terminal::measured;

use super::fit;
use crate::plot::{Mark, Plot, Series};
use crate::report::file_name;
use crate::{Error, Limit, Reference, Report, Settings};

/// Send cost, latency and handling in µs: small devices on a local network; the same on a slower
/// one; a PC on a local network; and values that match the paper's break-even at 28 sinks.
const NETWORKS: [(&str, u64, u64, u64); 4] = [
    ("small devices, LAN", 20, 30, 10),
    ("small devices, 1 ms", 20, 1_000, 10),
    ("PC, LAN", 2, 28, 2),
    ("the paper's break-even", 100, 570, 100),
];
/// Sinks of the paper's figures, and beyond.
const SIZES: [u32; 6] = [28, 60, 100, 1_000, 10_000, 100_000];
/// The fan-out cap.
const CAP: u16 = chappe_notification_tree::CAP;
/// Maximum number of messages queued at a busy node when none must be lost.
const ROOM: usize = 1 << 22;
/// Seeds of a run with failures.
const SEEDS: u64 = 11;
/// Time from the heartbeat of a new list to the first event. By then silent sinks are known; the
/// outcome of the heartbeat is known half a second later.
const BEHIND_HEARTBEAT: Duration = Duration::from_millis(20);
/// Maximum cost of pacing at each source in time, and the share of messages (in percent) that ports may still
/// drop.
const SLOWER_MAX: f64 = 1.5;
const DROPPED_MAX: f64 = 0.01;
/// Runs of mixed trouble, and of a quick one.
const MIXED: u64 = 100_000;
const MIXED_QUICK: u64 = 5_000;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn plans_of(optimum: Plan) -> [(&'static str, Choice); 7] {
    [
        (
            "sequential with responses",
            Choice::Fixed(Plan::SequentialWaiting),
        ),
        ("sequential", Choice::Fixed(Plan::Sequential)),
        ("two halves", Choice::Fixed(Plan::TwoHalves)),
        ("binomial", Choice::Fixed(Plan::Binomial)),
        ("4-ary", Choice::Fixed(Plan::Kary(4))),
        ("postal", Choice::Fixed(optimum)),
        ("by default", Choice::Measured { cap: CAP }),
    ]
}

fn network(seed: u64, sinks: u32, (send, latency, handling): (u64, u64, u64)) -> tree::Settings {
    tree::Settings {
        send_cost: micros(send),
        latency: micros(latency),
        handling: micros(handling),
        ..tree::Settings::new(seed, sinks)
    }
}

/// Runs, and turns a broken promise into an error.
fn judged(settings: &tree::Settings) -> Result<tree::Report, Error> {
    let report = tree::run(settings, &mut |_| {});
    match report.violations.first() {
        None => Ok(report),
        Some(what) => Err(Error::Failed(format!(
            "a promise was broken: {what}\n  to repeat: {}",
            settings.again()
        ))),
    }
}

/// Without failures: the paper's figures, fits, break-even, and the distance from the optimum.
pub(super) fn plans(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    // The time to the last sink and the optimum's, in send costs, where their ratio is largest.
    let mut worst = (0.0, 1.0);
    for (name, send, latency, handling) in NETWORKS {
        (bench.progress)(&format!("plans without failures, {name}"));
        let (send_cost, delay) = (micros(send), micros(latency + handling));
        let cost = Cost {
            send: send_cost,
            delay,
        };
        let mut lines = Vec::new();
        let mut at = Vec::new();
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let optimum = Plan::measured(nanos(send_cost), nanos(delay), CAP);
        for (plan_name, plan) in plans_of(optimum) {
            let mut points = Vec::new();
            let sizes = (1..=18).chain(SIZES);
            let largest = match (plan, bench.quick) {
                (Choice::Fixed(Plan::SequentialWaiting | Plan::Sequential), _) => 1_000,
                (_, true) => 10_000,
                (_, false) => 100_000,
            };
            for sinks in sizes.filter(|sinks| *sinks <= largest) {
                let settings = tree::Settings {
                    receive_buffer: ROOM,
                    within: Duration::from_secs(60),
                    ..network(bench.seed, sinks, (send, latency, handling)).planned(plan)
                };
                let ran = judged(&settings)?;
                let took = ran.completion().div_duration_f64(send_cost);
                points.push((f64::from(sinks), took));
                if ["postal", "by default"].contains(&plan_name) {
                    let best = completion(optimum, sinks, cost).div_duration_f64(send_cost);
                    if took / best > worst.0 / worst.1 {
                        worst = (took, best);
                    }
                }
                if sinks >= 18 {
                    let row = format!("{name}: {sinks} sinks, {plan_name}");
                    let known = ran.known.iter().max().copied().unwrap_or_default();
                    let known = known.div_duration_f64(send_cost);
                    let note = format!("o {send} us, L {latency} us; all known at {known:.1} o");
                    report.row(&row, took, "o", note);
                }
            }
            at.push((plan_name, points.clone()));
            points.truncate(18);
            lines.push(Series::new(plan_name, Mark::Line).with(points));
        }
        fits(name, &at, report);
        break_even(name, cost, optimum, report);
        table(name, &at, report);
        let title =
            format!("Last of so many sinks has the event ({name}: o {send} us, L {latency} us)");
        let plot = Plot::new(title, "sinks", "send costs (o)").with(lines);
        report.figure(file_name(name), &plot);
    }
    let name = "simulated: time to the last sink, worst";
    let optimum = Reference::new("the capped optimum", worst.1);
    report.target(name, (worst.0, "o"), optimum, Limit::AtMost(1.05));
    Ok(())
}

/// The paper's fits over 1 to 18 sinks, and the number of sinks from which the tree is faster.
fn fits(name: &str, at: &[(&str, Vec<(f64, f64)>)], report: &mut Report) {
    let of = |plan: &str| {
        at.iter()
            .find(|it| it.0 == plan)
            .map_or(&[][..], |it| &it.1[..])
    };
    for plan in ["sequential", "two halves", "postal"] {
        let points = &of(plan)[..18.min(of(plan).len())];
        for (kind, fit) in [
            ("linear", fit::line(points)),
            ("logarithmic", fit::logarithm(points)),
        ] {
            let note = format!(
                "{:.2} + {:.3} a unit; R2 of the fit over 1 to 18",
                fit.offset, fit.slope
            );
            report.row(
                &format!("{name}: {plan}, {kind} fit"),
                fit.r_squared,
                "",
                note,
            );
        }
    }
    for (tree, plain) in [
        ("two halves", "sequential"),
        ("two halves", "sequential with responses"),
        ("postal", "sequential"),
    ] {
        if let Some((tree_at, plain_at)) = of(tree).get(17).zip(of(plain).get(17)) {
            let saved = (1.0 - tree_at.1 / plain_at.1) * 100.0;
            let row = format!("{name}: {tree} saves over {plain} at 18 sinks");
            report.row(&row, saved, "%", "");
        }
    }
    // As the paper determines its break-even: the intersection of its fits over few sinks.
    let first_18 = |plan: &str| &of(plan)[..18.min(of(plan).len())];
    let tree = fit::logarithm(first_18("two halves"));
    let plain = fit::line(first_18("sequential"));
    let meet = (2..10_000).find(|sinks| {
        let sinks = f64::from(*sinks);
        tree.offset + tree.slope * (sinks + 1.0).log2() < plain.offset + plain.slope * sinks
    });
    let row = format!("{name}: the fits of two halves and sequential meet at");
    let note = "logarithmic and linear, over 1 to 18 sinks; 0: below 10,000 nowhere";
    report.row(&row, meet.map_or(0.0, f64::from), "sinks", note);
}

/// The number of sinks from which the tree is faster: by the model, which the machine keeps to the
/// nanosecond.
fn break_even(name: &str, cost: Cost, optimum: Plan, report: &mut Report) {
    const MOST: u32 = 2_000;
    for (tree_name, tree, plain_name, plain) in [
        (
            "two halves",
            Plan::TwoHalves,
            "sequential",
            Plan::Sequential,
        ),
        (
            "two halves",
            Plan::TwoHalves,
            "sequential with responses",
            Plan::SequentialWaiting,
        ),
        ("postal", optimum, "sequential", Plan::Sequential),
    ] {
        let quicker =
            |sinks: &u32| completion(tree, *sinks, cost) < completion(plain, *sinks, cost);
        let first = (1..=MOST).find(quicker).unwrap_or(0);
        let slower = (1..=MOST).rev().find(|sinks| !quicker(sinks));
        let always = slower.map_or(1, |sinks| sinks + 1);
        let row = format!("{name}: {tree_name} quicker than {plain_name} from");
        let note = format!("from there on always; for the first time at {first}");
        report.row(&row, f64::from(always), "sinks", note);
    }
}

/// All plans by the number of sinks, as a file.
fn table(name: &str, at: &[(&str, Vec<(f64, f64)>)], report: &mut Report) {
    let mut csv = String::from("plan,sinks,last_sink_send_costs\n");
    for (plan, points) in at {
        for (sinks, took) in points {
            let _ = writeln!(csv, "{plan},{sinks},{}", measured(*took));
        }
    }
    report.tables.insert(file_name(name), csv);
}

/// A million sinks.
pub(super) fn million(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    const SINKS: u32 = 1_000_000;
    for (dead, loss) in [(0.0, 0.0), (0.01, 0.01)] {
        (bench.progress)(&format!("a million sinks, {dead} dead, {loss} lost"));
        let settings = tree::Settings {
            dead,
            loss,
            within: Duration::from_secs(60),
            ..network(bench.seed, SINKS, (20, 30, 10))
        };
        let began = std::time::Instant::now();
        let ran = judged(&settings)?;
        let took = ran.completion().div_duration_f64(settings.send_cost);
        let row = format!(
            "1,000,000 sinks, postal, {} % dead, {} % lost",
            dead * 100.0,
            loss * 100.0
        );
        let known = ran.known.iter().max().copied().unwrap_or_default();
        let note = format!(
            "o 20 us, L 30 us; {:?}, known at {known:?}; {} messages; simulated in {:.0} s",
            ran.completion(),
            ran.messages,
            began.elapsed().as_secs_f64()
        );
        report.row(&row, took, "o", note);
    }
    Ok(())
}

/// Dead sinks and loss: the time to the last live sink, for the first event of an unknown source,
/// for the first one after the heartbeat that drivers send for a new list, and once the network
/// knows its dead sinks.
pub(super) fn failures(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    const EVENTS: [&str; 3] = [
        "first event, nothing known",
        "first event after the heartbeat of a new list",
        "third event",
    ];
    let mut worst = [0.0_f64; 3];
    for (name, send, latency, handling) in &NETWORKS[..2] {
        let cost = Cost {
            send: micros(*send),
            delay: micros(latency + handling),
        };
        for sinks in [100, 1_000, 10_000] {
            if bench.quick && sinks > 1_000 {
                continue;
            }
            let halves = completion(Plan::TwoHalves, sinks, cost).as_secs_f64();
            for (dead, loss) in [
                (0.01, 0.0),
                (0.1, 0.0),
                (0.0, 0.01),
                (0.0, 0.05),
                (0.1, 0.05),
            ] {
                (bench.progress)(&format!("{name}: {sinks} sinks, {dead} dead, {loss} lost"));
                let mut shares = [const { Vec::new() }; 3];
                for seed in 0..SEEDS {
                    let settings = tree::Settings {
                        dead,
                        loss,
                        events: 3,
                        period: Duration::from_secs(12),
                        ..network(bench.seed + seed, sinks, (*send, *latency, *handling))
                    };
                    let ran = judged(&settings)?;
                    let last = |event: usize| ran.arrivals[event].last().copied();
                    let (first, third) = (last(0), last(2));
                    let settings = tree::Settings {
                        heartbeat: true,
                        events: 1,
                        period: BEHIND_HEARTBEAT,
                        ..settings
                    };
                    let behind = Some(judged(&settings)?.completion());
                    for (shares, took) in shares.iter_mut().zip([first, behind, third]) {
                        shares.push(took.unwrap_or_default().as_secs_f64() / halves);
                    }
                }
                for ((what, shares), worst) in EVENTS.iter().zip(shares).zip(&mut worst) {
                    let shares = Distribution::of(shares);
                    let (median, most) = (shares.percentile(50.0), shares.max());
                    let (dead, loss) = (dead * 100.0, loss * 100.0);
                    let row =
                        format!("{name}: {sinks} sinks, {dead} % dead, {loss} % lost, {what}");
                    let note = format!("median of {SEEDS} (worst {most:.2}); k 8");
                    report.row(&row, median, "of two halves without failures", note);
                    if dead > 5.0 && loss == 0.0 {
                        *worst = worst.max(median);
                    }
                }
            }
        }
    }
    // The first event with nothing known is a row and not judged: drivers send none like it, except
    // one that is published at the same moment as the list.
    for (what, worst) in EVENTS.iter().zip(worst).skip(1) {
        let name = format!("10 % dead, {what}: time to the last live sink, worst median");
        let halves = Reference::new("two halves without failures", 1.0);
        report.target(name, (worst, ""), halves, Limit::AtMost(1.3));
    }
    Ok(())
}

/// All plans compared with dead sinks and lost messages: the time to the last live sink for the
/// third event, when the silent sinks are known.
pub(super) fn plans_with_failures(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    let (name, send, latency, handling) = NETWORKS[0];
    let nanos = |micros: u64| micros * 1_000;
    let optimum = Plan::measured(nanos(send), nanos(latency + handling), CAP);
    let mut csv = String::from("sinks,dead,lost,plan,median_send_costs,worst_send_costs\n");
    for sinks in [100, 1_000] {
        for dead in [0.0, 0.01, 0.1] {
            for loss in [0.0, 0.01, 0.05] {
                (bench.progress)(&format!("plans, {sinks} sinks, {dead} dead, {loss} lost"));
                for (plan_name, plan) in plans_of(optimum) {
                    // Waiting for the answer of each of a thousand is minutes by the first loss.
                    if plan == Choice::Fixed(Plan::SequentialWaiting) || bench.quick && sinks > 100
                    {
                        continue;
                    }
                    let mut took = Vec::new();
                    for seed in 0..SEEDS {
                        let settings = tree::Settings {
                            plan,
                            dead,
                            loss,
                            events: 3,
                            period: Duration::from_secs(12),
                            receive_buffer: ROOM,
                            ..network(bench.seed + seed, sinks, (send, latency, handling))
                        };
                        let ran = judged(&settings)?;
                        let last = ran.arrivals.get(2).and_then(|third| third.last());
                        let last = last.copied().unwrap_or_default();
                        took.push(last.div_duration_f64(settings.send_cost));
                    }
                    let took = Distribution::of(took);
                    let (median, worst) = (took.percentile(50.0), took.max());
                    let (dead, loss) = (dead * 100.0, loss * 100.0);
                    let row =
                        format!("{name}: {sinks} sinks, {dead} % dead, {loss} % lost, {plan_name}");
                    let note = format!("third event, median of {SEEDS} (worst {worst:.1})");
                    report.row(&row, median, "o", note);
                    let (median, worst) = (measured(median), measured(worst));
                    let _ = writeln!(csv, "{sinks},{dead},{loss},{plan_name},{median},{worst}");
                }
            }
        }
    }
    report.tables.insert("failures-by-plan".to_owned(), csv);
    Ok(())
}

/// Several sources at once, through switch ports with short queues: occasional events, and many at
/// once; each source at the pace of its processor, or of `adaptive`.
pub(super) fn sources(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    const QUEUE_BYTES: u64 = 32 * 1_024;
    // Each where its ratio is the largest: time and that of flooding, messages dropped and sent.
    let (mut slowest, mut dropped) = ((0.0, 1.0), (0.0, 1.0));
    for (what, events, period) in [
        ("5 events, 100 ms apart", 5, Duration::from_millis(100)),
        ("20 events at once", 20, Duration::ZERO),
    ] {
        for sources in [1, 2, 4, 8, 16] {
            let mut flood = f64::INFINITY;
            for pacer in ["flood", "adaptive"] {
                (bench.progress)(&format!("{sources} sources, {what}, {pacer}"));
                let settings = tree::Settings {
                    sources,
                    events,
                    period,
                    port_rate_bytes_per_s: Some(12_500_000),
                    port_queue_bytes: QUEUE_BYTES,
                    pacer: pacer.parse().ok(),
                    ..network(bench.seed, 200, (20, 30, 10))
                };
                // Beyond the network's capacity flooding breaks promises; the rows show that.
                let ran = match pacer {
                    "flood" => tree::run(&settings, &mut |_| {}),
                    _ => judged(&settings)?,
                };
                let took = ran.completion().div_duration_f64(settings.send_cost);
                if pacer == "flood" {
                    flood = took;
                } else {
                    if took / flood > slowest.0 / slowest.1 {
                        slowest = (took, flood);
                    }
                    let (lost, sent) = (ran.port_dropped as f64, ran.messages as f64);
                    if lost / sent >= dropped.0 / dropped.1 {
                        dropped = (lost, sent);
                    }
                }
                let note = format!(
                    "o 20 us, L 30 us, ports of 100 Mbit/s with 32 KiB; {} messages, {} dropped at ports, {} at \
                     sinks, {} sent again; {} live sinks called failed or unknown",
                    ran.messages,
                    ran.port_dropped,
                    ran.dropped - ran.port_dropped,
                    ran.counters.repeated,
                    ran.failed + ran.unknown
                );
                let row = format!("{sources} sources, 200 sinks, {what}, {pacer}");
                report.row(&row, took, "o", note);
            }
        }
    }
    let name = "adaptive, 1 to 16 sources: time to the last sink, worst";
    let flood = Reference::new("flood", slowest.1);
    report.target(name, (slowest.0, "o"), flood, Limit::AtMost(SLOWER_MAX));
    let name = "adaptive, 1 to 16 sources: dropped at ports, worst";
    let sent = Reference::new("sent", dropped.1);
    report.target(
        name,
        (dropped.0, "messages"),
        sent,
        Limit::AtMost(DROPPED_MAX),
    );
    Ok(())
}

/// Runs of mixed trouble.
pub(super) fn mixed(bench: &Settings, report: &mut Report) {
    let runs = if bench.quick { MIXED_QUICK } else { MIXED };
    (bench.progress)(&format!("{runs} runs of mixed trouble"));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let series = tree::series(bench.seed, runs, jobs, |_| {}, |_| true);
    let note = format!(
        "{} sinks, {} events delivered, {} false claims found out, {} forged events refused; k 8, T 30 s",
        series.sinks, series.delivered, series.lies, series.forged
    );
    report.row(
        "runs of mixed sizes and troubles",
        series.runs as f64,
        "",
        note,
    );
    if let Some(failed) = series.failed.first() {
        let what = failed.violations.first().map_or("", String::as_str);
        let again = tree::mixed(failed.seed).again();
        report.skipped.push(format!("{what}; again: {again}"));
    }
    let name = "mixed trouble: a wrong outcome, or a live connected sink left out";
    let judged = Reference::new("judged", series.runs as f64);
    report.target(
        name,
        (series.failures as f64, "runs"),
        judged,
        Limit::AtMost(0.0),
    );
}
