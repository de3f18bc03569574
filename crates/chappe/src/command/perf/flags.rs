//! The command line of `perf`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_flow::pacer::{Choice, PERIOD_MAX};
use chappe_identity::CurvePublic;
use chappe_terminal::{bytes_per_s, duration};
use clap::{Args, Subcommand, ValueEnum};

/// Verbs of `perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum Perf {
    /// Publish samples at the pace of a pacer, and report their delivery.
    #[command(
        after_help = "Examples:\n  chappe perf pub --size 5000,100000 --pacer adaptive --duration 10s\n  chappe perf pub --rate 1000 --echo 10 --max-p99 5ms            round trips, halved",
        after_long_help = "Examples:\n  chappe perf pub --size 100000                                  as fast as the window allows\n  chappe perf pub --size 5000,100000 --pacer adaptive --duration 10s\n  chappe perf pub --rate 1000 --echo 10 --max-p99 5ms            round trips, halved\n  chappe perf pub --pacer fixed_window:4,fixed_window:16 --csv rows.csv\n  chappe perf pub --over dds --domain 7 --pacer napa --capacity 1Gbit\n\nEach size is measured with each pacer. Exit code 1 when a condition is not met."
    )]
    Pub(Box<Publish>),
    /// Subscribe until the publisher ends, and report rate, loss and latency.
    #[command(
        after_help = "Examples:\n  chappe perf sub --connect tcp://192.0.2.7:8474 --server-key KEY\n  chappe perf sub --max-lost 0 --max-p99 5ms --json",
        after_long_help = "Examples:\n  chappe perf sub --connect tcp://127.0.0.1:8474\n  chappe perf sub --max-lost 0 --max-p99 5ms --json\n  chappe perf sub --connect tcp://192.0.2.7:8474 --server-key KEY\n  chappe perf sub --over dds --domain 7 --take-for 1ms          a slow subscriber\n\nLatency is measured if both ends share one machine and its clock; between machines use\n`chappe perf pub --echo`. Exit code 1 when a condition is not met or the last sample is missing."
    )]
    Sub(Box<Subscribe>),
}

/// Carriers of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// The sessions of links between nodes; with --best-effort: PUB and SUB.
    Zeromq,
    /// A DDS topic.
    Dds,
}

/// Flags of both ends.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Carrier of the samples.
    #[arg(long, value_enum, default_value = "zeromq", value_name = "CARRIER")]
    pub over: Over,
    /// Don't retransmit lost samples, and don't wait for slow subscribers.
    #[arg(long)]
    pub best_effort: bool,
    /// Maximum number of unacknowledged samples in flight. Default: 1000, over DDS 64.
    ///
    /// Over DDS, the subscriber's reader can hold eight times the value of its own `--window` in memory.
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: Option<u32>,
    /// Time to wait for the other end.
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub wait: Duration,
    /// Time between two rows.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "DURATION")]
    pub interval: Duration,
    /// Also write the rows to this file as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Fail below this number of samples, warm-up included.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Conditions",
        hide_short_help = true
    )]
    pub require_samples: Option<u64>,
    /// Fail if the median latency of a phase is higher.
    #[arg(long, value_parser = duration, value_name = "DURATION", help_heading = "Conditions", hide_short_help = true)]
    pub max_p50: Option<Duration>,
    /// Fail if the 99th percentile of a phase's latency is higher.
    #[arg(long, value_parser = duration, value_name = "DURATION", help_heading = "Conditions")]
    pub max_p99: Option<Duration>,
    /// Fail if a phase has fewer samples a second.
    #[arg(long, value_name = "PER-SECOND", help_heading = "Conditions")]
    pub min_rate: Option<f64>,
    /// Fail if a phase has a lower throughput, such as `100Mbit`.
    #[arg(long, value_parser = bytes_per_s, value_name = "RATE", help_heading = "Conditions")]
    pub min_throughput: Option<u64>,
    /// The domain.
    #[arg(long, default_value_t = 0, value_name = "N", help_heading = "DDS",
          value_parser = clap::value_parser!(u16).range(0..=232))]
    pub domain: u16,
    /// The address of this host; may be repeated.
    #[arg(
        long = "address",
        default_value = "127.0.0.1",
        value_name = "ADDRESS",
        help_heading = "DDS"
    )]
    pub addresses: Vec<std::net::IpAddr>,
    /// The topic.
    #[arg(
        long,
        default_value = chappe_perf::TOPIC,
        value_name = "NAME",
        help_heading = "DDS",
        hide_short_help = true
    )]
    pub topic: String,
}

/// Flags of `perf pub`.
#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// Bytes of a sample, 40 to 2097152.
    #[arg(
        long,
        default_value = "1000",
        value_delimiter = ',',
        value_name = "BYTES,..."
    )]
    pub size: Vec<usize>,
    /// Pacers of the samples; --help lists them.
    ///
    /// flood, fixed_window:SAMPLES, fixed_period:DURATION (at most 1s), napa, adaptive.
    #[arg(
        long,
        default_value = "flood",
        value_delimiter = ',',
        value_name = "PACER,..."
    )]
    pub pacer: Vec<Choice>,
    /// Samples a second, or `unlimited`; instead of fixed_period or flood.
    #[arg(long, value_name = "PER-SECOND", value_parser = rate, conflicts_with = "pacer")]
    pub rate: Option<Choice>,
    /// napa: the capacity of the link.
    #[arg(long, default_value = "1Gbit", value_parser = bytes_per_s, value_name = "RATE", hide_short_help = true)]
    pub capacity: u64,
    /// napa: samples in one acknowledgement.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "SAMPLES",
        hide_short_help = true
    )]
    pub acknowledged_at_once: u64,
    /// Number of runs of all phases.
    #[arg(long, default_value_t = 1, value_name = "N", hide_short_help = true)]
    pub repeats: usize,
    /// Measured time of each phase.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub duration: Duration,
    /// End a phase after this many measured samples.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub count: Option<u64>,
    /// How long each phase runs at its pace before it is measured.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub warm_up: Duration,
    /// Subscribers to wait for; the slowest sets the pace.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = positive)]
    pub subscribers: usize,
    /// Echo every Nth sample; latency is half the round trip.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub echo: u64,
    /// Poll the clock in the last microseconds of each wait, at most 200.
    ///
    /// More precise, but uses that much processor time in each wait.
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(..=200))]
    pub spin_us: u64,
    /// The endpoint to listen on.
    ///
    /// Port 0 picks a free one. Beyond loopback, the publisher encrypts with a new CURVE key, and prints its public
    /// key.
    #[arg(
        long,
        default_value = "tcp://127.0.0.1:8474",
        value_name = "ENDPOINT",
        help_heading = "ZeroMQ"
    )]
    pub listen: String,
    /// Admit only subscribers with this public key; may be repeated.
    #[arg(
        long,
        value_name = "KEY",
        allow_hyphen_values = true,
        help_heading = "ZeroMQ",
        hide_short_help = true
    )]
    pub allow: Vec<CurvePublic>,
    /// Flags of both ends.
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `perf sub`.
#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// Time that this end spends on each sample.
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "DURATION")]
    pub take_for: Duration,
    /// Double --take-for after this time, counted from the first sample.
    #[arg(long, requires = "take_for", value_parser = duration, value_name = "DURATION")]
    pub slows_after: Option<Duration>,
    /// End after this time without a sample.
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub idle: Duration,
    /// The endpoint of the publisher.
    #[arg(
        long,
        default_value = "tcp://127.0.0.1:8474",
        value_name = "ENDPOINT",
        help_heading = "ZeroMQ"
    )]
    pub connect: String,
    /// The publisher's public key, which `perf pub` prints.
    #[arg(
        long,
        value_name = "KEY",
        allow_hyphen_values = true,
        help_heading = "ZeroMQ"
    )]
    pub server_key: Option<CurvePublic>,
    /// Bytes in flight to this subscriber.
    #[arg(
        long,
        default_value_t = 256 << 20,
        value_name = "BYTES",
        help_heading = "ZeroMQ",
        hide_short_help = true
    )]
    pub window_bytes: u64,
    /// Acknowledge after this many samples.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "SAMPLES",
        help_heading = "ZeroMQ",
        hide_short_help = true
    )]
    pub acknowledge_every: u64,
    /// Acknowledge a sample at the latest after this time.
    #[arg(long, default_value = "10ms", value_parser = duration, value_name = "DURATION", help_heading = "ZeroMQ", hide_short_help = true)]
    pub acknowledge_delay: Duration,
    /// Fail if more samples are lost.
    ///
    /// With 0, it also fails if a sample is repeated or the last one is missing. Default: 0, with --best-effort no
    /// limit.
    #[arg(long, value_name = "N", help_heading = "Conditions")]
    pub max_lost: Option<u64>,
    /// Flags of both ends.
    #[command(flatten)]
    pub common: Common,
}

fn interval(text: &str) -> Result<Duration, String> {
    const MIN: Duration = Duration::from_millis(1);
    let interval = duration(text)?;
    if interval < MIN {
        Err(format!("{text} is below 1ms"))
    } else {
        Ok(interval)
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is not a number from 1")),
    }
}

fn rate(text: &str) -> Result<Choice, String> {
    if matches!(text, "unlimited" | "inf") {
        return Ok(Choice::Flood);
    }
    let rate: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is neither a number nor `unlimited`"))?;
    let period = Duration::try_from_secs_f64(1.0 / rate);
    match period {
        Ok(period) if rate > 0.0 && period > PERIOD_MAX => Err(format!(
            "{text:?} samples a second: a pacer waits for {PERIOD_MAX:?} at most; 1 is the lowest rate"
        )),
        Ok(period) if rate > 0.0 && !period.is_zero() => Ok(Choice::FixedPeriod(period)),
        _ => Err(format!("{text:?} samples a second are out of range")),
    }
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
