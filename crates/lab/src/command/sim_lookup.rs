//! `chappe-lab sim lookup`: a Kademlia network of your size, with your losses and an attacker.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chappe_lab::plot::{Mark, Plot, Scale, Series};
use chappe_sim::lookup::{Attack, Outcome as Found, Partition, Progress, Settings, Tally, run};
use chappe_sim::network::Latency;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::Ticker;
use chappe_terminal::duration;
use chappe_terminal::output::{self, Failure, Outcome, Table};

/// The initial state of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Begin {
    /// Each enters by --entrances others.
    Cold,
    /// All have the tables of a network that has run for long.
    Warm,
}

/// Flags of `sim lookup`.
#[derive(Debug, Args)]
pub(crate) struct Lookup {
    /// Number of nodes; several numbers are simulated one after another.
    #[arg(long, default_value = "100,1000", value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub nodes: Vec<u32>,
    /// Share of the nodes that are the attacker's, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = to_90)]
    pub sybils: f64,
    /// Positions of the attacker's nodes: scattered, nearest to the keys, or all over their region.
    #[arg(long, default_value = "nearest", value_name = "WHERE",
          value_parser = ["scattered", "nearest", "region"])]
    pub attack: String,
    /// Keys among which the attacker's nodes are divided.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attacked_keys: u32,
    /// Devices that are published.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub devices: u32,
    /// Searches for one device.
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub searches: u32,
    /// Searches for all devices.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub full_searches: u32,
    /// Mean time that a node stays before another replaces it. Default: forever.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub session: Option<Duration>,
    /// Simulated time between publishing and searching, without a partition.
    #[arg(long, default_value = "120s", value_parser = duration, value_name = "DURATION")]
    pub settle: Duration,
    /// Partition the network from START to END, after half of the devices were published; the
    /// others are published meanwhile. Searches are made in all parts, and afterwards from part to
    /// part.
    #[arg(long, value_parser = span, value_name = "START..END")]
    pub partition: Option<(Duration, Duration)>,
    /// Number of parts.
    #[arg(long, default_value_t = 2, value_name = "N", requires = "partition",
          value_parser = clap::value_parser!(u16).range(2..=16))]
    pub parts: u16,
    /// Messages from a part with a higher number reach those with lower ones; only the opposite direction is cut.
    #[arg(long, requires = "partition")]
    pub one_way: bool,
    /// Time after the partition by which all parts must find records published in any of them.
    #[arg(long, default_value = "25m", value_parser = duration, value_name = "DURATION", requires = "partition")]
    pub heal: Duration,
    /// The minimum one-way time of a packet.
    #[arg(long, default_value = "5ms", value_parser = duration, value_name = "DURATION")]
    pub latency_min: Duration,
    /// The maximum one-way time of a packet.
    #[arg(long, default_value = "50ms", value_parser = duration, value_name = "DURATION")]
    pub latency_max: Duration,
    /// Packets lost, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = to_90)]
    pub loss: f64,
    /// Bytes per second sent by a node over all its links. Default: no limit.
    #[arg(long, value_name = "BYTES")]
    pub rate: Option<NonZeroU64>,
    /// Bytes that wait for the rate at a node; more are dropped.
    #[arg(
        long,
        default_value_t = 65_536,
        value_name = "BYTES",
        requires = "rate"
    )]
    pub queue: u64,
    /// Nodes that are slow, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub slow: f64,
    /// Delay of those nodes for each packet and timer.
    #[arg(long, default_value = "100ms", value_parser = duration, value_name = "DURATION", requires = "slow")]
    pub slow_by: Duration,
    /// Initial state of the nodes. Default: cold up to 1,000 nodes, warm above.
    #[arg(long, value_enum, value_name = "HOW")]
    pub begin: Option<Begin>,
    /// Entrances of a node, chosen at random among all nodes, including the attacker's.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub entrances: u32,
    /// Nodes that a record is stored at, about.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub region_nodes: u32,
    /// The share of searches that must succeed, in percent, for exit code 0.
    #[arg(long, default_value_t = 99.0, value_name = "PERCENT", value_parser = percent)]
    pub least: f64,
    /// The first seed; each further run uses the next one.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Number of runs of each size.
    #[arg(long, default_value_t = 1, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Write the table and a figure here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// One run and its results.
struct Played {
    settings: Settings,
    found: Found,
    seconds: f64,
}

impl Played {
    fn unjudged(&self) -> Vec<&'static str> {
        self.found.unjudged(&self.settings)
    }
}

/// A share in percent.
fn percent(text: &str) -> Result<f64, String> {
    share_to(100.0, text)
}

/// A percentage that leaves enough nodes.
fn to_90(text: &str) -> Result<f64, String> {
    share_to(90.0, text)
}

fn share_to(most: f64, text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    match (0.0..=most).contains(&number) {
        true => Ok(number),
        false => Err(format!("it must be between 0 and {most}")),
    }
}

/// Two times, the later one after two dots.
fn span(text: &str) -> Result<(Duration, Duration), String> {
    let (start, end) = text
        .split_once("..")
        .ok_or("it needs two times with two dots between them, such as 1m..2h")?;
    let (start, end) = (duration(start)?, duration(end)?);
    match start < end {
        true => Ok((start, end)),
        false => Err("the end must be after the start".to_owned()),
    }
}

/// Plays the networks.
pub(crate) fn play(flags: &Lookup, json: bool) -> Outcome {
    let wanted = all_settings(flags)?;
    if let Some(folder) = &flags.out {
        output::folder(folder)?;
    }
    let mut played = Vec::new();
    for settings in wanted {
        let (nodes, seed) = (settings.nodes, settings.seed);
        let began = Instant::now();
        let ticker = Ticker::new();
        let found = run(&settings, &mut |progress: &Progress| {
            let Progress { phase, share, at } = progress;
            let percent = share * 100.0;
            ticker.tick(|| {
                format!("{nodes} nodes, seed {seed}: {phase} {percent:.0} %, at {at:.0?}")
            });
        });
        let seconds = began.elapsed().as_secs_f64();
        played.push(Played {
            settings,
            found,
            seconds,
        });
    }
    if let Some(folder) = &flags.out {
        write(folder, &played)?;
        output::note(format_args!("sim: results written to {}", folder.display()));
    }
    let least = flags.least / 100.0;
    let missed = |it: &&Played| {
        it.found.success() < least
            || it.found.attacked_success() < least
            || it.found.devices_share() < least
            || it.found.parted.as_ref().is_some_and(|parted| {
                let reached = parted.reached.min(parted.own.share());
                reached.min(parted.healed.share()) < least
            })
    };
    if json {
        let rows: Vec<_> = played.iter().map(as_json).collect();
        output::json(&json!({ "least": least, "rows": rows }));
    } else {
        output::line(table(&played));
        if flags.partition.is_some() {
            output::line("");
            output::line(parts(&played));
        }
        for it in &played {
            let again = it.settings.command();
            if missed(&it) {
                output::line(format_args!(
                    "too few searches succeeded; to repeat: {again}"
                ));
            }
            let unjudged = it.unjudged();
            if !unjudged.is_empty() {
                let kinds = unjudged.join(", ");
                output::line(format_args!(
                    "not judged, because no search could have succeeded: {kinds}; to repeat: {again}"
                ));
            }
        }
    }
    let bad = |it: &Played| missed(&it) || !it.unjudged().is_empty();
    match played.iter().any(bad) {
        false => Ok(()),
        true => Err(Failure::negative()),
    }
}

/// All networks that are to be played.
fn all_settings(flags: &Lookup) -> Result<Vec<Settings>, Failure> {
    if flags.latency_min > flags.latency_max {
        return Err(
            Failure::new("--latency-min is longer than --latency-max").coded("argument_invalid")
        );
    }
    let mut all = Vec::new();
    for nodes in &flags.nodes {
        for seed in flags.seed..flags.seed.saturating_add(flags.runs) {
            let settings = settings(flags, *nodes, seed)?;
            if settings.honest() < 2 {
                let text = format!("--sybils {} leaves too few of {nodes} nodes", flags.sybils);
                return Err(Failure::new(text)
                    .coded("argument_invalid")
                    .hint("two must be honest: one publishes, one searches"));
            }
            all.push(settings);
        }
    }
    Ok(all)
}

fn settings(flags: &Lookup, nodes: u32, seed: u64) -> Result<Settings, Failure> {
    let attack = Attack::from_name(&flags.attack)
        .ok_or_else(|| Failure::new("unknown attack").coded("argument_invalid"))?;
    let mut settings = Settings::new(seed, nodes);
    settings.sybils = flags.sybils / 100.0;
    settings.attack = attack;
    settings.attacked_keys = flags.attacked_keys;
    settings.devices = flags.devices;
    settings.searches = flags.searches;
    settings.full_searches = flags.full_searches;
    settings.session = flags.session;
    settings.settle = flags.settle;
    settings.partition = flags.partition.map(|(start, end)| Partition {
        start,
        end,
        parts: flags.parts,
        one_way: flags.one_way,
        heal: flags.heal,
    });
    settings.link.latency = Latency::Uniform(flags.latency_min, flags.latency_max);
    settings.link.loss = flags.loss / 100.0;
    settings.rate_bytes_per_s = flags.rate;
    settings.queue_bytes = flags.queue;
    settings.slow = flags.slow / 100.0;
    settings.slow_by = flags.slow_by;
    settings.entrances = flags.entrances;
    settings.region_nodes = flags.region_nodes;
    if let Some(begin) = flags.begin {
        settings.cold = begin == Begin::Cold;
    }
    Ok(settings)
}

fn as_json(played: &Played) -> serde_json::Value {
    let Played {
        settings,
        found,
        seconds,
    } = played;
    let of = |it: &chappe_sim::Distribution| {
        json!({ "mean": it.mean(), "p50": it.percentile(50.0), "p99": it.percentile(99.0),
            "max": it.max(), "samples": it.len() })
    };
    json!({
        "nodes": settings.nodes,
        "seed": settings.seed,
        "sybil_share": settings.sybils,
        "attack": settings.attack.name(),
        "searches": found.searches,
        "success_share": of_some(found.searches, found.success()),
        "attacked_searches": found.attacked_searches,
        "attacked_success_share": of_some(found.attacked_searches, found.attacked_success()),
        "devices_found_share": of_some(found.devices, found.devices_share()),
        "not_judged": played.unjudged(),
        "hops": of(&found.hops),
        "messages": of(&found.messages),
        "asks": of(&found.asks),
        "search_seconds": of(&found.seconds),
        "inflow_bytes": of(&found.inflow),
        "inflow_share_of_granted": of(&found.inflow_share),
        "full_messages": of(&found.full_messages),
        "full_inflow_bytes": of(&found.full_inflow),
        "full_seconds": of(&found.full_seconds),
        "copies": of(&found.copies),
        "contacts": of(&found.contacts),
        "state_bytes": of(&found.state_bytes),
        "size_estimate_share": of(&found.size_share),
        "sent_bytes_per_s": found.bytes_per_s,
        "dropped_share": found.dropped_share,
        "parted": found.parted.as_ref().map(|parted| {
            let of = |it: &Tally| json!({ "searches": it.searches, "success_share": of_some(it.searches, it.share()) });
            json!({
                "own": of(&parted.own),
                "before": of(&parted.before),
                "healing": of(&parted.healing),
                "healed": of(&parted.healed),
                "missed_until_s": parted.missed_until_s,
                "foreign_share_at_end": parted.foreign_at_end,
                "foreign_share": parted.foreign,
                "reached_share": parted.reached,
            })
        }),
        "replaced": found.replaced,
        "simulated_s": found.simulated_s,
        "steps": found.steps,
        "seconds": seconds,
        "command": settings.command(),
    })
}

/// A share; none of an empty total.
fn of_some(all: u32, share: f64) -> Option<f64> {
    (all > 0).then_some(share)
}

/// The same for people.
fn shown(all: u32, share: f64) -> String {
    of_some(all, share).map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

fn table(played: &[Played]) -> Table {
    let mut table = Table::new([
        "nodes",
        "seed",
        "searches",
        "found",
        "attacked",
        "all devices",
        "hops",
        "messages",
        "asks p99",
        "ms p50",
        "ms p99",
        "bytes in",
        "of granted",
        "state kB",
        "B/s a node",
    ]);
    for Played {
        settings, found, ..
    } in played
    {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        table.row([
            settings.nodes.to_string(),
            settings.seed.to_string(),
            found.searches.to_string(),
            shown(found.searches, found.success()),
            match settings.sybils > 0.0 {
                true => shown(found.attacked_searches, found.attacked_success()),
                false => "-".to_owned(),
            },
            shown(found.devices, found.devices_share()),
            format!("{:.1}", found.hops.mean()),
            format!("{:.1}", found.messages.mean()),
            format!("{:.0}", found.asks.percentile(99.0)),
            format!("{:.0}", found.seconds.percentile(50.0) * 1e3),
            format!("{:.0}", found.seconds.percentile(99.0) * 1e3),
            format!("{:.0}", found.inflow.mean()),
            percent(found.inflow_share.max()),
            format!("{:.1}", found.state_bytes.mean() / 1e3),
            format!("{:.1}", found.bytes_per_s),
        ]);
    }
    table
}

/// The parts of networks that were divided.
fn parts(played: &[Played]) -> Table {
    let mut table = Table::new([
        "nodes",
        "seed",
        "own part",
        "others' before",
        "others', healing",
        "others', healed",
        "missed until",
        "others' contacts",
        "in the end",
        "reached",
    ]);
    for Played {
        settings, found, ..
    } in played
    {
        let Some(parted) = &found.parted else {
            continue;
        };
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let tally = |it: &Tally| format!("{} of {}", shown(it.searches, it.share()), it.searches);
        table.row([
            settings.nodes.to_string(),
            settings.seed.to_string(),
            tally(&parted.own),
            tally(&parted.before),
            tally(&parted.healing),
            tally(&parted.healed),
            format!("{:.0} s", parted.missed_until_s),
            percent(parted.foreign_at_end),
            percent(parted.foreign),
            percent(parted.reached),
        ]);
    }
    table
}

fn write(folder: &Path, played: &[Played]) -> Outcome {
    let line = |name: &str, value: fn(&Found) -> f64| {
        let point = |it: &Played| (f64::from(it.settings.nodes), value(&it.found));
        Series::new(name, Mark::Both).with(played.iter().map(point))
    };
    let lines = [
        line("messages", |it| it.messages.mean()),
        line("hops", |it| it.hops.mean()),
        line("asks", |it| it.asks.mean()),
    ];
    let plot = Plot {
        scales: [Scale::Logarithmic, Scale::Linear],
        ..Plot::new("Searches", "nodes", "for each search").with(lines)
    };
    output::file(&folder.join("lookup.svg"), &plot.svg())?;
    let mut text = format!("{}\n", table(played));
    if played.iter().any(|it| it.found.parted.is_some()) {
        text += &format!("\n{}\n", parts(played));
    }
    output::file(&folder.join("lookup.txt"), &text)
}
