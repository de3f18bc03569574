//! Pacers over real carriers: a publisher and a subscriber as two processes of the program under
//! test, on plain loopback and through a bottleneck, which for DDS may lose frames.
//!
//! For each size, flooding and the fixed windows come first: they show what the path carries. Then
//! follow fixed periods around the time of a sample at that rate. They define the front: points
//! that no other beats in both throughput and median latency. A period at which more was sent than
//! arrived is excluded: in so short a measurement it has the throughput of a full queue and the
//! latency of one that is still filling. Then follow `napa` and `adaptive`, which get no setting
//! that they could not know, and their distance from the front. These figures are reported; only
//! the simulation is judged.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use chappe_sim::pacing::{Point, beyond_front, front};
use serde_json::Value;

use super::bottleneck::{Bottleneck, Narrow};
use super::cable::{self, Cable};
use crate::plot::{Mark, Plot, Scale, Series};
use crate::process::Process;
use crate::{Error, Report, Settings};

const SIZES: [usize; 5] = [5_000, 20_000, 50_000, 100_000, 200_000];
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
/// Share of frames lost by the lossy bottleneck.
const LOSS: f64 = 0.01;
/// Domains of DDS that hardly anybody uses.
const DOMAIN: u32 = 100;

/// The carrier of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Zeromq,
    Dds,
}

/// The path between the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Loopback,
    Narrow,
    Lossy,
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
            Self::Zeromq => &[Route::Loopback, Route::Narrow],
            _ => &[Route::Loopback, Route::Narrow, Route::Lossy],
        }
    }

    /// The arguments of `chappe perf`.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Zeromq => &["--over", "zeromq"],
            Self::Dds => &["--over", "dds"],
        }
    }
}

impl Route {
    const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Narrow => "narrow",
            Self::Lossy => "lossy",
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
        if settings.quick {
            Self {
                sizes: vec![5_000, 100_000],
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
                sizes: SIZES.to_vec(),
                windows: WINDOWS.to_vec(),
                periods: 25,
                repeats: 3,
                sweep: (ms(100), ms(300)),
                adapt: (ms(3_000), ms(2_000)),
            }
        }
    }
}

/// The result of a setting.
#[derive(Debug, Clone)]
struct Measured {
    pacer: String,
    size: usize,
    point: Point,
    p99_s: f64,
    /// Samples sent a second for each received.
    offered: f64,
    occupation: f64,
    period_us: f64,
    lost: u64,
    sent_again: Option<u64>,
}

/// Measures everything over one carrier.
pub(super) fn run(carrier: Carrier, settings: &Settings, report: &mut Report) -> Result<(), Error> {
    for route in carrier.routes() {
        let route = *route;
        let extent = Extent::of(settings);
        let mut all = Vec::new();
        for size in &extent.sizes {
            (settings.progress)(&format!(
                "{} {}, {size} bytes",
                carrier.name(),
                route.name()
            ));
            match measure(carrier, route, *size, &extent, settings) {
                Ok(measured) => {
                    tell(carrier, route, *size, &measured, report);
                    all.extend(measured);
                }
                Err(error) => {
                    let what =
                        format!("{} {}, {size} bytes: {error}", carrier.name(), route.name());
                    report.skipped.push(what);
                }
            }
        }
        if !all.is_empty() {
            report
                .tables
                .insert(format!("{}-{}", carrier.name(), route.name()), table(&all));
        }
    }
    Ok(())
}

fn measure(
    carrier: Carrier,
    route: Route,
    size: usize,
    extent: &Extent,
    settings: &Settings,
) -> Result<Vec<Measured>, Error> {
    let most = match carrier {
        Carrier::Zeromq => 1_024,
        _ => u32::try_from(DDS_BYTES_MAX / size)
            .unwrap_or(u32::MAX)
            .min(1_024),
    };
    let program = settings.chappe()?;
    let pair = Pair {
        carrier,
        route,
        size,
        window: most,
        seed: settings.seed,
        program: &program,
    };
    let windows = extent.windows.iter().filter(|window| **window <= most);
    let windows = windows.map(|window| format!("fixed_window:{window}"));
    let pacers: Vec<_> = std::iter::once("flood".to_owned()).chain(windows).collect();
    let mut all = pair.run(&pacers, extent.sweep, 1, None)?;
    let rates = all.iter().map(|it| it.point.throughput_bytes_per_s);
    let capacity = match route {
        Route::Loopback => rates.fold(1.0, f64::max),
        Route::Narrow | Route::Lossy => f64::from(NARROW.bytes_per_s),
    };
    let steps = extent.periods.saturating_sub(1).max(1) as f64;
    let periods = (0..extent.periods).map(|step| {
        let factor = PERIODS.0 * (PERIODS.1 / PERIODS.0).powf(step as f64 / steps);
        format!(
            "fixed_period:{:.3}us",
            size as f64 / capacity * factor * 1e6
        )
    });
    let periods: Vec<_> = periods.collect();
    all.extend(pair.run(&periods, extent.sweep, extent.repeats, None)?);
    let adapting = ["napa".to_owned(), "adaptive".to_owned()];
    all.extend(pair.run(&adapting, extent.adapt, 1, Some(capacity))?);
    Ok(all)
}

/// Two processes and the path between them.
struct Pair<'a> {
    carrier: Carrier,
    route: Route,
    size: usize,
    window: u32,
    seed: u64,
    program: &'a std::path::Path,
}

impl Pair<'_> {
    fn run(
        &self,
        pacers: &[String],
        times: (Duration, Duration),
        repeats: usize,
        capacity: Option<f64>,
    ) -> Result<Vec<Measured>, Error> {
        let loss = match (self.carrier, self.route) {
            (Carrier::Zeromq, _) | (_, Route::Loopback) => {
                return self.run_here(pacers, times, repeats, capacity, None);
            }
            (_, Route::Narrow) => 0.0,
            (_, Route::Lossy) => LOSS,
        };
        // In a separate thread, for a separate network.
        std::thread::scope(|scope| {
            let within = scope.spawn(|| {
                let cable = Cable::lay(NARROW, loss, self.seed)?;
                self.run_here(pacers, times, repeats, capacity, Some(&cable))
            });
            within
                .join()
                .unwrap_or_else(|_| Err(Error::Failed("the run panicked".to_owned())))
        })
    }

    fn run_here(
        &self,
        pacers: &[String],
        times: (Duration, Duration),
        repeats: usize,
        capacity: Option<f64>,
        cable: Option<&Cable>,
    ) -> Result<Vec<Measured>, Error> {
        let us = |time: Duration| format!("{}us", time.as_micros());
        let domain = (DOMAIN + std::process::id() % 100).to_string();
        let common = |command: &mut Command| {
            command.args(["--json", "--interval", "1h", "--wait", "20s"]);
            command.args(["--window", &self.window.to_string()]);
            command.args(self.carrier.arguments());
            if self.carrier != Carrier::Zeromq {
                command.args(["--domain", &domain]);
            }
        };
        let mut publish = Command::new(self.program);
        publish.args([
            "perf",
            "pub",
            "--listen",
            "tcp://127.0.0.1:0",
            "--spin-us",
            "50",
        ]);
        common(&mut publish);
        publish.args([
            "--size",
            &self.size.to_string(),
            "--pacer",
            &pacers.join(","),
        ]);
        publish.args(["--repeats", &repeats.to_string()]);
        publish.args(["--warm-up", &us(times.0), "--duration", &us(times.1)]);
        if let Some(capacity) = capacity {
            publish.args(["--capacity", &format!("{:.0}bit", capacity * 8.0)]);
        }
        if cable.is_some() {
            publish.args(["--address", cable::NEAR]);
        }
        let mut publisher = Process::start_with_errors(&mut publish, "the publisher")?;
        let listening = event(&mut publisher, "listening")?;
        let mut endpoint = listening["endpoint"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let mut relay = None;
        if (self.carrier, self.route) == (Carrier::Zeromq, Route::Narrow) {
            let to = endpoint.trim_start_matches("tcp://").parse();
            let to = to.map_err(Error::failed("reading the publisher's address"))?;
            let started = Bottleneck::start(to, NARROW).map_err(Error::io("starting the relay"))?;
            endpoint = format!("tcp://{}", started.address());
            relay = Some(started);
        }
        let mut subscribe = Command::new(self.program);
        subscribe.args(["perf", "sub", "--connect", &endpoint, "--idle", "40s"]);
        common(&mut subscribe);
        if cable.is_some() {
            subscribe.args(["--address", cable::FAR]);
        }
        let mut start = || Process::start_with_errors(&mut subscribe, "the subscriber");
        let mut subscriber = match cable {
            Some(cable) => cable.far(start)?,
            None => start()?,
        };
        let published = event(&mut publisher, "published")?;
        let subscribed = event(&mut subscriber, "subscribed")?;
        drop(relay);
        Ok(join(&published, &subscribed))
    }
}

/// The next event of this name that a process prints.
fn event(process: &mut Process, name: &str) -> Result<Value, Error> {
    loop {
        let line = process.line()?;
        let value: Value =
            serde_json::from_str(&line).map_err(Error::failed("reading its measurements"))?;
        if value["event"] == name {
            return Ok(value);
        }
    }
}

/// The figures of both ends for each phase.
fn join(published: &Value, subscribed: &Value) -> Vec<Measured> {
    let phases = |value: &Value| value["phases"].as_array().cloned().unwrap_or_default();
    let seen = phases(subscribed);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let joined = phases(published).into_iter().filter_map(|sent| {
        let seen = seen.iter().find(|seen| seen["phase"] == sent["phase"])?;
        let received = number(&seen["rate_per_s"]);
        Some(Measured {
            pacer: sent["pacer"].as_str().unwrap_or_default().to_owned(),
            size: usize::try_from(sent["size_bytes"].as_u64().unwrap_or(0)).unwrap_or(0),
            point: Point {
                throughput_bytes_per_s: number(&seen["bytes_per_s"]),
                latency_s: number(&seen["latency"]["p50_us"]) / 1e6,
            },
            p99_s: number(&seen["latency"]["p99_us"]) / 1e6,
            offered: if received > 0.0 {
                number(&sent["rate_per_s"]) / received
            } else {
                f64::INFINITY
            },
            occupation: number(&sent["occupation_mean"]),
            period_us: number(&sent["period_us"]),
            lost: seen["lost"].as_u64().unwrap_or(0),
            sent_again: sent["sent_again"].as_u64(),
        })
    });
    joined.collect()
}

impl Measured {
    fn kind(&self) -> &str {
        self.pacer.split(':').next().unwrap_or_default()
    }

    /// Whether it could continue at this rate.
    fn is_steady(&self) -> bool {
        self.kind() != "fixed_period" || self.offered <= UNSTEADY
    }
}

fn tell(carrier: Carrier, route: Route, size: usize, all: &[Measured], report: &mut Report) {
    let swept = |it: &&Measured| matches!(it.kind(), "flood" | "fixed_window" | "fixed_period");
    let points: Vec<_> = all
        .iter()
        .filter(swept)
        .filter(|it| it.is_steady())
        .map(|it| it.point)
        .collect();
    let front = front(&points);
    let place = format!("{} {} {} kB", carrier.name(), route.name(), size / 1_000);
    for kind in ["flood", "fixed_window", "fixed_period", "napa", "adaptive"] {
        let of_kind = all.iter().filter(|it| it.kind() == kind && it.is_steady());
        // Of a sweep, the point with the best ratio of throughput to latency: power, after
        // Kleinrock.
        let power = |it: &Measured| it.point.throughput_bytes_per_s / it.point.latency_s.max(1e-9);
        let Some(best) = of_kind.max_by(|a, b| power(a).total_cmp(&power(b))) else {
            continue;
        };
        let (median_ms, p99_ms) = (best.point.latency_s * 1e3, best.p99_s * 1e3);
        let beyond = beyond_front(best.point, &front) * 100.0;
        let note = format!(
            "{}: p50 {median_ms:.3} ms, p99 {p99_ms:.3} ms, {:.1} in flight, {} lost, {beyond:.0} % beyond the front",
            best.pacer, best.occupation, best.lost
        );
        let rate = best.point.throughput_bytes_per_s / 1e6;
        report.row(&format!("{place}, {kind}"), rate, "MB/s", note);
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
    let (carrier, route, kilobytes) = (carrier.name(), route.name(), size / 1_000);
    let title = format!("{carrier} over {route}, {kilobytes} kB");
    let plot = Plot {
        scales: [Scale::Logarithmic; 2],
        ..Plot::new(title, "received MB/s", "median latency, ms")
    };
    let plot = plot.with(series).with([on_front]);
    report.figure(format!("{carrier}-{route}-{kilobytes}kB"), &plot);
}

fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "size_bytes,pacer,received_bytes_per_s,latency_p50_s,latency_p99_s,sent_for_each_received,\
         occupation_mean,period_us,lost,sent_again,steady\n",
    );
    for it in all {
        let again = it
            .sent_again
            .map_or(String::new(), |again| again.to_string());
        let _ = writeln!(
            text,
            "{},{},{:.0},{:.7},{:.7},{:.4},{:.2},{:.2},{},{again},{}",
            it.size,
            it.pacer,
            it.point.throughput_bytes_per_s,
            it.point.latency_s,
            it.p99_s,
            it.offered,
            it.occupation,
            it.period_us,
            it.lost,
            it.is_steady()
        );
    }
    text
}
