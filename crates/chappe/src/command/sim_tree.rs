//! `chappe sim tree`: notification trees on a network of your own figures, and runs of mixed trouble.

use std::time::{Duration, Instant};

use chappe_notification_tree::{Choice, Plan};
use chappe_sim::tree::{Lie, Report, Series, Settings, run, series};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::{OrderName, duration};
use crate::output::{self, Failure, Outcome, Table};

/// How sinks are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanName {
    /// The quickest for the send cost and latency, under the fan-out cap.
    Postal,
    /// The paper's.
    TwoHalves,
    /// Give away half of what is left, and go on.
    Binomial,
    /// Four parts.
    Kary,
    /// The source alone, without waiting.
    Sequential,
    /// The source alone, waiting for each answer.
    SequentialWaiting,
}

const PLANS: [PlanName; 6] = [
    PlanName::SequentialWaiting,
    PlanName::Sequential,
    PlanName::TwoHalves,
    PlanName::Binomial,
    PlanName::Kary,
    PlanName::Postal,
];

impl PlanName {
    fn choice(self, cap: u16) -> Choice {
        match self {
            Self::Postal => Choice::Measured { cap },
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
    /// Sinks of each source.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    pub sinks: u32,
    /// Sources that publish at the same moment.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sources: u32,
    /// Events of each source; later ones know who was silent before.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub events: u32,
    /// Only this plan. Default: all, side by side.
    #[arg(long, value_enum)]
    pub plan: Option<PlanName>,
    /// Most heads that one node sends to (postal).
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    pub cap: u16,
    /// How each source arranges its list of sinks.
    #[arg(long, value_enum, default_value_t = OrderName::AsListed)]
    pub order: OrderName,
    /// Sinks that are critical, in percent: when they have the event is said beside.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub critical: f64,
    /// Sinks that are flaky, in percent: at each event they are there or not, by chance.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub flaky: f64,
    /// What a send costs a node: o.
    #[arg(long, default_value = "20us", value_parser = duration, value_name = "DURATION")]
    pub send_cost: Duration,
    /// The time on the way: L.
    #[arg(long, default_value = "30us", value_parser = duration, value_name = "DURATION")]
    pub latency: Duration,
    /// The most that comes on top of the latency at random.
    #[arg(long, default_value = "0us", value_parser = duration, value_name = "DURATION")]
    pub jitter: Duration,
    /// Messages lost, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub loss: f64,
    /// Sinks that are dead, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub dead: f64,
    /// Sinks that lie in all known ways, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub liars: f64,
    /// When the source says what it knows: T.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub within: Duration,
    /// No signatures, tags and receipts: whoever can send a datagram can forge.
    #[arg(long)]
    pub trusted_network: bool,
    /// Instead: so many runs of mixed sizes and troubles, judged. The flags above have no part in it.
    #[arg(long, value_name = "M")]
    pub mixed: Option<u64>,
    /// Mixed runs at the same time. Default: as many as the machine has processors.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Where chance comes from; the first seed of mixed runs.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// Runs it.
pub(crate) fn run_tree(flags: &SimTree, json: bool) -> Outcome {
    match flags.mixed {
        Some(runs) => mixed(flags, runs, json),
        None => plans(flags, json),
    }
}

fn share(name: &str, percent: f64) -> Result<f64, Failure> {
    match (0.0..=90.0).contains(&percent) {
        true => Ok(percent / 100.0),
        false => Err(Failure::new(format!(
            "--{name} is not between 0 and 90 percent"
        ))),
    }
}

fn settings(flags: &SimTree, plan: PlanName) -> Result<Settings, Failure> {
    Ok(Settings {
        sources: flags.sources,
        events: flags.events,
        period: flags.within * 2,
        plan: plan.choice(flags.cap),
        order: flags.order.order(),
        critical: share("critical", flags.critical)?,
        flaky: share("flaky", flags.flaky)?,
        send_cost: flags.send_cost,
        latency: flags.latency,
        jitter: flags.jitter,
        loss: share("loss", flags.loss)?,
        dead: share("dead", flags.dead)?,
        liars: share("liars", flags.liars)?,
        lies: Lie::ALL.to_vec(),
        within: flags.within,
        authenticated: !flags.trusted_network,
        ..Settings::new(flags.seed, flags.sinks)
    })
}

/// The command that runs this plan again.
fn replay(flags: &SimTree, plan: PlanName) -> String {
    let trusted = if flags.trusted_network {
        " --trusted-network"
    } else {
        ""
    };
    format!(
        "chappe sim tree --seed {} --sinks {} --sources {} --events {} --plan {} --cap {} \
         --order {} --critical {} --flaky {} --send-cost {}ns --latency {}ns --jitter {}ns --loss {} --dead {} --liars {} --within {}ms{trusted}",
        flags.seed,
        flags.sinks,
        flags.sources,
        flags.events,
        plan.name(),
        flags.cap,
        flags.order.name(),
        flags.critical,
        flags.flaky,
        flags.send_cost.as_nanos(),
        flags.latency.as_nanos(),
        flags.jitter.as_nanos(),
        flags.loss,
        flags.dead,
        flags.liars,
        flags.within.as_millis(),
    )
}

fn plans(flags: &SimTree, json: bool) -> Outcome {
    let mut rows = Vec::new();
    for plan in PLANS {
        if flags.plan.is_some_and(|only| only != plan) {
            continue;
        }
        let settings = settings(flags, plan)?;
        let mut said = Instant::now();
        let report = run(&settings, &mut |delivered| {
            if said.elapsed() > Duration::from_secs(1) {
                said = Instant::now();
                output::progress(format_args!("sim: {}: {delivered} delivered", plan.name()));
            }
        });
        rows.push((plan, report));
    }
    let failed = rows.iter().any(|(_, report)| !report.violations.is_empty());
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(plan, report)| as_json(flags, *plan, report))
            .collect();
        output::json(&json!({ "sinks": flags.sinks, "seed": flags.seed, "rows": rows }));
    } else {
        print(flags, &rows);
    }
    match failed {
        false => Ok(()),
        true => Err(Failure::negative()),
    }
}

fn as_json(flags: &SimTree, plan: PlanName, report: &Report) -> serde_json::Value {
    let known = report.known.iter().max().copied().unwrap_or_default();
    json!({
        "plan": plan.name(),
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
        "replay": replay(flags, plan),
    })
}

fn in_send_costs(flags: &SimTree, time: Duration) -> f64 {
    time.as_secs_f64() / flags.send_cost.as_secs_f64().max(1e-9)
}

fn print(flags: &SimTree, rows: &[(PlanName, Report)]) {
    // What was not asked for has no column.
    let (critical, flaky) = (flags.critical > 0.0, flags.flaky > 0.0);
    let mut head = vec!["plan", "last sink", "in o", "median"];
    head.extend(critical.then_some("last critical"));
    head.extend(flaky.then_some("flaky heads"));
    head.extend([
        "known",
        "failed",
        "unknown",
        "messages",
        "again",
        "taken over",
        "lies",
    ]);
    let mut table = Table::with_head(head.into_iter().map(str::to_owned).collect());
    for (plan, report) in rows {
        let millis = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
        let known = report.known.iter().max().copied().unwrap_or_default();
        let mut row = vec![
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
            report.counters.repeated.to_string(),
            report.counters.taken_over.to_string(),
            report.lies.to_string(),
        ]);
        table.row(row);
    }
    output::line(&table);
    output::line(format_args!(
        "o = {:?}, L = {:?}; \"known\" is when the source knows of all; failed: {} attempts unanswered within {:?}",
        flags.send_cost,
        flags.latency,
        Settings::new(flags.seed, flags.sinks).attempts,
        flags.within
    ));
    for (plan, report) in rows {
        for violation in &report.violations {
            output::line(format_args!("{}: {violation}", plan.name()));
        }
        if !report.violations.is_empty() {
            output::line(format_args!("  again: {}", replay(flags, *plan)));
        }
    }
}

fn mixed(flags: &SimTree, runs: u64, json: bool) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let said = std::sync::Mutex::new(began);
    let jobs = flags.jobs.unwrap_or(processors);
    let again = |seed: u64| format!("chappe sim tree --mixed 1 --seed {seed}");
    // A long series says at once what it finds; with JSON, whose document comes at the end, beside it.
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
        let mut said = said
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.elapsed() > Duration::from_secs(1) {
            *said = Instant::now();
            output::progress(format_args!(
                "sim: {} of {runs} runs, {} failed",
                series.runs, series.failures
            ));
        }
        true
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
        print_mixed(&series, seconds);
    }
    match series.failures {
        0 => Ok(()),
        _ => Err(Failure::negative()),
    }
}

fn print_mixed(series: &Series, seconds: f64) {
    output::line(format_args!(
        "{} runs in {seconds:.1} s: {} sinks, {} events delivered, {} messages; {} pieces of false \
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
