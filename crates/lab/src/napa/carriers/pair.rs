//! A publisher and its subscribers as processes of the program under test, and the path between them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chappe_sim::pacing::Point;
use serde_json::Value;

use super::super::bottleneck::Bottleneck;
use super::super::cable::{self, Cable};
use super::{Carrier, NARROW, Route};
use crate::Error;
use crate::process::Process;

/// Domains of DDS that hardly anybody uses.
const DOMAIN: u32 = 100;

/// The result of a setting.
#[derive(Debug, Clone)]
pub(in super::super) struct Measured {
    pub(super) pacer: String,
    pub(super) size: usize,
    pub(in super::super) point: Point,
    pub(super) p99_s: f64,
    /// Samples sent a second for each received.
    pub(super) offered: f64,
    pub(super) occupation: f64,
    pub(super) period_us: f64,
    pub(super) lost: u64,
    /// The numbers of samples in flight between which the pacer keeps its pace.
    pub(super) accepted: (u64, u64),
    /// The median, if samples were sent back.
    pub(in super::super) round_trip_halved_s: Option<f64>,
}

impl Measured {
    pub(super) fn kind(&self) -> &str {
        self.pacer.split(':').next().unwrap_or_default()
    }
}

/// The processes of a measurement.
#[derive(Debug, Clone)]
pub(in super::super) struct Pair<'a> {
    pub(super) carrier: Carrier,
    pub(super) route: Route,
    pub(super) size: usize,
    pub(super) window: u32,
    pub(super) program: &'a Path,
    pub(super) seed: u64,
    /// Subscribers that the publisher waits for.
    pub(super) subscribers: usize,
    /// Distinguishes senders at the same time.
    pub(super) number: u32,
    /// One in this many samples is sent back; 0: none.
    pub(in super::super) echo: u64,
    /// The interval of the rows.
    pub(super) interval: Duration,
    /// Time that a subscriber spends on each sample, and when it doubles.
    pub(super) takes: Option<(Duration, Duration)>,
}

impl<'a> Pair<'a> {
    pub(in super::super) fn new(
        carrier: Carrier,
        route: Route,
        size: usize,
        window: u32,
        program: &'a Path,
        seed: u64,
    ) -> Self {
        Self {
            carrier,
            route,
            size,
            window,
            program,
            seed,
            subscribers: 1,
            number: 0,
            echo: 0,
            interval: Duration::from_secs(3_600),
            takes: None,
        }
    }

    /// Measures these pacers one after another.
    pub(in super::super) fn run(
        &self,
        pacers: &[String],
        times: (Duration, Duration),
        capacity: Option<f64>,
    ) -> Result<Vec<Measured>, Error> {
        self.within(|cable| {
            let mut started = self.start(pacers, times, capacity, cable)?;
            let published = event(&mut started.publisher, "published")?;
            let Some(subscriber) = started.subscribers.first_mut() else {
                return Ok(Vec::new());
            };
            let subscribed = event(subscriber, "subscribed")?;
            Ok(join(&published, &subscribed))
        })
    }

    /// Runs this where the path is: for the cable, in a thread of its own, which has networks of its own.
    pub(super) fn within<T: Send>(
        &self,
        run: impl FnOnce(Option<&Cable>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let loss = match (self.carrier, self.route) {
            (Carrier::Zeromq, _) | (_, Route::Loopback) => return run(None),
            (Carrier::Dds, Route::Narrow(loss)) => loss,
        };
        std::thread::scope(|scope| {
            let within = scope.spawn(|| {
                let cable = Cable::lay(NARROW, loss, self.seed)?;
                run(Some(&cable))
            });
            within
                .join()
                .unwrap_or_else(|_| Err(Error::Failed("the run panicked".to_owned())))
        })
    }

    /// Starts the publisher and its subscribers.
    pub(super) fn start(
        &self,
        pacers: &[String],
        times: (Duration, Duration),
        capacity: Option<f64>,
        cable: Option<&Cable>,
    ) -> Result<Started, Error> {
        let mut publish = Command::new(self.program);
        publish.args(["perf", "pub", "--spin-us", "50"]);
        publish.args(["--listen", "tcp://127.0.0.1:0"]);
        self.common(&mut publish);
        publish.args(["--size", &self.size.to_string()]);
        publish.args(["--pacer", &pacers.join(",")]);
        publish.args(["--subscribers", &self.subscribers.to_string()]);
        publish.args(["--echo", &self.echo.to_string()]);
        publish.args(["--warm-up", &us(times.0), "--duration", &us(times.1)]);
        if let Some(capacity) = capacity {
            publish.args(["--capacity", &format!("{:.0}bit", capacity * 8.0)]);
        }
        if cable.is_some() {
            publish.args(["--address", cable::NEAR]);
        }
        let mut publisher = Process::start_with_errors(&mut publish, "the publisher")?;
        let listening = event(&mut publisher, "listening")?;
        let endpoint = listening["endpoint"].as_str().unwrap_or_default();
        let (endpoint, relay) = match (self.carrier, self.route) {
            (Carrier::Zeromq, Route::Narrow(_)) => {
                let to = endpoint.trim_start_matches("tcp://").parse();
                let to = to.map_err(Error::failed("reading the publisher's address"))?;
                let relay = Bottleneck::start(to, NARROW);
                let relay = relay.map_err(Error::io("starting the relay"))?;
                (format!("tcp://{}", relay.address()), Some(relay))
            }
            _ => (endpoint.to_owned(), None),
        };
        let subscribers = (0..self.subscribers).map(|_| {
            let mut subscribe = Command::new(self.program);
            subscribe.args(["perf", "sub", "--connect", &endpoint, "--idle", "40s"]);
            self.common(&mut subscribe);
            if let Some((take_for, slows_after)) = self.takes {
                subscribe.args(["--take-for", &us(take_for)]);
                subscribe.args(["--slows-after", &us(slows_after)]);
            }
            if cable.is_some() {
                subscribe.args(["--address", cable::FAR]);
            }
            let mut start = move || Process::start_with_errors(&mut subscribe, "the subscriber");
            match cable {
                Some(cable) => cable.far(start),
                None => start(),
            }
        });
        Ok(Started {
            subscribers: subscribers.collect::<Result<_, Error>>()?,
            publisher,
            _relay: relay,
        })
    }

    /// The options of both ends.
    fn common(&self, command: &mut Command) {
        command.args(["--json", "--wait", "20s", "--over", self.carrier.name()]);
        command.args(["--interval", &us(self.interval)]);
        command.args(["--window", &self.window.to_string()]);
        if self.carrier == Carrier::Dds {
            let domain = DOMAIN + std::process::id() % 100;
            command.args(["--domain", &domain.to_string()]);
            command.args(["--topic", &format!("chappe/bench/{}", self.number)]);
        }
    }
}

/// Running processes, which end with it.
pub(super) struct Started {
    pub(super) publisher: Process,
    pub(super) subscribers: Vec<Process>,
    _relay: Option<Bottleneck>,
}

fn us(time: Duration) -> String {
    format!("{}us", time.as_micros())
}

/// The next event of this name that a process prints.
pub(super) fn event(process: &mut Process, name: &str) -> Result<Value, Error> {
    loop {
        let value = read(&process.line()?)?;
        if value["event"] == name {
            return Ok(value);
        }
    }
}

/// An event that a process printed.
pub(super) fn read(line: &str) -> Result<Value, Error> {
    serde_json::from_str(line).map_err(Error::failed("reading its measurements"))
}

/// The figures of both ends for each phase.
pub(super) fn join(published: &Value, subscribed: &Value) -> Vec<Measured> {
    let phases = |value: &Value| value["phases"].as_array().cloned().unwrap_or_default();
    let seen = phases(subscribed);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let joined = phases(published).into_iter().filter_map(|sent| {
        let seen = seen.iter().find(|seen| seen["phase"] == sent["phase"])?;
        let received = number(&seen["rate_per_s"]);
        Some(Measured {
            pacer: sent["pacer"].as_str().unwrap_or_default().to_owned(),
            size: usize::try_from(count(&sent["size_bytes"])).unwrap_or(0),
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
            lost: count(&seen["lost"]),
            accepted: (
                count(&sent["low_threshold"]),
                count(&sent["high_threshold"]),
            ),
            round_trip_halved_s: sent["latency"]["p50_us"].as_f64().map(|us| us / 1e6),
        })
    });
    joined.collect()
}
