//! `lookup`: the results and costs of searches in a Kademlia network of 10 to 100,000 nodes, with
//! churn, with an attacker's nodes at the places that are searched, and under partitions.
//!
//! The machines are the product's; the network and the cryptography are simulated. The figures are
//! messages, bytes and virtual time, which do not depend on the load of this machine. They are
//! compared with the cost of a multicast probe in the same network, which every node receives.

use std::time::{Duration, Instant};

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{AppSequence, Content, Message, Probe, Target, target_service};
use chappe_sim::lookup::{
    Attack, Outcome, Parted, Partition, Progress, Settings as Network, run as play,
};

use chappe_soap::EndpointReference;
use chappe_soap::udp::Retransmission;
use chappe_xml::Name;

use crate::{Error, Limit, Reference, Report, Settings};

/// Sizes of the sweep; a quick run omits the last two.
const SIZES: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];
/// The size for churn and attackers.
const SIZE: u32 = 1_000;
/// The smallest share of searches that succeed, and of devices that are found.
const FOUND: f64 = 0.99;
/// Shares of the attacker's nodes.
const SYBILS: [f64; 4] = [0.001, 0.01, 0.1, 0.2];

/// Nodes, hours, parts and whether one direction passes, of the partitioned networks; a quick run
/// omits the last two.
const PARTITIONS: [(u32, u64, u16, bool); 7] = [
    (10, 6, 2, false),
    (60, 1, 2, false),
    (1_000, 1, 2, false),
    (1_000, 1, 2, true),
    (1_000, 6, 4, false),
    (1_000, 24, 2, false),
    (10_000, 6, 2, false),
];
/// The parts of the scenario.
pub(crate) const PARTS: [&str; 4] = ["sizes", "churn", "sybils", "partition"];

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("lookup", settings.seed);
    let wanted = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
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
    if wanted("partition") {
        let count = if settings.quick { 5 } else { PARTITIONS.len() };
        for (nodes, hours, parts, one_way) in PARTITIONS.into_iter().take(count) {
            let start = Duration::from_secs(60);
            let end = start + Duration::from_secs(hours * 3_600);
            let partition = Partition {
                parts,
                one_way,
                ..Partition::new(start, end)
            };
            let network = Network {
                partition: Some(partition),
                ..network(settings, nodes)
            };
            let way = if one_way { ", one way" } else { "" };
            let name = format!("{nodes} nodes in {parts} parts for {hours} h{way}");
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
    let mut printed_at = Instant::now();
    let outcome = play(network, &mut |progress: &Progress| {
        if printed_at.elapsed() > Duration::from_secs(2) {
            printed_at = Instant::now();
            let share = progress.share * 100.0;
            (settings.progress)(&format!("{name}: {} {share:.0} %", progress.phase));
        }
    });
    rows(report, name, network, &outcome);
    for kind in outcome.unjudged(network) {
        let wanted = Reference::new("at least", 1.0);
        let name = format!("{name}: {kind} that are judged");
        report.target(name, (0.0, "searches"), wanted, Limit::AtLeast(1.0));
    }
    let mut found = |what: &str, unit: &'static str, found: u32, of: u32| {
        let all = Reference::new("all", f64::from(of));
        let name = format!("{name}: {what}");
        report.target(name, (f64::from(found), unit), all, Limit::AtLeast(FOUND));
    };
    found(
        "searches that succeed",
        "searches",
        outcome.found,
        outcome.searches,
    );
    if network.sybils > 0.0 {
        let (hits, searches) = (outcome.attacked_found, outcome.attacked_searches);
        found(
            "searches for attacked keys that succeed",
            "searches",
            hits,
            searches,
        );
    }
    let (devices, all) = (outcome.devices_found, outcome.devices);
    found("found by searches for all", "devices", devices, all);
    if let Some(parted) = &outcome.parted {
        self::parted(report, name, network, parted);
    }
    let granted = Reference::new("granted", 1.0);
    let inflow = outcome.inflow_share.max();
    let name = format!("{name}: bytes in of a search, the largest share");
    report.target(name, (inflow, ""), granted, Limit::AtMost(1.0));
}

/// The parts of a network that was divided.
fn parted(report: &mut Report, name: &str, network: &Network, parted: &Parted) {
    let percent = |share: f64| share * 100.0;
    for (what, tally) in [
        ("of the own part, while it lasts", &parted.own),
        ("of another part, afterwards", &parted.healed),
    ] {
        let name = format!("{name}: searches for devices {what} that succeed");
        let all = Reference::new("all", f64::from(tally.searches));
        let found = (f64::from(tally.found), "searches");
        report.target(name, found, all, Limit::AtLeast(FOUND));
    }
    let name_of = |what: &str| format!("{name}: {what}");
    let nodes = f64::from(network.nodes);
    let reached = (parted.reached * nodes, "nodes");
    let all = Reference::new("all", nodes);
    let name = name_of("reached from contact to contact");
    report.target(name, reached, all, Limit::AtLeast(1.0));
    for (what, tally) in [
        ("devices of another part, from before", &parted.before),
        ("devices of another part, while it heals", &parted.healing),
    ] {
        let note = format!("of {} searches", tally.searches);
        report.row(&name_of(what), percent(tally.share()), "%", note);
    }
    let note = "from the end of the partition to the last failed search";
    report.row(&name_of("missed"), parted.missed_until_s, "s", note);
    for (what, share) in [
        ("at the end of the partition", parted.foreign_at_end),
        ("in the end", parted.foreign),
    ] {
        let what = format!("contacts of other parts, {what}");
        report.row(&name_of(&what), percent(share), "%", "mean of all nodes");
    }
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
    probe(report, name, network.nodes);
}

/// The requests of a multicast probe for one device in the same network, calculated from
/// WS-Discovery: all nodes read it, and the matching one answers after a random delay.
fn probe(report: &mut Report, name: &str, nodes: u32) {
    let copies = 1 + Retransmission::default().repeat;
    let (probe, answer) = (bytes_of(question()), bytes_of(answer()));
    let delay_ms = target_service::Config::new("urn:uuid:0", 1, 0)
        .app_max_delay
        .as_secs_f64()
        * 1e3;
    let heard = f64::from(nodes) * f64::from(copies);
    let of = |what: &str| format!("{name}: a multicast probe instead: {what}");
    let twice = format!("calculated: all look at {copies} datagrams of {probe} B");
    report.row(&of("datagrams looked at"), heard, "datagrams", twice);
    let note = "calculated: all nodes together";
    report.row(&of("bytes of those"), heard * probe as f64, "B", note);
    let bytes = f64::from(copies) * answer as f64;
    let note = format!("calculated: one answer of {answer} B, {copies} times");
    report.row(&of("bytes in"), bytes, "B", note);
    for (percent, what) in [(0.5, "time, p50"), (0.99, "time, p99")] {
        let note =
            "calculated: the answer is delayed by 0 to APP_MAX_DELAY; latency is not counted";
        report.row(&of(what), percent * delay_ms, "ms", note);
    }
}

/// Bytes of a message on the network: its text, with the heads of UDP and IPv4.
fn bytes_of(content: Content) -> usize {
    const HEADS: usize = 28;
    const ID: &str = "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let answers = matches!(content, Content::ProbeMatches(_));
    let message = Message {
        dialect: Dialect::V2009,
        message_id: ID.into(),
        relates_to: answers.then(|| ID.into()),
        to: None,
        reply_to: None,
        sequence: answers.then_some(AppSequence {
            instance_id: 1_800_000_000,
            sequence_id: None,
            message_number: 1,
        }),
        content,
    };
    message.to_envelope(&[]).to_text().len() + HEADS
}

fn question() -> Content {
    Content::Probe(Probe {
        types: vec![sensor()],
        scopes: Vec::new(),
        match_by: None,
    })
}

fn answer() -> Content {
    let target = Target {
        endpoint: EndpointReference::new("urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        types: vec![Dialect::V2009.device_type(), sensor()],
        scopes: vec!["https://example.org/ward/3".into()],
        xaddrs: vec!["http://192.0.2.7:5357/device".into()],
        metadata_version: 1,
    };
    Content::ProbeMatches(vec![target])
}

fn sensor() -> Name {
    Name::new("https://example.org/thermometer", "Thermometer")
}
