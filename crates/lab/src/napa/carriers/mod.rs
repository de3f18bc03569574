//! Pacers over real carriers: a publisher and a subscriber as two processes of the program under
//! test, on plain loopback and through a bottleneck, which for DDS may lose frames.
//!
//! For each size, flooding and the fixed windows come first: they show what the path carries. Then
//! follow fixed periods around the time of a sample at that rate, and then `napa` and `adaptive`,
//! which get no setting that they could not know. All of this is repeated, and each setting counts
//! with its medians, so that a disturbance of the machine falls on all of them.
//!
//! The fixed settings define the front: points that no other beats in both throughput and median
//! latency. A period at which more was sent than arrived is excluded: in so short a measurement it
//! has the throughput of a full queue and the latency of one that is still filling. `adaptive` is
//! judged by the front's highest throughput, and by the latency that the front has for the
//! throughput that `adaptive` reaches.

mod changes;
mod pair;

use std::fmt::Write as _;
use std::time::Duration;

use chappe_sim::pacing::{Point, beyond_front, front};

use super::bottleneck::Narrow;
use crate::plot::{self, Mark, Plot, Scale, Series};
use crate::report::file_name;
use crate::timing::median;
use crate::{Error, Limit, Reference, Report, Settings};
use pair::Measured;
pub(super) use pair::Pair;

pub(super) const SIZES: [usize; 6] = [5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
const WINDOWS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
/// Over DDS no more is ever in flight (`chappe_dds::UNACKNOWLEDGED_BYTES_MAX`).
const DDS_BYTES_MAX: usize = 15 << 19;
/// Periods from half the time of a sample to eight times that.
const PERIODS: (f64, f64) = (0.5, 8.0);
/// If the number sent exceeds the number that arrived by this factor, the queue was filling.
const UNSTEADY: f64 = 1.1;
/// The bottleneck: 200 Mbit/s, half a millisecond, a queue of 20 ms.
const NARROW: Narrow = Narrow {
    bytes_per_s: 25_000_000,
    latency: Duration::from_micros(500),
    queue_bytes: 500_000,
};
/// The latency that `adaptive` may have, by that of the front.
const LATENCY: f64 = 1.5;

/// The carrier of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Zeromq,
    Dds,
}

/// The path between the processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Route {
    Loopback,
    /// The bottleneck, which loses this share of the frames.
    Narrow(f64),
}

impl Carrier {
    pub(super) const ALL: &[Self] = &[Self::Zeromq, Self::Dds];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zeromq => "zeromq",
            Self::Dds => "dds",
        }
    }

    /// A relay of streams loses nothing.
    const fn routes(self) -> &'static [Route] {
        match self {
            Self::Zeromq => &[Route::Loopback, Route::Narrow(0.0)],
            Self::Dds => &[
                Route::Loopback,
                Route::Narrow(0.0),
                Route::Narrow(0.001),
                Route::Narrow(0.01),
                Route::Narrow(0.05),
            ],
        }
    }

    /// The most samples of a size that may be in flight.
    pub(super) fn window(self, size: usize) -> u32 {
        let most = match self {
            Self::Zeromq => usize::MAX,
            Self::Dds => DDS_BYTES_MAX / size,
        };
        u32::try_from(most).unwrap_or(u32::MAX).min(1_024)
    }
}

impl Route {
    fn name(self) -> String {
        match self {
            Self::Loopback => "loopback".to_owned(),
            Self::Narrow(0.0) => "narrow".to_owned(),
            Self::Narrow(loss) => format!("narrow, {} % lost", loss * 100.0),
        }
    }

    /// The share of the front's highest throughput that `adaptive` is to reach.
    fn share(self) -> f64 {
        match self {
            Self::Loopback | Self::Narrow(0.0) => 0.95,
            Self::Narrow(loss) if loss <= 0.01 => 0.9,
            Self::Narrow(_) => 0.8,
        }
    }
}

/// The extent of the measurement.
struct Extent {
    sizes: Vec<usize>,
    windows: Vec<u32>,
    periods: usize,
    repeats: usize,
    /// Warm-up and duration of a point of the sweeps, and of the adaptive ones.
    sweep: (Duration, Duration),
    adapt: (Duration, Duration),
}

impl Extent {
    fn of(settings: &Settings) -> Self {
        let ms = Duration::from_millis;
        let sizes = |all: &[usize]| match settings.sizes.as_slice() {
            [] => all.to_vec(),
            chosen => chosen.to_vec(),
        };
        if settings.quick {
            Self {
                sizes: sizes(&[5_000, 100_000]),
                windows: WINDOWS
                    .into_iter()
                    .filter(|it| it.trailing_zeros() % 2 == 0 && *it <= 256)
                    .collect(),
                periods: 7,
                repeats: 1,
                sweep: (ms(50), ms(200)),
                adapt: (ms(1_500), ms(1_000)),
            }
        } else {
            Self {
                sizes: sizes(&SIZES),
                windows: WINDOWS.to_vec(),
                periods: 25,
                repeats: 3,
                sweep: (ms(100), ms(300)),
                adapt: (ms(3_000), ms(2_000)),
            }
        }
    }
}

/// Measures everything over one carrier.
pub(super) fn run(carrier: Carrier, settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let extent = Extent::of(settings);
    let program = settings.chappe()?;
    let narrow = Pair::new(carrier, Route::Narrow(0.0), 0, 0, &program, settings.seed);
    let no_cable = narrow.within(|_cable| Ok(())).err();
    for route in carrier.routes() {
        let route = *route;
        if let (Some(error), Route::Narrow(_)) = (&no_cable, route) {
            let what = format!("{} {}: {error}", carrier.name(), route.name());
            report.skipped.push(what);
            continue;
        }
        let place = format!("{} {}", carrier.name(), route.name());
        let mut all = Vec::new();
        let mut by_size = BySize::default();
        for size in &extent.sizes {
            (settings.progress)(&format!("{place}, {size} bytes"));
            match measure(carrier, route, *size, &extent, settings) {
                Ok(measured) => {
                    tell(&place, route, *size, &measured, &mut by_size, report);
                    all.extend(measured);
                }
                Err(error) => report.failed(&format!("{place}, {size} bytes"), &error),
            }
        }
        if !all.is_empty() {
            report.tables.insert(file_name(&place), table(&all));
            by_size.figures(&place, report);
        }
    }
    if no_cable.is_none() {
        changes::run(carrier, settings, report)?;
    }
    Ok(())
}

/// The medians of all settings for samples of a size.
fn measure(
    carrier: Carrier,
    route: Route,
    size: usize,
    extent: &Extent,
    settings: &Settings,
) -> Result<Vec<Measured>, Error> {
    let most = carrier.window(size);
    let program = settings.chappe()?;
    let pair = Pair::new(carrier, route, size, most, &program, settings.seed);
    let windows = extent.windows.iter().filter(|window| **window <= most);
    let windows = windows.map(|window| format!("fixed_window:{window}"));
    let pacers: Vec<_> = std::iter::once("flood".to_owned()).chain(windows).collect();
    let adapting = ["napa".to_owned(), "adaptive".to_owned()];
    let mut repeats = Vec::new();
    // The same in all repeats.
    let mut capacity = match route {
        Route::Loopback => None,
        Route::Narrow(_) => Some(f64::from(NARROW.bytes_per_s)),
    };
    for _ in 0..extent.repeats {
        let mut all = pair.run(&pacers, extent.sweep, None)?;
        let rates = all.iter().map(|it| it.point.throughput_bytes_per_s);
        let capacity = *capacity.get_or_insert_with(|| rates.fold(1.0, f64::max));
        let periods: Vec<_> = periods(extent.periods, size as f64 / capacity).collect();
        all.extend(pair.run(&periods, extent.sweep, None)?);
        all.extend(pair.run(&adapting, extent.adapt, Some(capacity))?);
        repeats.push(all);
    }
    Ok(medians(&repeats))
}

/// Periods around the time that a sample takes, seconds.
fn periods(count: usize, sample_s: f64) -> impl Iterator<Item = String> {
    let steps = count.saturating_sub(1).max(1) as f64;
    (0..count).map(move |step| {
        let factor = PERIODS.0 * (PERIODS.1 / PERIODS.0).powf(step as f64 / steps);
        format!("fixed_period:{:.3}us", sample_s * factor * 1e6)
    })
}

/// Each setting with the medians of its repeats; one that a repeat lacks is left out.
fn medians(repeats: &[Vec<Measured>]) -> Vec<Measured> {
    let Some((first, others)) = repeats.split_first() else {
        return Vec::new();
    };
    let of_all = |one: &Measured| {
        let same = |all: &Vec<Measured>| all.iter().find(|it| it.pacer == one.pacer).cloned();
        let all: Option<Vec<Measured>> = others.iter().map(same).collect();
        let all: Vec<Measured> = std::iter::once(one.clone()).chain(all?).collect();
        let of = |value: fn(&Measured) -> f64| median(all.iter().map(value));
        Some(Measured {
            point: Point {
                throughput_bytes_per_s: of(|it| it.point.throughput_bytes_per_s),
                latency_s: of(|it| it.point.latency_s),
            },
            p99_s: of(|it| it.p99_s),
            offered: of(|it| it.offered),
            occupation: of(|it| it.occupation),
            period_us: of(|it| it.period_us),
            lost: all.iter().map(|it| it.lost).sum(),
            ..one.clone()
        })
    };
    first.iter().filter_map(of_all).collect()
}

/// Whether a setting could continue at its rate.
fn is_steady(one: &Measured) -> bool {
    one.kind() != "fixed_period" || one.offered <= UNSTEADY
}

/// The least latency with which the front has this throughput; that of its highest throughput if it has less.
fn latency_for(throughput_bytes_per_s: f64, front: &[Point]) -> Option<Point> {
    let enough = |point: &&Point| point.throughput_bytes_per_s >= throughput_bytes_per_s;
    front.iter().find(enough).or(front.last()).copied()
}

/// Rows, targets and figures of samples of a size.
fn tell(
    place: &str,
    route: Route,
    size: usize,
    all: &[Measured],
    by_size: &mut BySize,
    report: &mut Report,
) {
    let swept = |it: &&Measured| matches!(it.kind(), "flood" | "fixed_window" | "fixed_period");
    let steady = all.iter().filter(swept).filter(|it| is_steady(it));
    let points: Vec<_> = steady.map(|it| it.point).collect();
    let front = front(&points);
    let kilobytes = size / 1_000;
    let name = format!("{place}, {kilobytes} kB");
    for kind in ["flood", "fixed_window", "fixed_period", "napa", "adaptive"] {
        let of_kind = all.iter().filter(|it| it.kind() == kind && is_steady(it));
        // Of a sweep, the point with the best ratio of throughput to latency: power, after
        // Kleinrock.
        let power = |it: &Measured| it.point.throughput_bytes_per_s / it.point.latency_s.max(1e-9);
        let Some(best) = of_kind.max_by(|a, b| power(a).total_cmp(&power(b))) else {
            continue;
        };
        let (median_ms, p99_ms) = (best.point.latency_s * 1e3, best.p99_s * 1e3);
        let beyond = beyond_front(best.point, &front) * 100.0;
        let mut note = format!(
            "{}: p50 {median_ms:.3} ms, p99 {p99_ms:.3} ms, {:.1} in flight, {} lost, {beyond:.0} % beyond the front",
            best.pacer, best.occupation, best.lost
        );
        if kind == "napa" {
            let (low, high) = best.accepted;
            let _ = write!(note, "; accepts {low} to {high} in flight (W = {high})");
        }
        let rate = best.point.throughput_bytes_per_s / 1e6;
        report.row(&format!("{name}, {kind}"), rate, "MB/s", note);
        if !matches!(kind, "fixed_window" | "fixed_period") {
            by_size.add(kind, kilobytes, best.point);
        }
    }
    if let Some(adaptive) = all.iter().find(|it| it.kind() == "adaptive") {
        judge(&name, route, adaptive.point, &front, report);
    }
    let place_of = |it: &Point| (it.throughput_bytes_per_s / 1e6, it.latency_s * 1e3);
    let series = ["flood", "fixed_window", "fixed_period", "napa", "adaptive"].map(|kind| {
        let mark = match kind {
            "fixed_window" => Mark::Both,
            _ => Mark::Points,
        };
        let points = all.iter().filter(|it| it.kind() == kind);
        Series::new(kind, mark).with(points.map(|it| place_of(&it.point)))
    });
    let on_front = Series::new("front", Mark::Both).with(front.iter().map(place_of));
    let plot = Plot {
        scales: [Scale::Logarithmic; 2],
        ..Plot::new(name.clone(), "received MB/s", "median latency, ms")
    };
    let plot = plot.with(series).with([on_front]);
    report.figure(file_name(&name), &plot);
}

/// The targets of `adaptive`.
fn judge(name: &str, route: Route, adaptive: Point, front: &[Point], report: &mut Report) {
    let reached = adaptive.throughput_bytes_per_s;
    let (Some(best), Some(same)) = (front.last(), latency_for(reached, front)) else {
        return;
    };
    let highest = Reference::new("the front's highest", best.throughput_bytes_per_s / 1e6);
    report.target(
        format!("{name}: adaptive, throughput"),
        (reached / 1e6, "MB/s"),
        highest,
        Limit::AtLeast(route.share()),
    );
    let there = Reference::new("the front at this throughput", same.latency_s * 1e3);
    report.target(
        format!("{name}: adaptive, median latency"),
        (adaptive.latency_s * 1e3, "ms"),
        there,
        Limit::AtMost(LATENCY),
    );
}

/// The paper's figures 7 and 8: throughput and latency by size.
#[derive(Default)]
struct BySize {
    throughput: Vec<Series>,
    latency: Vec<Series>,
}

impl BySize {
    fn add(&mut self, kind: &str, kilobytes: usize, point: Point) {
        let kilobytes = kilobytes as f64;
        let megabytes = point.throughput_bytes_per_s / 1e6;
        plot::add(&mut self.throughput, kind, (kilobytes, megabytes));
        let milliseconds = point.latency_s.max(1e-6) * 1e3;
        plot::add(&mut self.latency, kind, (kilobytes, milliseconds));
    }

    fn figures(self, place: &str, report: &mut Report) {
        let plot = Plot::new(format!("Throughput by size, {place}"), "kB", "MB/s");
        let file = file_name(&format!("throughput {place}"));
        report.figure(file, &plot.with(self.throughput));
        let plot = Plot {
            scales: [Scale::Linear, Scale::Logarithmic],
            ..Plot::new(format!("Median latency by size, {place}"), "kB", "ms")
        };
        let file = file_name(&format!("latency {place}"));
        report.figure(file, &plot.with(self.latency));
    }
}

fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "size_bytes,pacer,received_bytes_per_s,latency_p50_s,latency_p99_s,sent_for_each_received,\
         occupation_mean,period_us,lost,low_threshold,high_threshold,steady\n",
    );
    for it in all {
        let (low, high) = it.accepted;
        let _ = writeln!(
            text,
            "{},{},{:.0},{:.7},{:.7},{:.4},{:.2},{:.2},{},{low},{high},{}",
            it.size,
            it.pacer,
            it.point.throughput_bytes_per_s,
            it.point.latency_s,
            it.p99_s,
            it.offered,
            it.occupation,
            it.period_us,
            it.lost,
            is_steady(it)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(pacer: &str, throughput_bytes_per_s: f64, latency_s: f64) -> Measured {
        Measured {
            pacer: pacer.to_owned(),
            size: 5_000,
            point: Point {
                throughput_bytes_per_s,
                latency_s,
            },
            p99_s: latency_s,
            offered: 1.0,
            occupation: 1.0,
            period_us: 1.0,
            lost: 1,
            accepted: (1, 2),
            round_trip_halved_s: None,
        }
    }

    #[test]
    fn a_setting_counts_with_the_medians_of_its_repeats() {
        let repeat = |rate: f64, latency: f64| {
            vec![
                measured("flood", rate, latency),
                measured("napa", 1.0, latency),
            ]
        };
        let mut repeats = vec![repeat(10.0, 0.3), repeat(30.0, 0.1), repeat(20.0, 0.2)];
        let all = medians(&repeats);
        let flood = &all[0];
        assert_eq!(flood.pacer, "flood");
        assert_eq!(flood.point, measured("", 20.0, 0.2).point);
        assert_eq!((all.len(), flood.lost), (2, 3));
        repeats[1].pop();
        assert_eq!(medians(&repeats).len(), 1, "one repeat has no napa");
    }

    #[test]
    fn latency_is_compared_with_the_fronts_for_as_much_throughput() {
        let points = [(10.0, 0.1), (20.0, 0.2), (30.0, 0.9)];
        let front = points.map(|(rate, latency)| measured("", rate, latency).point);
        let least = |rate: f64| latency_for(rate, &front).map(|point| point.latency_s);
        let expected = [
            (5.0, 0.1),
            (10.0, 0.1),
            (15.0, 0.2),
            (30.0, 0.9),
            (40.0, 0.9),
        ];
        for (rate, latency) in expected {
            assert_eq!(least(rate), Some(latency));
        }
        assert_eq!(latency_for(1.0, &[]), None);
    }

    #[test]
    fn periods_surround_the_time_of_a_sample() {
        let all: Vec<_> = periods(5, 1e-3).collect();
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], "fixed_period:500.000us");
        assert_eq!(all[4], "fixed_period:8000.000us");
    }
}
