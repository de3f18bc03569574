//! `chappe-lab sim tree`: notification trees on a network with your figures, and mixed runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use chappe_lab::plot::{self, Plot, Scale};
use chappe_notification_tree::schedule::Order;
use chappe_notification_tree::{Choice, Plan};
use chappe_sim::tree::{Lie, Report, Series, Settings, run, series};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::Ticker;
use chappe_terminal::interrupt::stop_at_interrupt;
use chappe_terminal::output::{self, Failure, Outcome, Table};
use chappe_terminal::{duration, measured};

/// The division of the sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanName {
    /// The default of sources: at most 5 % slower than the fastest, with fewer messages per node.
    Default,
    /// The quickest for the send cost and latency, under the fan-out cap.
    Postal,
    /// The paper's plan, with its rule for a silent head: the next sink takes over. With all others
    /// the sender divides its list.
    TwoHalves,
    /// Passes half of the remaining list on, and continues.
    Binomial,
    /// Four parts.
    Kary,
    /// The source alone, without waiting.
    Sequential,
    /// The source alone, waiting for each answer.
    SequentialWaiting,
}

const PLANS: [PlanName; 7] = [
    PlanName::SequentialWaiting,
    PlanName::Sequential,
    PlanName::TwoHalves,
    PlanName::Binomial,
    PlanName::Kary,
    PlanName::Postal,
    PlanName::Default,
];

impl PlanName {
    fn choice(self, flags: &SimTree) -> Choice {
        let cap = flags.cap;
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Self::Default => Choice::Measured { cap },
            Self::Postal => Choice::Fixed(Plan::measured(
                nanos(flags.send_cost),
                nanos(flags.latency.saturating_add(flags.handling)),
                cap,
            )),
            Self::TwoHalves => Choice::Fixed(Plan::TwoHalves),
            Self::Binomial => Choice::Fixed(Plan::Binomial),
            Self::Kary => Choice::Fixed(Plan::Kary(4)),
            Self::Sequential => Choice::Fixed(Plan::Sequential),
            Self::SequentialWaiting => Choice::Fixed(Plan::SequentialWaiting),
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Flags of `sim tree`.
#[derive(Debug, Args)]
pub(crate) struct SimTree {
    /// Sinks of each source; several numbers are simulated one after another. A million takes 4 GB.
    #[arg(long, default_value = "1000", value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    pub sinks: Vec<u32>,
    /// Sources that publish at the same moment.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sources: u32,
    /// Events of each source; by later ones the silent sinks are known. The table shows the worst
    /// event; --out and --json have each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub events: u32,
    /// Time between two events of a source. Default: twice --within, so that each outcome is known
    /// before the next.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub period: Option<Duration>,
    /// Sends a heartbeat before the first event, as a driver does for a new list of sinks.
    #[arg(long)]
    pub heartbeat: bool,
    /// Only this plan. Default: all, side by side.
    #[arg(long, value_enum)]
    pub plan: Option<PlanName>,
    /// Maximum number of heads to which one node sends (postal and default).
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    pub cap: u16,
    /// Order of each source's list of sinks: as they came, critical sinks first, or those first
    /// that answered earlier events.
    #[arg(long, default_value = Order::AsListed.name(),
          value_parser = PossibleValuesParser::new(Order::ALL.map(Order::name)).try_map(|name| name.parse::<Order>()))]
    pub order: Order,
    /// Critical sinks, in percent. A column shows when they have the event.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub critical: f64,
    /// Flaky sinks, in percent: each is absent at random at each event. A sink that returns
    /// receives the missed event with the next one, so the last sink is late by a period.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub flaky: f64,
    /// Time that a send takes a node: o.
    #[arg(long, default_value = "20us", value_parser = duration, value_name = "DURATION")]
    pub send_cost: Duration,
    /// Time on the path: L.
    #[arg(long, default_value = "30us", value_parser = duration, value_name = "DURATION")]
    pub latency: Duration,
    /// Time that a node takes to handle a message.
    #[arg(long, default_value = "10us", value_parser = duration, value_name = "DURATION")]
    pub handling: Duration,
    /// Longest random time on top of the latency.
    #[arg(long, default_value = "0us", value_parser = duration, value_name = "DURATION")]
    pub jitter: Duration,
    /// Messages lost, in percent.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub loss: f64,
    /// Sinks that are dead, in percent.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub dead: f64,
    /// Sinks that die while an event spreads, in percent.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub crashing: f64,
    /// Sinks that are ten times slower, in percent.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub slow: f64,
    /// Sinks that lie in all known ways, in percent.
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub liars: f64,
    /// Bytes a second of each node's port at its switch. Default: no limit.
    #[arg(long, value_name = "BYTES_PER_S", value_parser = clap::value_parser!(u64).range(1..))]
    pub port_rate: Option<u64>,
    /// Bytes that wait at a port; more are dropped.
    #[arg(long, default_value_t = 256 * 1024, value_name = "BYTES", requires = "port_rate")]
    pub port_queue: u64,
    /// Pace of each source: flood, adaptive, ... as `chappe perf pub --pacer`. Default: as its processor
    /// permits.
    #[arg(long, value_name = "PACER")]
    pub pacer: Option<chappe_flow::pacer::Choice>,
    /// Messages that wait at a busy node; more are dropped.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub receive_buffer: u32,
    /// Messages of the source itself before it calls a sink failed: k.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub attempts: u8,
    /// Time at which the source reports the outcome: T.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub within: Duration,
    /// The shortest time-out.
    #[arg(long, default_value = "200us", value_parser = duration, value_name = "DURATION")]
    pub timeout_floor: Duration,
    /// Omits signatures, tags and receipts: anyone who can send a datagram can forge one.
    #[arg(long)]
    pub trusted_network: bool,
    /// Judges this many runs of mixed sizes and faults instead; the flags above have no effect on
    /// them.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub mixed: Option<u64>,
    /// Mixed runs in parallel. Default: the number of processors.
    #[arg(long, value_name = "N", requires = "mixed")]
    pub jobs: Option<usize>,
    /// Seed of all random choices; the first seed of mixed runs.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Write the table, each event (CSV) and a figure here.
    #[arg(long, value_name = "DIR", conflicts_with = "mixed")]
    pub out: Option<PathBuf>,
}

/// One network and its results.
struct Played {
    sinks: u32,
    plan: PlanName,
    report: Report,
}

/// Runs it.
pub(crate) fn run_tree(flags: &SimTree, json: bool) -> Outcome {
    match flags.mixed {
        Some(runs) => mixed(flags, runs, json),
        None => plans(flags, json),
    }
}

/// A percentage of at most 90.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().map_err(|error| error.to_string())?;
    match (0.0..=90.0).contains(&percent) {
        true => Ok(percent),
        false => Err("it must be between 0 and 90 percent".to_owned()),
    }
}

fn settings(flags: &SimTree, sinks: u32, plan: PlanName) -> Settings {
    Settings {
        sources: flags.sources,
        events: flags.events,
        period: period(flags),
        heartbeat: flags.heartbeat,
        order: flags.order,
        critical: flags.critical / 100.0,
        flaky: flags.flaky / 100.0,
        send_cost: flags.send_cost,
        latency: flags.latency,
        handling: flags.handling,
        jitter: flags.jitter,
        loss: flags.loss / 100.0,
        dead: flags.dead / 100.0,
        crashing: flags.crashing / 100.0,
        slow: flags.slow / 100.0,
        liars: flags.liars / 100.0,
        lies: Lie::ALL.to_vec(),
        port_rate_bytes_per_s: flags.port_rate,
        port_queue_bytes: flags.port_queue,
        pacer: flags.pacer.clone(),
        receive_buffer: flags.receive_buffer as usize,
        attempts: flags.attempts,
        within: flags.within,
        timeout_floor: flags.timeout_floor,
        authenticated: !flags.trusted_network,
        ..Settings::new(flags.seed, sinks).planned(plan.choice(flags))
    }
}

fn period(flags: &SimTree) -> Duration {
    flags.period.unwrap_or(flags.within.saturating_mul(2))
}

/// The command that repeats this run.
fn replay(flags: &SimTree, sinks: u32, plan: PlanName) -> String {
    settings(flags, sinks, plan).again()
}

fn plans(flags: &SimTree, json: bool) -> Outcome {
    if let Some(folder) = &flags.out {
        made(folder)?;
    }
    let mut played = Vec::new();
    for &sinks in &flags.sinks {
        for plan in PLANS {
            if flags.plan.is_some_and(|only| only != plan) {
                continue;
            }
            let ticker = Ticker::new();
            let report = run(&settings(flags, sinks, plan), &mut |delivered| {
                ticker.tick(|| format!("{sinks} sinks, {}: {delivered} delivered", plan.name()));
            });
            played.push(Played {
                sinks,
                plan,
                report,
            });
        }
    }
    if let Some(folder) = &flags.out {
        write_below(folder, flags, &played)?;
        output::note(format_args!("sim: results written to {}", folder.display()));
    }
    if json {
        let rows: Vec<_> = played.iter().map(|it| as_json(flags, it)).collect();
        output::json(&json!({ "seed": flags.seed, "rows": rows }));
    } else {
        print(flags, &played);
    }
    match played.iter().any(|it| !it.report.violations.is_empty()) {
        false => Ok(()),
        true => Err(Failure::negative()),
    }
}

/// Creates the directory for the files before the run.
fn made(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(format!("--out {}: {error}", folder.display())).coded("file_unwritable")
    })
}

/// The table, each event, and the last sink's time by the number of sinks.
fn write_below(folder: &Path, flags: &SimTree, played: &[Played]) -> Outcome {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(format!("{}: {error}", path.display())).coded("file_unwritable")
        })
    };
    let mut csv = String::from("sinks,plan,event,live_sinks,median_s,last_s,known_s\n");
    let mut lines = Vec::new();
    for Played {
        sinks,
        plan,
        report,
    } in played
    {
        let plan = plan.name();
        for event in events(report) {
            let _ = writeln!(
                csv,
                "{sinks},{plan},{},{},{},{},{}",
                event.number,
                event.had,
                measured(event.median_s),
                measured(event.last_s),
                measured(event.known_s)
            );
        }
        let took = in_send_costs(flags, report.completion());
        plot::add(&mut lines, &plan, (f64::from(*sinks), took));
    }
    let title = format!(
        "The last sink has the event (o {:?}, L {:?})",
        flags.send_cost, flags.latency
    );
    write("tree.txt", format!("{}\n", table(flags, played)))?;
    write("tree.csv", csv)?;
    let plot = Plot {
        scales: [Scale::Logarithmic, Scale::Linear],
        ..Plot::new(title, "sinks", "send costs (o)").with(lines)
    };
    write("tree.svg", plot.svg())
}

/// One event of a source.
struct Event {
    number: usize,
    /// Sinks that had it.
    had: usize,
    median_s: f64,
    last_s: f64,
    known_s: f64,
}

fn events(report: &Report) -> impl Iterator<Item = Event> {
    let arrivals = report.arrivals.iter().enumerate();
    arrivals.map(|(index, arrivals)| {
        let at = |place: usize| arrivals.get(place).map_or(0.0, Duration::as_secs_f64);
        Event {
            number: index + 1,
            had: arrivals.len(),
            median_s: at(arrivals.len().div_ceil(2).saturating_sub(1)),
            last_s: at(arrivals.len().saturating_sub(1)),
            known_s: report.known.get(index).map_or(0.0, Duration::as_secs_f64),
        }
    })
}

fn as_json(flags: &SimTree, played: &Played) -> serde_json::Value {
    let Played {
        sinks,
        plan,
        report,
    } = played;
    let events = events(report).map(|event| {
        json!({ "live_sinks": event.had, "median_sink_s": event.median_s, "last_sink_s": event.last_s,
            "known_s": event.known_s })
    });
    let events: Vec<_> = events.collect();
    let known = report.known.iter().max().copied().unwrap_or_default();
    json!({
        "sinks": sinks,
        "plan": plan.name(),
        "events": events,
        "last_sink_s": report.completion().as_secs_f64(),
        "last_sink_send_costs": in_send_costs(flags, report.completion()),
        "median_sink_s": report.quantile(0.5).as_secs_f64(),
        "last_critical_sink_s": report.critical_completion().as_secs_f64(),
        "flaky_heads": report.flaky_heads,
        "known_s": known.as_secs_f64(),
        "failed": report.failed,
        "unknown": report.unknown,
        "messages": report.messages,
        "bytes": report.bytes,
        "repeated": report.counters.repeated,
        "taken_over": report.counters.taken_over,
        "forged": report.counters.forged,
        "lies": report.lies,
        "dropped": report.dropped,
        "violations": report.violations,
        "replay": replay(flags, *sinks, *plan),
    })
}

fn in_send_costs(flags: &SimTree, time: Duration) -> f64 {
    time.div_duration_f64(flags.send_cost.max(Duration::from_nanos(1)))
}

fn table(flags: &SimTree, played: &[Played]) -> Table {
    // Only requested figures have a column.
    let (critical, flaky) = (flags.critical > 0.0, flags.flaky > 0.0);
    let mut head = vec!["sinks", "plan", "last sink", "in o", "median"];
    head.extend(critical.then_some("last critical"));
    head.extend(flaky.then_some("flaky heads"));
    head.extend([
        "known",
        "failed",
        "unknown",
        "messages",
        "dropped",
        "again",
        "taken over",
        "lies",
    ]);
    let mut table = Table::with_head(head.into_iter().map(str::to_owned).collect());
    for Played {
        sinks,
        plan,
        report,
    } in played
    {
        let millis = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
        let known = report.known.iter().max().copied().unwrap_or_default();
        let mut row = vec![
            sinks.to_string(),
            plan.name(),
            millis(report.completion()),
            format!("{:.1}", in_send_costs(flags, report.completion())),
            millis(report.quantile(0.5)),
        ];
        row.extend(critical.then(|| millis(report.critical_completion())));
        row.extend(flaky.then(|| report.flaky_heads.iter().sum::<u64>().to_string()));
        row.extend([
            millis(known),
            report.failed.to_string(),
            report.unknown.to_string(),
            report.messages.to_string(),
            report.dropped.to_string(),
            report.counters.repeated.to_string(),
            report.counters.taken_over.to_string(),
            report.lies.to_string(),
        ]);
        table.row(row);
    }
    table
}

fn print(flags: &SimTree, played: &[Played]) {
    output::line(table(flags, played));
    output::line(format_args!(
        "o = {:?}, L = {:?}; \"known\" is when the source knows of all; failed, in all events: {} attempts unanswered \
         within {:?}",
        flags.send_cost, flags.latency, flags.attempts, flags.within
    ));
    for Played {
        sinks,
        plan,
        report,
    } in played
    {
        for violation in &report.violations {
            output::line(format_args!("{sinks} sinks, {}: {violation}", plan.name()));
        }
        if !report.violations.is_empty() {
            output::line(format_args!("  again: {}", replay(flags, *sinks, *plan)));
        }
    }
}

fn mixed(flags: &SimTree, runs: u64, json: bool) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let ticker = Ticker::new();
    let jobs = flags.jobs.unwrap_or(processors);
    let stop = stop_at_interrupt()?;
    let again = |seed: u64| format!("chappe-lab sim tree --mixed 1 --seed {seed}");
    // A long series prints violations as they are found; with JSON, on standard error.
    let broken = |report: &Report| {
        let say = |text: String| match json {
            true => output::note(text),
            false => output::line(text),
        };
        for violation in &report.violations {
            say(format!("seed {}: {violation}", report.seed));
        }
        say(format!("  again: {}", again(report.seed)));
    };
    let series = series(flags.seed, runs, jobs, broken, |series| {
        let failures = series.failures;
        ticker.tick(|| format!("{} of {runs} runs, {failures} failed", series.runs));
        !stop.load(Ordering::Relaxed)
    });
    let seconds = began.elapsed().as_secs_f64();
    if json {
        let failed = series.failed.iter().map(|report| {
            json!({ "seed": report.seed, "violations": report.violations, "replay": again(report.seed) })
        });
        let failed: Vec<_> = failed.collect();
        output::json(&json!({
            "first_seed": flags.seed,
            "runs": series.runs,
            "wanted": runs,
            "seconds": seconds,
            "sinks": series.sinks,
            "delivered": series.delivered,
            "failed_sinks": series.failed_sinks,
            "unknown": series.unknown,
            "lies": series.lies,
            "forged": series.forged,
            "messages": series.messages,
            "steps": series.steps,
            "failures": series.failures,
            "failed": failed,
        }));
    } else {
        print_mixed(&series, runs, seconds);
    }
    match series.failures {
        0 => Ok(()),
        _ => Err(Failure::negative()),
    }
}

fn print_mixed(series: &Series, wanted: u64, seconds: f64) {
    output::line(format_args!(
        "{} of {wanted} runs in {seconds:.1} s: {} sinks, {} events delivered, {} messages; {} pieces of false \
         coverage found out, {} forged events refused, {} sinks called failed, {} unknown (dead, \
         crashed or lying); {} runs broke a promise",
        series.runs,
        series.sinks,
        series.delivered,
        series.messages,
        series.lies,
        series.forged,
        series.failed_sinks,
        series.unknown,
        series.failures
    ));
}

#[cfg(test)]
mod tests {
    use chappe_sim::tree;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        flags: SimTree,
    }

    #[test]
    fn the_command_of_settings_gives_the_same_settings() {
        let mut commands = 0;
        for seed in 0..300 {
            let mixed = tree::mixed(seed);
            assert_eq!(
                mixed.again(),
                format!("chappe-lab sim tree --mixed 1 --seed {seed}")
            );
            let settings = Settings {
                suspected: 0.0,
                wrongly_suspected: 0.0,
                inline: true,
                heartbeat: seed % 2 == 0,
                critical: (seed % 90) as f64 / 100.0,
                pacer: (seed % 3 == 0).then(|| "adaptive".parse().expect("a pacer")),
                port_rate_bytes_per_s: (seed % 5 == 0).then_some(12_500_000),
                lies: Lie::ALL.to_vec(),
                ..mixed
            };
            let again = settings.again();
            let Some(words) = again.strip_prefix("chappe-lab sim tree ") else {
                // Four parts are the only ones that have a name.
                assert!(matches!(settings.plan, Choice::Fixed(Plan::Kary(parts)) if parts != 4));
                continue;
            };
            let words = ["chappe"].into_iter().chain(words.split(' '));
            let flags = Words::try_parse_from(words).expect(&again).flags;
            let plan = flags.plan.expect("one");
            assert_eq!(super::settings(&flags, flags.sinks[0], plan), settings);
            commands += 1;
        }
        assert!(commands > 200, "{commands}");
        // Every setting without a flag would be missing.
        let settings = Settings {
            cut_off: 0.1,
            ..Settings::new(1, 10)
        };
        assert_eq!(settings.again(), format!("{settings:?}"));
    }
}
