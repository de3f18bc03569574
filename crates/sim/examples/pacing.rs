//! What each pacer reaches beside the sweeps, on some networks: `pacing [PART] [SIZE] [NETWORK] [SEED]`.

use std::time::Duration;

use chappe_flow::pacer::{Choice, NapaConfig};
use chappe_sim::pacing::{Change, Outcome, Point, Settings, beyond_front, front, run};

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn point(settings: &Settings, seeds: u64) -> (Point, Outcome) {
    let outcomes: Vec<Outcome> = (0..seeds)
        .map(|seed| {
            let settings = Settings {
                seed: settings.seed + seed,
                ..settings.clone()
            };
            run(&settings).remove(0)
        })
        .collect();
    let of = |it: fn(&Outcome) -> f64| median(outcomes.iter().map(it).collect());
    let point = Point {
        throughput_bytes_per_s: of(|it| it.throughput_bytes_per_s),
        latency_s: of(|it| it.latency_p50_s),
    };
    (point, outcomes[0].clone())
}

/// Name, bytes a second, latency, queue, K, receiver's bytes a second, loss, jitter.
type Net = (&'static str, f64, u64, u64, u64, f64, f64, f64);
const NETS: [Net; 7] = [
    ("gigabit", 125e6, 100, 4 << 20, 1, 500e6, 0.0, 0.1),
    ("gigabit, K 10", 125e6, 100, 4 << 20, 10, 500e6, 0.0, 0.1),
    ("slow receiver", 1250e6, 20, 4 << 20, 1, 400e6, 0.0, 0.3),
    (
        "100 Mbit, 20 ms",
        12.5e6,
        20_000,
        1 << 20,
        2,
        500e6,
        0.0,
        0.1,
    ),
    ("gigabit, 0.1 %", 125e6, 100, 4 << 20, 1, 500e6, 0.001, 0.1),
    ("gigabit, 1 %", 125e6, 100, 4 << 20, 1, 500e6, 0.01, 0.1),
    ("gigabit, 5 %", 125e6, 100, 4 << 20, 1, 500e6, 0.05, 0.1),
];

fn settings(net: &Net, size: u64, choice: Choice) -> Settings {
    let seed = std::env::args().nth(4).and_then(|it| it.parse().ok());
    let mut settings = Settings::new(seed.unwrap_or(1), choice, size);
    settings.bottleneck.bytes_per_s = net.1;
    settings.bottleneck.latency = Duration::from_micros(net.2);
    settings.bottleneck.queue_bytes = net.3;
    settings.acknowledging.every = net.4;
    settings.acknowledging.missing_interval += 2 * settings.bottleneck.latency;
    settings.receivers[0].bytes_per_s = net.5;
    settings.receivers[0].jitter = net.7;
    settings.bottleneck.loss = net.6;
    settings
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let sizes: Vec<u64> = match arguments.next() {
        Some(size) => vec![size.parse().unwrap()],
        None => vec![5_000, 20_000, 50_000, 100_000, 200_000],
    };
    let only: Option<usize> = arguments.next().and_then(|it| it.parse().ok());
    let nets = NETS.iter().enumerate();
    let nets = nets.filter(|(index, _)| only.is_none_or(|only| only == *index));
    let nets = nets.map(|(_, net)| net);
    for net in nets {
        for size in &sizes {
            match part.as_str() {
                "moments" => moments(net, *size),
                "events" => events(net, *size),
                _ => fronts(net, *size, part == "all"),
            }
        }
    }
}

fn fronts(net: &Net, size: u64, all: bool) {
    let base = settings(net, size, Choice::default());
    let capacity = base.capacity_bytes_per_s();
    let least = base.latency_least_s();
    let mut points = Vec::new();
    let t_m = size as f64 / capacity;
    let windows = (0..=10).map(|power| Choice::FixedWindow(1 << power));
    let periods = (0..25).map(|step| {
        let factor = 0.5 * 20f64.powf(f64::from(step) / 24.0);
        Choice::FixedPeriod(Duration::from_secs_f64((t_m * factor).min(1.0)))
    });
    let show = |name: &str, point: &Point, front: &[Point], outcome: &Outcome| {
        println!(
            "{:<16} {:>6} {name:<24} {:>6.1} % of C, {:>8.2} x least, p99 {:>8.2} x, {:>6.1} % again, beyond {:>6.1} %, {:>5.1} % of best",
            net.0,
            size,
            point.throughput_bytes_per_s / capacity * 100.0,
            point.latency_s / least,
            outcome.latency_p99_s / least,
            outcome.sent_again as f64 / outcome.sent.max(1) as f64 * 100.0,
            beyond_front(*point, front) * 100.0,
            point.throughput_bytes_per_s / front.last().map_or(1.0, |it| it.throughput_bytes_per_s)
                * 100.0
        );
    };
    let points_only = std::env::args().nth(1).is_some_and(|it| it == "points");
    for choice in windows.chain(periods).filter(|_| !points_only) {
        let name = choice.to_string();
        let (point, outcome) = point(&settings(net, size, choice), 3);
        points.push(point);
        if all {
            show(&name, &point, &[], &outcome);
        }
    }
    let front = front(&points);
    let napa = NapaConfig {
        capacity_bytes_per_s: net.1,
        acknowledged_at_once: net.4,
        ..NapaConfig::default()
    };
    for choice in [Choice::Flood, Choice::Napa(napa), Choice::default()] {
        if points_only && choice != Choice::default() {
            continue;
        }
        let name = choice.to_string();
        let (point, outcome) = point(&settings(net, size, choice), 3);
        show(&name, &point, &front, &outcome);
    }
}

fn print(moments: &[chappe_sim::pacing::Moment], every: usize) {
    for moment in moments.iter().step_by(every) {
        println!(
            "  {:>5.1} s {:>8.2} MB/s {:>9.3} ms, again {:>5}, N {:>4}, T {:>8.1} us",
            moment.at_s,
            moment.throughput_bytes_per_s / 1e6,
            moment.latency_p50_s * 1e3,
            moment.sent_again,
            moment.occupation,
            moment.period_s * 1e6
        );
    }
}

fn moments(net: &Net, size: u64) {
    let outcome = run(&settings(net, size, Choice::default())).remove(0);
    println!("{} {size}", net.0);
    print(&outcome.moments, 1);
}

fn events(net: &Net, size: u64) {
    let seconds = Duration::from_secs;
    let mut collapsed = settings(net, size, Choice::Flood);
    collapsed.changes = vec![(
        seconds(2),
        Change::Pacer {
            sender: 0,
            choice: Choice::default(),
        },
    )];
    collapsed.window = 256;
    collapsed.duration = seconds(5);
    println!("{} {size}: flood, from 2 s adaptive", net.0);
    print(&run(&collapsed).remove(0).moments, 2);
    let mut halved = settings(net, size, Choice::default());
    halved.receivers[0].bytes_per_s = halved.bottleneck.bytes_per_s * 1.1;
    halved.changes = vec![(
        seconds(2),
        Change::Slower {
            receiver: 0,
            factor: 2.0,
        },
    )];
    halved.duration = seconds(5);
    println!("{} {size}: receiver halves its speed at 2 s", net.0);
    print(&run(&halved).remove(0).moments, 2);
    let mut two = settings(net, size, Choice::default());
    two.senders.push((Choice::default(), seconds(2)));
    two.warm_up = seconds(10);
    two.duration = seconds(20);
    for outcome in run(&two) {
        println!(
            "{} {size}: one of two {:.2} MB/s, {:.3} ms",
            net.0,
            outcome.throughput_bytes_per_s / 1e6,
            outcome.latency_p50_s * 1e3
        );
    }
}
