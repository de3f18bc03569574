//! `chappe perf`: latency, throughput and pacing between a publisher and subscribers.

mod flags;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chappe_perf::{
    Carrier, Criteria, Criterion, Event, Method, PublishSettings, Published, PublisherInterval,
    SubscribeSettings, Subscribed, SubscriberInterval, Times,
};
use chappe_terminal::measured;
use serde::Serialize;

use super::network;
use crate::output::{self, Failure, Outcome, Table};
pub(crate) use flags::Perf;
use flags::{Common, Over, Publish, Subscribe};

/// Runs a verb of `perf`; a condition that is not met is a negative result.
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
    let mut reporter = Reporter::new(&flags.common, &PublisherInterval::COLUMNS, json)?;
    let outcome =
        chappe_perf::publish(&settings, &mut |event| reporter.report(&event)).map_err(failure)?;
    reporter.end()?;
    if json {
        output::json(&Ended {
            event: "published",
            outcome: &outcome,
        });
    } else {
        print_published(&outcome);
    }
    verdict(&outcome.criteria, json, true)
}

fn subscribe(flags: &Subscribe, json: bool) -> Outcome {
    let settings = SubscribeSettings {
        carrier: carrier(&flags.common, &flags.connect)?,
        server_key: flags.server_key,
        wait: flags.common.wait,
        idle: flags.idle,
        take_for: flags.take_for,
        slows_after: flags.slows_after,
        window_bytes: flags.window_bytes,
        acknowledge_every: flags.acknowledge_every,
        acknowledge_delay: flags.acknowledge_delay,
        interval: flags.common.interval,
        criteria: criteria(&flags.common, flags.max_lost),
        stop: network::stop_at_interrupt()?,
    };
    let mut reporter = Reporter::new(&flags.common, &SubscriberInterval::COLUMNS, json)?;
    let outcome =
        chappe_perf::subscribe(&settings, &mut |event| reporter.report(&event)).map_err(failure)?;
    reporter.end()?;
    if json {
        output::json(&Ended {
            event: "subscribed",
            outcome: &outcome,
        });
    } else {
        print_subscribed(&outcome);
    }
    let interrupted = settings.stop.load(Ordering::Relaxed);
    verdict(&outcome.criteria, json, outcome.complete || interrupted)
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
        (Over::Dds, _) => {
            return Err(Failure::new("this program was built without DDS").coded("not_built_in"));
        }
        #[cfg(feature = "dds")]
        (Over::Dds, best_effort) => Carrier::Dds(chappe_perf::Domain {
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
    Failure::new(error.text)
        .coded("measurement_failed")
        .hint_if(error.hint)
}

fn verdict(criteria: &[Criterion], json: bool, complete: bool) -> Outcome {
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
            "MISSED --{name}{phase}: {measured}, required {bound} {unit}"
        ));
    }
    if !complete {
        output::note("the publisher's last sample is missing");
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

/// Reports events as they happen: as text or JSON on standard output, and as rows of a file.
struct Reporter {
    json: bool,
    rows: usize,
    csv: Option<(PathBuf, BufWriter<File>)>,
    columns: &'static [&'static str],
    failed: Option<std::io::Error>,
}

/// Rows between two heads.
const HEAD_EVERY: usize = 20;

impl Reporter {
    fn new(common: &Common, columns: &'static [&'static str], json: bool) -> Result<Self, Failure> {
        let mut csv = None;
        if let Some(path) = &common.csv {
            let failed = |error| {
                Failure::new(format!("cannot write {}: {error}", path.display()))
                    .coded("file_unwritable")
            };
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

    fn report(&mut self, event: &Event) {
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
                self.head("   time    bytes  pacer                  sent/s     MB/s  in flight mean/max    period us  blocked dropped   cpu     MiB");
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
                return Err(Failure::new(text).coded("file_unwritable"));
            }
        }
        Ok(())
    }
}

fn published_row(row: &PublisherInterval) -> String {
    let in_flight = match (row.occupation_mean, row.occupation_max) {
        (Some(mean), Some(max)) => format!("{mean:.1}/{max}"),
        _ => "-".to_owned(),
    };
    let period = row
        .period_us
        .map_or("-".to_owned(), |it| format!("{it:.1}"));
    let dropped = row.dropped.map_or("-".to_owned(), |it| it.to_string());
    let pacer = format!(
        "{}{}",
        row.pacer,
        if row.warm_up { " (warm-up)" } else { "" }
    );
    format!(
        "{:6.1}s {:>8}  {pacer:<20} {:>8.0} {:>8.2} {in_flight:>20} {period:>11} {:>7.0}% {dropped:>7} {:>5.0}% {:>7.1}",
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

fn method_text(method: Option<Method>) -> &'static str {
    match method {
        Some(Method::OneClock) => "latency: from write to read, by the clock of this machine",
        Some(Method::RoundTripHalved) => "latency: half the round trip",
        None => {
            "latency: not measured; run both ends on one machine, or use `chappe perf pub --echo 10`"
        }
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
        "in flight",
        "max",
        "period us",
        "late p99 us",
        "blocked",
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
            or(it.occupation_max.map(|max| max.to_string())),
            or(it.period_us.map(|period| format!("{period:.1}"))),
            or(it.late.map(|late| format!("{:.1}", late.p99_us))),
            format!("{:.0} %", it.blocked_share * 100.0),
            or(it.dropped.map(|it| it.to_string())),
            or(it.drain_s.map(|it| format!("{it:.3}"))),
        ];
        cells.extend(times(it.latency));
        cells.push(format!("{:.0} %", it.cpu_percent));
        table.row(cells);
    }
    output::line(&table);
    if outcome.latency_by.is_some() {
        output::line(method_text(outcome.latency_by));
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
    output::line(method_text(outcome.latency_by));
    output::line(format_args!(
        "{} received including warm-up, {} lost, {} repeated, {} foreign",
        outcome.received, outcome.lost, outcome.repeated, outcome.foreign
    ));
}
