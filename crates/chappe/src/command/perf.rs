//! `chappe perf`: latency, throughput and pace between a publisher and subscribers.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chappe_flow::pacer::{Choice, PERIOD_MAX};
use chappe_identity::CurvePublic;
use chappe_perf::{
    Carrier, Criteria, Criterion, Event, Method, PublishSettings, Published, PublisherInterval,
    SubscribeSettings, Subscribed, SubscriberInterval, Times,
};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::network;
use crate::output::{self, Failure, Outcome, Table};
use chappe_terminal::{bytes_per_s, duration, measured};

/// Verbs of `perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum Perf {
    /// Publish samples at the pace of a pacer, and say what became of them.
    #[command(
        after_help = "Examples:\n  chappe perf pub --size 100000                                  as fast as the window allows\n  chappe perf pub --size 5000,100000 --pacer adaptive --duration 10s\n  chappe perf pub --rate 1000 --echo 10 --max-p99 5ms            round trips, halved\n  chappe perf pub --pacer fixed_window:4,fixed_window:16 --csv rows.csv\n  chappe perf pub --over dds --domain 7 --pacer napa --capacity 1Gbit\n\nEach size is measured with each pacer. Exit code 1 when a condition is not met."
    )]
    Pub(Box<Publish>),
    /// Subscribe and say what came, how fast and how late, until the publisher ends.
    #[command(
        after_help = "Examples:\n  chappe perf sub --connect tcp://127.0.0.1:8474\n  chappe perf sub --max-lost 0 --max-p99 5ms --json\n  chappe perf sub --connect tcp://192.0.2.7:8474 --server-key KEY\n  chappe perf sub --over dds --domain 7 --take-for 1ms          a slow subscriber\n\nLatency is told where both ends are on one machine, by its one clock; between two machines use\n`chappe perf pub --echo`. Exit code 1 when a condition is not met, or the end did not come."
    )]
    Sub(Box<Subscribe>),
}

/// What carries the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// The sessions of links between nodes; best effort: PUB and SUB.
    Zeromq,
    /// A DDS topic.
    Dds,
}

/// What both ends say.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// What carries the samples.
    #[arg(long, value_enum, default_value = "zeromq", value_name = "CARRIER")]
    pub over: Over,
    /// Lost samples are not sent again, and nobody is waited for.
    #[arg(long)]
    pub best_effort: bool,
    /// DDS: the library, rustdds, or cyclone where it is built in.
    #[cfg(feature = "dds")]
    #[arg(long, default_value = "rustdds", value_name = "LIBRARY")]
    pub library: chappe_perf::Library,
    /// DDS: the domain.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=232))]
    pub domain: u16,
    /// DDS: take part by this address of this host; may be repeated.
    #[arg(long = "address", default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub addresses: Vec<std::net::IpAddr>,
    /// DDS: the topic.
    #[arg(long, default_value = chappe_perf::TOPIC, value_name = "NAME")]
    pub topic: String,
    /// Samples on the way at most: written and not acknowledged. Default: 1000, over DDS 64.
    /// Over DDS the subscriber's reader keeps eight times its own number in memory.
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: Option<u32>,
    /// How long the other end is waited for.
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub wait: Duration,
    /// How often a row is printed.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "DURATION")]
    pub interval: Duration,
    /// Write the rows to this file as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Condition: at least so many samples, warm-up included.
    #[arg(long, value_name = "N")]
    pub require_samples: Option<u64>,
    /// Condition: median latency at most this, in every phase.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub max_p50: Option<Duration>,
    /// Condition: 99th percentile of the latency at most this, in every phase.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub max_p99: Option<Duration>,
    /// Condition: at least so many samples a second, in every phase.
    #[arg(long, value_name = "PER-SECOND")]
    pub min_rate: Option<f64>,
    /// Condition: at least this throughput of samples, such as `100Mbit`, in every phase.
    #[arg(long, value_parser = bytes_per_s, value_name = "RATE")]
    pub min_throughput: Option<u64>,
}

/// Flags of `perf pub`.
#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// What both ends say.
    #[command(flatten)]
    pub common: Common,
    /// ZeroMQ: where to listen; port 0 takes a free one. Beyond loopback with a new CURVE key, which
    /// is printed.
    #[arg(long, default_value = "tcp://127.0.0.1:8474", value_name = "ENDPOINT")]
    pub listen: String,
    /// ZeroMQ: let in this public key only; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub allow: Vec<CurvePublic>,
    /// Bytes of a sample, 40 to 2097152.
    #[arg(
        long,
        default_value = "1000",
        value_delimiter = ',',
        value_name = "BYTES,..."
    )]
    pub size: Vec<usize>,
    /// How the time between samples is chosen: flood, fixed_window:SAMPLES, fixed_period:DURATION,
    /// napa, adaptive; a period is 1s at most.
    #[arg(
        long,
        default_value = "flood",
        value_delimiter = ',',
        value_name = "PACER,..."
    )]
    pub pacer: Vec<Choice>,
    /// Samples a second from 1, or `unlimited`: another way to say fixed_period or flood.
    #[arg(long, value_name = "PER-SECOND", value_parser = rate, conflicts_with = "pacer")]
    pub rate: Option<Choice>,
    /// For napa: the capacity of the link.
    #[arg(long, default_value = "1Gbit", value_parser = bytes_per_s, value_name = "RATE")]
    pub capacity: u64,
    /// For napa: so many samples are acknowledged at once.
    #[arg(long, default_value_t = 1, value_name = "SAMPLES")]
    pub acknowledged_at_once: u64,
    /// Do all of it so often.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeats: usize,
    /// How long each phase is measured.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub duration: Duration,
    /// End a phase after so many measured samples.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Time at a phase's pace before it is measured.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub warm_up: Duration,
    /// Begin with so many subscribers; the slowest is waited for.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive)]
    pub subscribers: usize,
    /// Have every so many samples sent back: latency is half of that time.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub echo: u64,
    /// Look at the clock for the last microseconds of each wait (at most 200): sharper, and costs
    /// that much processor each time.
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(..=200))]
    pub spin_us: u64,
}

/// Flags of `perf sub`.
#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// What both ends say.
    #[command(flatten)]
    pub common: Common,
    /// ZeroMQ: where the publisher listens.
    #[arg(long, default_value = "tcp://127.0.0.1:8474", value_name = "ENDPOINT")]
    pub connect: String,
    /// ZeroMQ: the publisher's public key, which it prints.
    #[arg(long, value_name = "KEY")]
    pub server_key: Option<CurvePublic>,
    /// Be busy with each sample for so long.
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "DURATION")]
    pub take_for: Duration,
    /// End after so long without a sample.
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub idle: Duration,
    /// Sessions: bytes that may be on the way to this subscriber.
    #[arg(long, default_value_t = 256 << 20, value_name = "BYTES")]
    pub window_bytes: u64,
    /// Sessions: acknowledge after so many samples.
    #[arg(long, default_value_t = 1, value_name = "SAMPLES")]
    pub acknowledge_every: u64,
    /// Sessions: acknowledge at the latest so long after a sample came.
    #[arg(long, default_value = "10ms", value_parser = duration, value_name = "DURATION")]
    pub acknowledge_delay: Duration,
    /// Condition: at most so many samples lost; with 0, none repeated and the end has come. Without
    /// it none, unless with --best-effort.
    #[arg(long, value_name = "N")]
    pub max_lost: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let least = Duration::from_millis(1);
    if interval < least {
        Err(format!("{text} is below 1ms"))
    } else {
        Ok(interval)
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is no number from 1")),
    }
}

fn rate(text: &str) -> Result<Choice, String> {
    if matches!(text, "unlimited" | "inf") {
        return Ok(Choice::Flood);
    }
    let rate: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no number and not unlimited"))?;
    let period = Duration::try_from_secs_f64(1.0 / rate);
    match period {
        Ok(period) if rate > 0.0 && period > PERIOD_MAX => Err(format!(
            "{text:?} samples a second: a pacer waits for {PERIOD_MAX:?} at most; 1 is the lowest rate"
        )),
        Ok(period) if rate > 0.0 && !period.is_zero() => Ok(Choice::FixedPeriod(period)),
        _ => Err(format!("{text:?} samples a second cannot be kept")),
    }
}

/// Measures; a condition that is not met is a negative result.
pub(crate) fn run(verb: Perf, json: bool) -> Outcome {
    match verb {
        Perf::Pub(flags) => publish(&flags, json),
        Perf::Sub(flags) => subscribe(&flags, json),
    }
}

fn publish(flags: &Publish, json: bool) -> Outcome {
    let pacings = match &flags.rate {
        Some(rate) => vec![rate.clone()],
        None => flags.pacer.clone(),
    };
    let settings = PublishSettings {
        carrier: carrier(&flags.common, &flags.listen)?,
        allow: flags.allow.clone(),
        sizes: flags.size.clone(),
        pacings,
        capacity_bytes_per_s: flags.capacity as f64,
        acknowledged_at_once: flags.acknowledged_at_once,
        repeats: flags.repeats,
        window: window(&flags.common).into(),
        warm_up: flags.warm_up,
        duration: flags.duration,
        count: flags.count,
        subscribers: flags.subscribers,
        wait: flags.common.wait,
        echo: flags.echo,
        interval: flags.common.interval,
        spin: Duration::from_micros(flags.spin_us),
        criteria: criteria(&flags.common, None),
        stop: network::stop_at_interrupt()?,
    };
    let mut teller = Teller::new(&flags.common, &PublisherInterval::COLUMNS, json)?;
    let outcome =
        chappe_perf::publish(&settings, &mut |event| teller.tell(&event)).map_err(failure)?;
    teller.end()?;
    if json {
        output::json(&Ended {
            event: "published",
            outcome: &outcome,
        });
    } else {
        print_published(&outcome);
    }
    judged(&outcome.criteria, json, true)
}

fn subscribe(flags: &Subscribe, json: bool) -> Outcome {
    let settings = SubscribeSettings {
        carrier: carrier(&flags.common, &flags.connect)?,
        server_key: flags.server_key,
        wait: flags.common.wait,
        idle: flags.idle,
        take_for: flags.take_for,
        window_bytes: flags.window_bytes,
        acknowledge_every: flags.acknowledge_every,
        acknowledge_delay: flags.acknowledge_delay,
        interval: flags.common.interval,
        criteria: criteria(&flags.common, flags.max_lost),
        stop: network::stop_at_interrupt()?,
    };
    let mut teller = Teller::new(&flags.common, &SubscriberInterval::COLUMNS, json)?;
    let outcome =
        chappe_perf::subscribe(&settings, &mut |event| teller.tell(&event)).map_err(failure)?;
    teller.end()?;
    if json {
        output::json(&Ended {
            event: "subscribed",
            outcome: &outcome,
        });
    } else {
        print_subscribed(&outcome);
    }
    let interrupted = settings.stop.load(Ordering::Relaxed);
    judged(&outcome.criteria, json, outcome.complete || interrupted)
}

fn window(common: &Common) -> u32 {
    common.window.unwrap_or(match common.over {
        Over::Zeromq => 1_000,
        Over::Dds => 64,
    })
}

fn carrier(common: &Common, endpoint: &str) -> Result<Carrier, Failure> {
    let endpoint = endpoint.to_owned();
    Ok(match (common.over, common.best_effort) {
        (Over::Zeromq, false) => Carrier::Sessions { endpoint },
        (Over::Zeromq, true) => Carrier::PublishSubscribe { endpoint },
        #[cfg(not(feature = "dds"))]
        (Over::Dds, _) => return Err(Failure::new("this program was built without DDS")),
        #[cfg(feature = "dds")]
        (Over::Dds, best_effort) => Carrier::Dds(chappe_perf::Domain {
            library: common.library,
            domain: common.domain,
            interfaces: common.addresses.clone(),
            topic: common.topic.clone(),
            reliable: !best_effort,
            window: window(common),
        }),
    })
}

fn criteria(common: &Common, max_lost: Option<u64>) -> Criteria {
    Criteria {
        require_samples: common.require_samples,
        max_lost,
        max_p50: common.max_p50,
        max_p99: common.max_p99,
        min_rate_per_s: common.min_rate,
        min_bytes_per_s: common.min_throughput.map(|bytes| bytes as f64),
    }
}

fn failure(error: chappe_perf::Error) -> Failure {
    Failure::new(error.text).hint_if(error.hint)
}

fn judged(criteria: &[Criterion], json: bool, complete: bool) -> Outcome {
    let missed = criteria.iter().filter(|one| !one.met);
    for one in missed.clone().filter(|_| !json) {
        let phase = one
            .phase
            .map_or(String::new(), |phase| format!(" in phase {phase}"));
        let measured = one
            .measured
            .map_or("not measured".to_owned(), |it| format!("{it:.1}"));
        let (name, bound, unit) = (one.name, one.bound, one.unit);
        output::line(format_args!(
            "MISSED --{name}{phase}: {measured}, wanted {bound} {unit}"
        ));
    }
    if !complete {
        output::note("the publisher's last sample did not come");
    }
    if complete && missed.count() == 0 {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

#[derive(Serialize)]
struct Ended<'a, T> {
    event: &'static str,
    #[serde(flatten)]
    outcome: &'a T,
}

/// Tells what happens while it goes on: to people, to programs, and to a file.
struct Teller {
    json: bool,
    rows: usize,
    csv: Option<(PathBuf, BufWriter<File>)>,
    columns: &'static [&'static str],
    failed: Option<std::io::Error>,
}

/// Rows after which the head is printed again.
const HEAD_EVERY: usize = 20;

impl Teller {
    fn new(common: &Common, columns: &'static [&'static str], json: bool) -> Result<Self, Failure> {
        let mut csv = None;
        if let Some(path) = &common.csv {
            let failed = |error| Failure::new(format!("cannot write {}: {error}", path.display()));
            let mut file = BufWriter::new(File::create(path).map_err(failed)?);
            writeln!(file, "{}", columns.join(",")).map_err(failed)?;
            csv = Some((path.clone(), file));
        }
        Ok(Self {
            json,
            rows: 0,
            csv,
            columns,
            failed: None,
        })
    }

    fn tell(&mut self, event: &Event) {
        match event {
            Event::Published(row) => self.row(row),
            Event::Subscribed(row) => self.row(row),
            _ => {}
        }
        if self.json {
            return output::json(event);
        }
        match event {
            Event::Listening {
                endpoint,
                server_key,
            } => {
                let key = server_key
                    .as_ref()
                    .map(|key| format!(", --server-key {key}"));
                output::note(format_args!("perf: {endpoint}{}", key.unwrap_or_default()));
            }
            Event::Waiting { what } => output::note(format_args!("perf: waiting for {what}")),
            Event::Warning { text, hint } => {
                output::note(format_args!("warning: {text}\nhint: {hint}"));
            }
            Event::Begun {
                subscribers,
                phases,
            } => {
                output::note(format_args!(
                    "perf: {subscribers} subscribers, {phases} phases"
                ));
            }
            Event::Published(row) => {
                self.head("   time    bytes  pacer                  sent/s     MB/s  on the way mean/max   period us  blocked  again    cpu     MiB");
                output::line(published_row(row));
            }
            Event::Subscribed(row) => {
                self.head("   time    bytes  received/s     MB/s    lost   p50 us     p90 us     p99 us     max us    cpu     MiB");
                output::line(subscribed_row(row));
            }
        }
    }

    fn head(&mut self, head: &str) {
        if self.rows.is_multiple_of(HEAD_EVERY) {
            output::line(head);
        }
        self.rows += 1;
    }

    fn row(&mut self, row: &impl Serialize) {
        let Some((_, file)) = &mut self.csv else {
            return;
        };
        let row = serde_json::to_value(row).unwrap_or_default();
        let cells = self.columns.iter().map(|column| match &row[*column] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Number(number) if number.is_f64() => {
                measured(number.as_f64().unwrap_or_default())
            }
            other => other.to_string(),
        });
        let cells: Vec<_> = cells.collect();
        if let Err(error) = writeln!(file, "{}", cells.join(",")) {
            self.failed.get_or_insert(error);
        }
    }

    fn end(self) -> Outcome {
        if let Some((path, mut file)) = self.csv {
            let flushed = file.flush();
            if let Some(error) = self.failed.or(flushed.err()) {
                let text = format!("cannot write {}: {error}", path.display());
                return Err(Failure::new(text));
            }
        }
        Ok(())
    }
}

fn published_row(row: &PublisherInterval) -> String {
    let way = match (row.occupation_mean, row.occupation_max) {
        (Some(mean), Some(most)) => format!("{mean:.1}/{most}"),
        _ => "-".to_owned(),
    };
    let period = row
        .period_us
        .map_or("-".to_owned(), |it| format!("{it:.1}"));
    let again = row.sent_again.or(row.dropped);
    let again = again.map_or("-".to_owned(), |it| it.to_string());
    let pacer = format!(
        "{}{}",
        row.pacer,
        if row.warm_up { " (warm-up)" } else { "" }
    );
    format!(
        "{:6.1}s {:>8}  {pacer:<20} {:>8.0} {:>8.2} {way:>20} {period:>11} {:>7.0}% {again:>6} {:>5.0}% {:>7.1}",
        row.at_s,
        row.size_bytes,
        row.rate_per_s,
        row.bytes_per_s / 1e6,
        row.blocked_share * 100.0,
        row.cpu_percent,
        row.resident_bytes as f64 / f64::from(1 << 20),
    )
}

fn subscribed_row(row: &SubscriberInterval) -> String {
    let us = |time: Option<f64>| time.map_or("-".to_owned(), |it| format!("{it:.1}"));
    format!(
        "{:6.1}s {:>8}  {:>10.0} {:>8.2} {:>7} {:>8} {:>10} {:>10} {:>10} {:>5.0}% {:>7.1}",
        row.at_s,
        row.size_bytes,
        row.rate_per_s,
        row.bytes_per_s / 1e6,
        row.lost,
        us(row.latency_p50_us),
        us(row.latency_p90_us),
        us(row.latency_p99_us),
        us(row.latency_max_us),
        row.cpu_percent,
        row.resident_bytes as f64 / f64::from(1 << 20),
    )
}

fn times(times: Option<Times>) -> [String; 5] {
    let Some(it) = times else {
        return ["-"; 5].map(ToOwned::to_owned);
    };
    [it.min_us, it.p50_us, it.p90_us, it.p99_us, it.max_us].map(|us| format!("{us:.1}"))
}

fn by(method: Option<Method>) -> &'static str {
    match method {
        Some(Method::OneClock) => {
            "latency: from writing to taking, by the one clock of this machine"
        }
        Some(Method::RoundTripHalved) => "latency: half of the time until a sample was back",
        None => "latency: not measured; one machine, or `chappe perf pub --echo 10`, can",
    }
}

fn print_published(outcome: &Published) {
    let mut table = Table::new([
        "phase",
        "bytes",
        "pacer",
        "sent",
        "sent/s",
        "MB/s",
        "on the way",
        "most",
        "period us",
        "late p99 us",
        "blocked",
        "again",
        "dropped",
        "drained s",
        "min us",
        "p50 us",
        "p90 us",
        "p99 us",
        "max us",
        "cpu",
    ]);
    let or = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    for it in &outcome.phases {
        let mut cells = vec![
            it.phase.to_string(),
            it.size_bytes.to_string(),
            it.pacer.clone(),
            it.sent.to_string(),
            format!("{:.0}", it.rate_per_s),
            format!("{:.2}", it.bytes_per_s / 1e6),
            or(it.occupation_mean.map(|mean| format!("{mean:.1}"))),
            or(it.occupation_max.map(|most| most.to_string())),
            or(it.period_us.map(|period| format!("{period:.1}"))),
            or(it.late.map(|late| format!("{:.1}", late.p99_us))),
            format!("{:.0} %", it.blocked_share * 100.0),
            or(it.sent_again.map(|it| it.to_string())),
            or(it.dropped.map(|it| it.to_string())),
            or(it.drain_s.map(|it| format!("{it:.3}"))),
        ];
        cells.extend(times(it.latency));
        cells.push(format!("{:.0} %", it.cpu_percent));
        table.row(cells);
    }
    output::line(&table);
    if outcome.latency_by.is_some() {
        output::line(by(outcome.latency_by));
    }
}

fn print_subscribed(outcome: &Subscribed) {
    let mut table = Table::new([
        "phase",
        "bytes",
        "received",
        "received/s",
        "MB/s",
        "lost",
        "repeated",
        "min us",
        "p50 us",
        "p90 us",
        "p99 us",
        "max us",
        "cpu",
    ]);
    for it in &outcome.phases {
        let mut cells = vec![
            it.phase.to_string(),
            it.size_bytes.to_string(),
            it.received.to_string(),
            format!("{:.0}", it.rate_per_s),
            format!("{:.2}", it.bytes_per_s / 1e6),
            it.lost.to_string(),
            it.repeated.to_string(),
        ];
        cells.extend(times(it.latency));
        cells.push(format!("{:.0} %", it.cpu_percent));
        table.row(cells);
    }
    output::line(&table);
    output::line(by(outcome.latency_by));
    output::line(format_args!(
        "{} received with warm-up, {} lost, {} repeated, {} foreign",
        outcome.received, outcome.lost, outcome.repeated, outcome.foreign
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_pacers() {
        assert_eq!(rate("unlimited"), Ok(Choice::Flood));
        assert_eq!(
            rate("1000"),
            Ok(Choice::FixedPeriod(Duration::from_millis(1)))
        );
        for wrong in ["0", "-1", "fast", "1e300", "nan"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        let longest = Duration::from_secs(1);
        assert_eq!(rate("1"), Ok(Choice::FixedPeriod(longest)));
        let slow = rate("0.5").expect_err("a pacer does not wait for so long");
        assert!(slow.contains("1 is the lowest"), "{slow}");
    }
}
