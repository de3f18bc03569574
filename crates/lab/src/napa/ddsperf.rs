//! `chappe perf` over DDS next to `ddsperf` of Cyclone DDS: both reliable and keeping all, on the loopback, in turns.

use std::process::Command;
use std::time::Duration;

use super::carriers::{Carrier, Pair, Route};
use crate::process::Process;
use crate::timing::median;
use crate::{Error, Limit, Reference, Report, Settings};

const SIZES: [usize; 3] = [1_000, 5_000, 100_000];
/// Bytes of a ping. `ddsperf` sends 12 by default, and `chappe perf` at least 40.
const PING_BYTES: usize = 40;
/// A domain of DDS that hardly anybody uses.
const DOMAIN: u32 = 90;
/// Throughput that `chappe perf` is to reach, and latency that it may have, of those of `ddsperf`.
const THROUGHPUT: f64 = 0.9;
const LATENCY: f64 = 1.2;
/// How it is notified of a sample: by default in the library's receiving thread, or in a thread of its own, as in `chappe perf`.
const LISTENER: &str = "listener";
const WAITSET: &str = "waitset";
/// Both ends use the loopback only.
const CONFIGURATION: &str = "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name=\"lo\"/>\
     </Interfaces></General></Domain></CycloneDDS>";
/// The receiver starts before the sender and ends after it.
const MARGIN: Duration = Duration::from_secs(2);

/// Throughput by size, and latency.
pub(super) fn run(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    if let Err(error) = Command::new("ddsperf").arg("help").output() {
        let hint = "install cyclonedds-tools";
        report.skipped.push(format!("ddsperf: {error}; {hint}"));
        return Ok(());
    }
    let program = settings.chappe()?;
    let (repeats, time) = match settings.quick {
        true => (1, Duration::from_secs(3)),
        false => (3, Duration::from_secs(8)),
    };
    let warm_up = Duration::from_secs(1);
    let pair = |size| {
        let (carrier, route) = (Carrier::Dds, Route::Loopback);
        let window = carrier.window(size);
        Pair::new(carrier, route, size, window, &program, settings.seed)
    };
    for size in SIZES {
        (settings.progress)(&format!("ddsperf, {size} bytes"));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let measured = pair(size).run(&["flood".to_owned()], (warm_up, time), None)?;
            ours.extend(measured.iter().map(|it| it.point.throughput_bytes_per_s));
            theirs.push(samples_per_s(size, time)? * size as f64);
        }
        let peer = Reference::new("ddsperf", median(theirs) / 1e6);
        let reached = (median(ours) / 1e6, "MB/s");
        let name = format!("chappe perf over DDS, {size} bytes: throughput");
        report.target(name, reached, peer, Limit::AtLeast(THROUGHPUT));
    }
    (settings.progress)("ddsperf, latency");
    let (mut ours, mut theirs, mut by_waitset) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let mut one = pair(PING_BYTES);
        one.echo = 1;
        let measured = one.run(&["fixed_window:1".to_owned()], (warm_up, time), None)?;
        ours.extend(measured.iter().filter_map(|it| it.round_trip_halved_s));
        theirs.push(round_trip_halved_s(time, LISTENER)?);
        by_waitset.push(round_trip_halved_s(time, WAITSET)?);
    }
    let peer = Reference::new("ddsperf", median(theirs) * 1e6);
    let reached = (median(ours) * 1e6, "us");
    let name = "chappe perf over DDS: half of the median round trip";
    report.target(name, reached, peer, Limit::AtMost(LATENCY));
    let (name, us) = (
        "ddsperf with a waitset: half of the median round trip",
        median(by_waitset) * 1e6,
    );
    report.row(
        name,
        us,
        "us",
        "a thread of its own answers, as in chappe perf",
    );
    Ok(())
}

/// Starts `ddsperf` for a time.
fn ddsperf(domain: u32, time: Duration, mode: &[&str]) -> Result<Process, Error> {
    let mut command = Command::new("ddsperf");
    command.env("CYCLONEDDS_URI", CONFIGURATION);
    command.args(["-i", &domain.to_string()]);
    command.args(["-D", &time.as_secs().to_string()]);
    command.args(mode);
    Process::start(&mut command, "ddsperf")
}

/// The numbers that follow this word on the lines that it prints until its end.
fn numbers(mut process: Process, word: &str) -> Vec<f64> {
    let mut all = Vec::new();
    while let Ok(line) = process.line() {
        all.extend(number_after(&line, word));
    }
    all
}

fn number_after(line: &str, word: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    words.find(|one| *one == word)?;
    words.next()?.trim_end_matches("us").parse().ok()
}

fn domain() -> u32 {
    DOMAIN + std::process::id() % 10
}

/// The median of the rates that its subscriber reports each second.
fn samples_per_s(size: usize, time: Duration) -> Result<f64, Error> {
    let subscriber = ddsperf(domain(), time + 2 * MARGIN, &["sub"])?;
    let size = size.to_string();
    let publisher = ddsperf(domain(), time + MARGIN, &["pub", "size", &size])?;
    let rates = numbers(subscriber, "rate");
    drop(publisher);
    // The first and the last seconds are partly idle.
    let within = rates.get(1..rates.len().saturating_sub(2));
    let within = within.filter(|rates| !rates.is_empty());
    let within = within.ok_or_else(|| Error::Failed("ddsperf reported no rate".to_owned()))?;
    Ok(median(within.iter().copied()) * 1e3)
}

/// The median of half of the round trip, as it reports it each second.
fn round_trip_halved_s(time: Duration, notified_by: &str) -> Result<f64, Error> {
    let pong = ddsperf(domain(), time + 2 * MARGIN, &["pong", notified_by])?;
    let size = PING_BYTES.to_string();
    let mode = ["ping", "size", &size, notified_by];
    let ping = ddsperf(domain(), time + MARGIN, &mode)?;
    let times = numbers(ping, "50%");
    drop(pong);
    if times.is_empty() {
        return Err(Error::Failed("ddsperf reported no round trip".to_owned()));
    }
    Ok(median(times) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "[1] 2.0  size 5120 total 9 lost 0 delta 9 lost 0 rate 34.14 kS/s 1398.56 Mb/s";
        assert_eq!(number_after(line, "rate"), Some(34.14));
        let line = "[1] 3.0  vm:1 size 12 mean 17.7us min 8.362us 50% 11.311us 90% 14.506us";
        assert_eq!(number_after(line, "50%"), Some(11.311));
        assert_eq!(
            number_after("[1] participant vm:1: new (self)", "rate"),
            None
        );
    }
}
