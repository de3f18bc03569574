//! `chappe-lab sim`: exchanges under every fault, judged, and a session on a network of your figures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chappe_lab::plot::{self, Mark, Plot};
use chappe_sim::exchange::{Fault, RUNS_FOR_EVERYTHING, Report, Series, Settings, series};
use chappe_sim::network::{Latency, Link, TRACE_NOTES};
use chappe_sim::study::{Study, StudyResult, study};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Ticker;
use chappe_terminal::output::{self, Failure, Outcome, Table};
use chappe_terminal::{bytes_per_s, duration};

/// Verbs of `sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run nodes that exchange streams, from a seed, under faults of every kind, and judge them.
    #[command(
        after_help = "Examples:\n  chappe-lab sim exchange --runs 200\n  chappe-lab sim exchange --seed 4711 --trace      replay one seed, with its last steps\n  chappe-lab sim exchange --runs 1000 --faults kill,power-loss,disk-full --json\n\nFaults: kill, power-loss, torn-write, failed-sync, disk-full, bit-rot, partition, flapping,\nasymmetric-loss, slow-peer, stand-still, reset, clock-step, old-state, version-skew,\nslow-disk, queue-full.\n\nExit code 1 when a promise was broken."
    )]
    Exchange(Exchange),
    /// Show the behaviour of a reliable session between nodes on your network: rate, lag, queue.
    #[command(
        after_help = "Examples:\n  chappe-lab sim network --nodes 5 --rate 10Mbit --latency 20ms --loss 0.5\n  chappe-lab sim network --rate 250kbit --latency 300ms --jitter 100ms --payload 60 --out figures\n  chappe-lab sim network --rate 1Mbit --elements 200 --json       one load instead of a sweep"
    )]
    Network(NetworkStudy),
    /// Spread events over notification trees: the time of each plan on your network, and whether
    /// every promise holds when sinks are dead or lie and messages are lost.
    #[command(
        after_help = "Examples:\n  chappe-lab sim tree --sinks 1000 --send-cost 20us --latency 1ms --dead 10 --events 3\n  chappe-lab sim tree --sinks 10,100,1000,10000 --out figures\n  chappe-lab sim tree --sinks 1000000 --plan postal\n  chappe-lab sim tree --sources 8 --events 20 --period 0s --port-rate 12500000 --pacer adaptive\n  chappe-lab sim tree --flaky 10 --events 16 --order reliability\n  chappe-lab sim tree --mixed 100000 --json           runs of mixed sizes and troubles\n\nExit code 1 when a promise was broken."
    )]
    Tree(super::sim_tree::SimTree),
    /// Show how well a Kademlia network of your size finds published records, also under attack.
    #[command(
        after_help = "Examples:\n  chappe-lab sim lookup --nodes 100,1000,10000\n  chappe-lab sim lookup --nodes 1000 --session 1h --settle 30m --loss 5\n  chappe-lab sim lookup --nodes 10000 --sybils 20 --attack nearest --attacked-keys 50 --json\n  chappe-lab sim lookup --nodes 1000 --partition 1m..6h --parts 3 --one-way\n\nExit code 1 when fewer searches succeed than --least asks for; the command that repeats the run is printed."
    )]
    Lookup(super::sim_lookup::Lookup),
}

/// Flags of `sim exchange`.
#[derive(Debug, Args)]
pub(crate) struct Exchange {
    /// The first seed; each further run uses the next one.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Number of runs.
    #[arg(long, default_value_t = 1, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Simulated hours with faults in each run; the time to recover is added.
    #[arg(long, default_value_t = 1.0, value_name = "H")]
    pub hours: f64,
    /// The faults that may happen: all, or some by name.
    #[arg(
        long,
        default_value = "all",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub faults: Vec<String>,
    /// Runs at the same time. Default: as many as the machine has processors.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print the last steps of a failed run; of a single run in any case.
    #[arg(long)]
    pub trace: bool,
}

/// Flags of `sim network`.
#[derive(Debug, Args)]
pub(crate) struct NetworkStudy {
    /// Number of nodes: one that offers a stream, and its subscribers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub nodes: u32,
    /// Rate of the first node to all others together: bits a second, such as 10Mbit.
    #[arg(long, default_value = "10Mbit", value_parser = bytes_per_s, value_name = "RATE")]
    pub rate: u64,
    /// Minimum one-way time of a message.
    #[arg(long, default_value = "10ms", value_parser = duration, value_name = "DURATION")]
    pub latency: Duration,
    /// Mean of the random time on top of the latency.
    #[arg(long, default_value = "1ms", value_parser = duration, value_name = "DURATION")]
    pub jitter: Duration,
    /// Messages lost, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub loss: f64,
    /// Bytes that wait at the first node for its rate; when they are reached, connections wait.
    #[arg(long, default_value_t = 256 * 1024, value_name = "BYTES")]
    pub queue: u64,
    /// Bytes of an element.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub payload: u32,
    /// Elements per second. Default: a sweep around the rate that the network can carry.
    #[arg(long, value_name = "N")]
    pub elements: Option<f64>,
    /// Simulated time for each load.
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub time: Duration,
    /// Write the table and the figures here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// Runs a verb.
pub(crate) fn run(verb: Sim, json: bool) -> Outcome {
    match verb {
        Sim::Exchange(flags) => exchange(&flags, json),
        Sim::Network(flags) => network(&flags, json),
        Sim::Tree(flags) => super::sim_tree::run_tree(&flags, json),
        Sim::Lookup(flags) => super::sim_lookup::play(&flags, json),
    }
}

// -- exchange --

fn faults(names: &[String]) -> Result<Vec<Fault>, Failure> {
    if names == ["all"] {
        return Ok(Fault::ALL.to_vec());
    }
    let fault = |name: &String| {
        Fault::from_name(name).ok_or_else(|| {
            let known: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
            Failure::new(format!("unknown fault {name:?}"))
                .coded("argument_invalid")
                .hint(format!("the faults are {}", known.join(", ")))
        })
    };
    names.iter().map(fault).collect()
}

fn exchange(flags: &Exchange, json: bool) -> Outcome {
    let faults = faults(&flags.faults)?;
    if !(flags.hours > 0.0 && flags.hours <= 10_000.0) {
        return Err(Failure::new("--hours must be between 0 and 10,000").coded("argument_invalid"));
    }
    let settings = Settings {
        hours: flags.hours,
        trace_notes: if flags.trace || flags.runs == 1 {
            TRACE_NOTES
        } else {
            0
        },
        faults,
        ..Settings::new(flags.seed)
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let ticker = Ticker::new();
    let series = series(
        &settings,
        flags.runs,
        flags.jobs.unwrap_or(processors),
        |series| {
            ticker.tick(|| progress(series, flags.runs, began));
            true
        },
    );
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    // Fewer runs may miss an event by chance.
    let whole = settings.faults.len() == Fault::ALL.len() && flags.hours >= 1.0;
    let never = if whole && series.runs >= RUNS_FOR_EVERYTHING {
        series.never()
    } else {
        Vec::new()
    };
    if json {
        output::json(&as_json(flags, &series, &never, seconds));
    } else {
        print(flags, &series, &never, seconds);
    }
    if series.failures == 0 && never.is_empty() {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

fn progress(series: &Series, runs: u64, began: Instant) -> String {
    let seconds = began.elapsed().as_secs_f64();
    format!(
        "{} of {runs} runs, {:.0} hours, {:.0} hours a second, {} failed",
        series.runs,
        series.hours,
        series.hours / seconds,
        series.failures
    )
}

/// The command that repeats one seed.
fn replay(flags: &Exchange, seed: u64) -> String {
    format!(
        "chappe-lab sim exchange --seed {seed} --hours {} --faults {} --trace",
        flags.hours,
        flags.faults.join(",")
    )
}

fn as_json(flags: &Exchange, series: &Series, never: &[&str], seconds: f64) -> serde_json::Value {
    let failed = |report: &Report| {
        json!({
            "seed": report.seed,
            "violations": report.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "replay": replay(flags, report.seed),
        })
    };
    let happened: serde_json::Map<String, serde_json::Value> = series
        .sometimes
        .entries()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    json!({
        "first_seed": flags.seed,
        "runs": series.runs,
        "simulated_hours": series.hours,
        "seconds": seconds,
        "hours_per_second": series.hours / seconds,
        "steps": series.steps,
        "accepted": series.accepted,
        "said_lost": series.lost,
        "happened": happened,
        "never_happened": never,
        "failures": series.failures,
        "failed": series.failed.iter().map(failed).collect::<Vec<_>>(),
    })
}

fn print(flags: &Exchange, series: &Series, never: &[&str], seconds: f64) {
    let alone = series.passed.iter().filter(|_| flags.runs == 1);
    for report in series.failed.iter().chain(alone).filter(|_| flags.trace) {
        report.trace.notes().for_each(output::line);
    }
    for report in &series.failed {
        for violation in &report.violations {
            output::line(format_args!("seed {}: {violation}", report.seed));
        }
        output::line(format_args!("  again: {}", replay(flags, report.seed)));
    }
    let mut table = Table::new(["happened", "times"]);
    for (name, count) in series.sometimes.entries() {
        table.row([name.to_owned(), count.to_string()]);
    }
    output::line(&table);
    for name in never {
        output::line(format_args!("never happened: {name}"));
    }
    output::line(format_args!(
        "{} runs, {:.0} simulated hours in {seconds:.1} s ({:.0} hours a second), {} elements \
         accepted, {} numbers reported as lost, {} runs failed",
        series.runs,
        series.hours,
        series.hours / seconds,
        series.accepted,
        series.lost,
        series.failures
    ));
}

// -- network --

fn network(flags: &NetworkStudy, json: bool) -> Outcome {
    if !(0.0..=90.0).contains(&flags.loss) {
        return Err(
            Failure::new("--loss must be between 0 and 90 percent").coded("argument_invalid")
        );
    }
    if let Some(folder) = &flags.out {
        output::folder(folder)?;
    }
    let rates = loads(flags);
    let mut sights = Vec::new();
    for (nth, elements_per_s) in rates.iter().enumerate() {
        let link = Link {
            latency: Latency::Tail(flags.latency, flags.jitter),
            queue_bytes: flags.queue,
            loss: flags.loss / 100.0,
            ..Link::default()
        };
        let looked = Study {
            seed: flags.seed,
            nodes: flags.nodes,
            link,
            rate_bytes_per_s: Some(flags.rate),
            elements_per_s: *elements_per_s,
            payload_bytes: flags.payload as usize,
            duration: flags.time,
        };
        let load = format!("load {} of {}, {elements_per_s:.0}/s", nth + 1, rates.len());
        let ticker = Ticker::new();
        sights.push(study(&looked, &mut |share| {
            ticker.tick(|| format!("{load}: {:.0} %", share * 100.0));
        }));
    }
    if let Some(folder) = &flags.out {
        write(folder, flags, &sights)?;
        output::note(format_args!("sim: results written to {}", folder.display()));
    }
    if json {
        let rows: Vec<_> = sights.iter().map(sight_json).collect();
        output::json(
            &json!({ "nodes": flags.nodes, "rate_bytes_per_s": flags.rate,
            "seed": flags.seed, "rows": rows }),
        );
    } else {
        output::line(table(&sights));
        output::line(
            "Connections are simulated without congestion control: on a path that others use too \
             the rate is lower.",
        );
    }
    Ok(())
}

/// The loads to simulate: the one requested, or some around the rate that the network can carry.
fn loads(flags: &NetworkStudy) -> Vec<f64> {
    if let Some(elements) = flags.elements {
        return vec![elements.clamp(0.001, 1e7)];
    }
    let subscribers = f64::from(flags.nodes - 1);
    // An element's bytes on the wire when frames are full, with 10 for all but its payload.
    let bytes = f64::from(flags.payload) + 10.0;
    let carried = flags.rate as f64 / subscribers / bytes;
    let shares = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2];
    shares.iter().map(|share| share * carried).collect()
}

fn sight_json(sight: &StudyResult) -> serde_json::Value {
    json!({
        "offered_per_s": sight.offered_per_s,
        "received_per_s": sight.received_per_s,
        "bytes_per_s": sight.bytes_per_s,
        "latency_p50_s": sight.latency_p50_s,
        "latency_p99_s": sight.latency_p99_s,
        "latency_max_s": sight.latency_max_s,
        "caught_up_after_s": sight.caught_up_after_s,
        "sent_again_share": sight.sent_again,
        "dropped_by_network": sight.dropped,
        "queue_bytes_max": sight.queue_bytes_max,
        "in_flight_max": sight.in_flight_max,
    })
}

fn table(sights: &[StudyResult]) -> Table {
    let mut table = Table::new([
        "offered/s",
        "received/s",
        "bytes/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "caught up",
        "sent again",
        "queue",
        "in flight",
    ]);
    for sight in sights {
        let caught_up = sight
            .caught_up_after_s
            .map_or("no".to_owned(), |seconds| format!("{seconds:.1} s"));
        table.row([
            format!("{:.1}", sight.offered_per_s),
            format!("{:.1}", sight.received_per_s),
            format!("{:.0}", sight.bytes_per_s),
            format!("{:.1}", sight.latency_p50_s * 1e3),
            format!("{:.1}", sight.latency_p99_s * 1e3),
            format!("{:.1}", sight.latency_max_s * 1e3),
            caught_up,
            format!("{:.2} %", sight.sent_again * 100.0),
            sight.queue_bytes_max.to_string(),
            sight.in_flight_max.to_string(),
        ]);
    }
    table
}

fn write(folder: &Path, flags: &NetworkStudy, sights: &[StudyResult]) -> Outcome {
    let line = |name: &str, value: fn(&StudyResult) -> f64| {
        let points = sights.iter().map(|it| (it.offered_per_s, value(it)));
        plot::Series::new(name, Mark::Line).with(points)
    };
    let title = |what: &str| {
        format!(
            "{what}: {} nodes, {} B/s, {:?}",
            flags.nodes, flags.rate, flags.latency
        )
    };
    let x = "elements offered a second";
    let latency = Plot::new(title("Latency"), x, "milliseconds").with([
        line("p50", |it| it.latency_p50_s * 1e3),
        line("p99", |it| it.latency_p99_s * 1e3),
    ]);
    let rate = Plot::new(title("Rate"), x, "elements received a second").with([
        line("received", |it| it.received_per_s),
        line("offered", |it| it.offered_per_s),
    ]);
    output::file(&folder.join("latency.svg"), &latency.svg())?;
    output::file(&folder.join("rate.svg"), &rate.svg())?;
    output::file(&folder.join("network.txt"), &format!("{}\n", table(sights)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_fault_is_refused_with_the_known_ones() {
        let failure = faults(&["kil".to_owned()]).expect_err("unknown");
        assert!(failure.hint.expect("a hint").contains("kill, power-loss"));
        assert_eq!(
            faults(&["all".to_owned()]).expect("all").len(),
            Fault::ALL.len()
        );
    }
}
