//! `lookup`: what searches in a Kademlia network find and cost, from 10 to 100,000 nodes, with nodes
//! that come and go, and with an attacker's nodes at the places that are searched for.
//!
//! The machines are the product's, the network and the cryptography are simulated: the figures are
//! messages, bytes and virtual time, which no load of this machine changes. Beside them stands what a
//! multicast probe asks of the same network: every node looks at it.

use std::time::{Duration, Instant};

use chappe_sim::lookup::{Attack, Outcome, Progress, Settings as Network, run as play};

use crate::{Bound, Error, Report, Settings};

/// Sizes of the sweep; the last two are left out of a quick run.
const SIZES: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];
/// The size at which churn and attackers are looked at.
const SIZE: u32 = 1_000;
/// Shares of the attacker's nodes.
const SYBILS: [f64; 4] = [0.001, 0.01, 0.1, 0.2];

/// Runs the scenario. Parts: `sizes`, `churn`, `sybils`.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("lookup", settings.seed);
    let wanted = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    if let Some(unknown) = settings
        .only
        .iter()
        .find(|it| !["sizes", "churn", "sybils"].contains(&it.as_str()))
    {
        let what = format!("lookup has no part {unknown}, but sizes, churn, sybils");
        return Err(Error::Failed(what));
    }
    if wanted("sizes") {
        let sizes = if settings.quick { &SIZES[..3] } else { &SIZES };
        for nodes in sizes {
            let network = network(settings, *nodes);
            one(&mut report, settings, &format!("{nodes} nodes"), &network);
        }
    }
    if wanted("churn") {
        let network = Network {
            session: Some(Duration::from_secs(3_600)),
            settle: Duration::from_secs(1_800),
            ..network(settings, SIZE)
        };
        let name = format!("{SIZE} nodes that stay 1 h");
        one(&mut report, settings, &name, &network);
    }
    if wanted("sybils") {
        let nearest = SYBILS.map(|sybils| (sybils, Attack::Nearest, 10));
        let region = [(0.2, Attack::Region, 10), (0.2, Attack::Region, 1)];
        for (sybils, attack, attacked_keys) in nearest.into_iter().chain(region) {
            let network = Network {
                sybils,
                attack,
                attacked_keys,
                ..network(settings, SIZE)
            };
            let name = format!(
                "{SIZE} nodes, {} % placed, {} {attacked_keys} keys",
                sybils * 100.0,
                attack.name()
            );
            one(&mut report, settings, &name, &network);
        }
    }
    Ok(report)
}

fn network(settings: &Settings, nodes: u32) -> Network {
    let network = Network::new(settings.seed, nodes);
    match settings.quick {
        true => Network {
            searches: 200,
            cold: false,
            ..network
        },
        false => network,
    }
}

fn one(report: &mut Report, settings: &Settings, name: &str, network: &Network) {
    let mut said = Instant::now();
    let outcome = play(network, &mut |progress: &Progress| {
        if said.elapsed() > Duration::from_secs(2) {
            said = Instant::now();
            let share = progress.share * 100.0;
            (settings.progress)(&format!("{name}: {} {share:.0} %", progress.phase));
        }
    });
    rows(report, name, network, &outcome);
    let least = Bound::AtLeast(99.0);
    let percent = |share: f64| share * 100.0;
    report.target(
        &format!("{name}: searches that find"),
        percent(outcome.success()),
        least,
        "%",
    );
    if network.sybils > 0.0 {
        report.target(
            &format!("{name}: searches for attacked keys that find"),
            percent(outcome.attacked_success()),
            least,
            "%",
        );
    }
    report.target(
        &format!("{name}: devices found by searches for all"),
        percent(outcome.devices_share()),
        least,
        "%",
    );
    report.target(
        &format!("{name}: bytes in, of those granted, at most"),
        percent(outcome.inflow_share.max()),
        Bound::AtMost(100.0),
        "%",
    );
}

fn rows(report: &mut Report, name: &str, network: &Network, outcome: &Outcome) {
    let of = format!("mean of {}; {}", outcome.messages.len(), network.command());
    report.row(
        &format!("{name}: messages of a search"),
        outcome.messages.mean(),
        "requests",
        of,
    );
    let mut row = |what: &str, value: f64, unit: &'static str, note: &str| {
        report.row(&format!("{name}: {what}"), value, unit, note);
    };
    row(
        "a multicast probe instead",
        f64::from(network.nodes),
        "nodes",
        "calculated: all look at it",
    );
    row("hops", outcome.hops.mean(), "hops", "mean");
    row(
        "nodes asked for records",
        outcome.asks.mean(),
        "nodes",
        "mean",
    );
    row("bytes in", outcome.inflow.mean(), "B", "mean of a search");
    row(
        "time, p50",
        outcome.seconds.percentile(50.0) * 1e3,
        "ms",
        "virtual",
    );
    row(
        "time, p99",
        outcome.seconds.percentile(99.0) * 1e3,
        "ms",
        "virtual",
    );
    row("state of a node", outcome.state_bytes.mean(), "B", "mean");
    row(
        "sent by a node",
        outcome.bytes_per_s,
        "B/s",
        "mean, whole run",
    );
}
