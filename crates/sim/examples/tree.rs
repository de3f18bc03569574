//! What dead sinks and loss cost the events of a source, for a first look at a change:
//! `cargo run --release --example tree -- SINKS DEAD LOSS SEND_US LATENCY_US HANDLING_US [SEEDS] [FLOOR_US] [HEARTBEAT] \
//! [WITHIN_S] [EVENTS]`.
//! `cargo run --release --example tree -- mixed RUNS [SEED]` judges runs of mixed sizes and troubles, as
//! `chappe-lab sim tree --mixed` does; it prints how far it is, and what breaks a promise as soon as it is found.
//! `cargo run --release --example tree -- sources SINKS EVENTS QUEUE_BYTES PACER [PERIOD_US]` has 1 to 16 sources publish at
//! once, through ports of 100 Mbit/s.
//! `chappe-lab sim tree` is the command for users, `chappe-lab bench notify --only failures` the measurement.

use std::time::{Duration, Instant};

use chappe_notification_tree::Plan;
use chappe_notification_tree::schedule::{Cost, completion};
use chappe_sim::tree::{Report, Series, Settings, run, series};

/// Mixed runs between two lines of progress.
const RUNS_A_LINE: u64 = 51_200;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "mixed") {
        let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
        return mixed(number(1).unwrap_or(10_000), number(2).unwrap_or(1));
    }
    if arguments.first().is_some_and(|first| first == "sources") {
        return sources(&arguments[1..]);
    }
    let number = |at: usize, default: f64| -> f64 {
        let text = arguments.get(at);
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let micros = |at: usize, default: f64| Duration::from_secs_f64(number(at, default) / 1e6);
    let sinks = number(0, 1_000.0) as u32;
    let (send_cost, latency, handling) = (micros(3, 20.0), micros(4, 30.0), micros(5, 10.0));
    let cost = Cost {
        send: send_cost,
        delay: latency + handling,
    };
    let halves = completion(Plan::TwoHalves, sinks, cost).as_secs_f64();
    let seeds = number(6, 11.0) as u64;
    let events = number(10, 3.0) as u32;
    let mut shares = vec![Vec::new(); events as usize];
    let mut counts = (0, 0, 0, 0);
    let (mut known, began) = (Duration::ZERO, Instant::now());
    for seed in 1..=seeds {
        let settings = Settings {
            dead: number(1, 0.1),
            loss: number(2, 0.0),
            send_cost,
            latency,
            handling,
            events,
            period: Duration::from_secs(12),
            timeout_floor: micros(7, 200.0),
            heartbeat: number(8, 0.0) > 0.0,
            within: Duration::from_secs_f64(number(9, 5.0)),
            ..Settings::new(seed, sinks)
        };
        let report = run(&settings, &mut |_| {});
        for violation in &report.violations {
            println!("seed {seed}: {violation}");
        }
        for (times, shares) in report.arrivals.iter().zip(&mut shares) {
            let last = times.last().copied().unwrap_or_default();
            shares.push(last.as_secs_f64() / halves);
        }
        counts.0 += report.messages;
        counts.1 += report.counters.repeated;
        counts.2 += report.counters.taken_over;
        counts.3 += report.unknown;
        known = known.max(report.known.iter().max().copied().unwrap_or_default());
    }
    print!("two halves {:.2} ms;", halves * 1e3);
    for shares in &mut shares {
        shares.sort_by(f64::total_cmp);
        let (median, worst) = (shares[shares.len() / 2], shares[shares.len() - 1]);
        print!(" {median:.2} (worst {worst:.2})");
    }
    println!(
        "; {} messages, {} again, {} taken over, {} unknown; known after {known:?} at most; {:.0} s",
        counts.0,
        counts.1,
        counts.2,
        counts.3,
        began.elapsed().as_secs_f64()
    );
}

fn sources(arguments: &[String]) {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    let pacer = arguments.get(3).map_or("adaptive", String::as_str);
    for sources in [1, 2, 4, 8, 16] {
        let settings = Settings {
            sources,
            events: number(1).unwrap_or(20),
            period: Duration::from_micros(number(4).unwrap_or(0).into()),
            port_rate_bytes_per_s: Some(12_500_000),
            port_queue_bytes: number(2).unwrap_or(32_768).into(),
            pacer: Some(pacer.parse().expect("a pacer")),
            ..Settings::new(1, number(0).unwrap_or(200))
        };
        let report = run(&settings, &mut |_| {});
        for violation in &report.violations {
            println!("{violation}");
        }
        println!(
            "{sources} sources, {pacer}: {:.1} ms, median {:.1} ms; {} messages, {} dropped, {} of them at ports, \
             {} B waited at most; {} again, {} taken over, {} failed, {} unknown",
            report.completion().as_secs_f64() * 1e3,
            report.quantile(0.5).as_secs_f64() * 1e3,
            report.messages,
            report.dropped,
            report.port_dropped,
            report.port_queue_max,
            report.counters.repeated,
            report.counters.taken_over,
            report.failed,
            report.unknown,
        );
    }
}

fn mixed(runs: u64, seed: u64) {
    let print = |sum: &Series| {
        println!(
            "{} runs from seed {seed}: {} sinks, {} deliveries, {} called failed, {} unknown, {} lies, \
             {} forged, {} messages, {} broken promises",
            sum.runs,
            sum.sinks,
            sum.delivered,
            sum.failed_sinks,
            sum.unknown,
            sum.lies,
            sum.forged,
            sum.messages,
            sum.failures,
        );
    };
    let broken = |report: &Report| {
        for violation in &report.violations {
            println!("seed {}: {violation}", report.seed);
        }
        println!(
            "  again: chappe-lab sim tree --mixed 1 --seed {}",
            report.seed
        );
    };
    let sum = series(seed, runs, 1, broken, |sum| {
        if sum.runs.is_multiple_of(RUNS_A_LINE) {
            print(sum);
        }
        true
    });
    print(&sum);
}
