//! The peers that are brokers: mosquitto with QoS 1, and NATS JetStream, carrying the same numbers.
//!
//! Each node is one client of the broker, which publishes its own elements and subscribes to all.
//! Receivers neither process nor store, and a broker stores an element once, not at each node.
//! mosquitto keeps its sessions in memory and writes them every half hour: it acknowledges at level
//! `memory`. JetStream writes files and syncs them every two minutes, its default: level `process`;
//! with `sync_interval: always` it syncs before it acknowledges: level `power`.

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::figures::{self, Line};
use super::foreign::{Foreign, find};
use super::outcome::Outcome;
use super::run::Bench;
use super::{Kind, mqtt, nats};
use crate::{Error, Report};

/// Time limit for a broker to listen.
const STARTING: Duration = Duration::from_secs(20);

/// Runs the brokers that are installed and selected. Returns the outcome of JetStream with
/// `sync_interval: always`, or the reason why there is none.
pub(crate) fn run(
    bench: &Bench<'_>,
    wanted: &impl Fn(&str) -> bool,
    report: &mut Report,
    lines: &mut Vec<Line>,
) -> Result<Outcome, String> {
    let mut synced = Err("jetstream-sync was not asked for".to_owned());
    let brokers = [
        ("mosquitto", Kind::Mosquitto),
        ("jetstream", Kind::Jetstream),
        ("jetstream", Kind::JetstreamSync),
    ];
    for (part, kind) in brokers {
        if !wanted(part) {
            continue;
        }
        let measured = measure(bench, kind, report);
        let measured = measured.map_err(|error| format!("{}: {error}", kind.name()));
        match &measured {
            Ok(outcome) => lines.push(outcome.line(kind.name())),
            Err(reason) => report.skipped.push(reason.clone()),
        }
        if kind == Kind::JetstreamSync {
            synced = measured;
        }
    }
    synced
}

fn measure(bench: &Bench<'_>, kind: Kind, report: &mut Report) -> Result<Outcome, Error> {
    let (name, sizes) = (kind.name(), bench.sizes);
    let folder = bench.folder.path().join(name);
    (bench.settings.progress)(&format!("peer {name}: {} clients", sizes.nodes));
    let broker = broker(kind, &folder)?;
    let mut cluster = Cluster::start(bench.settings, kind, sizes.nodes, &folder)?;
    cluster.produce(sizes.period)?;
    std::thread::sleep(sizes.warm);
    let before = broker.processor_s();
    let combined = cluster.measure(sizes.measure)?;
    let outcome = Outcome::of(&combined, broker.processor_s() - before);
    cluster.pause()?;
    cluster.settle()?;
    let counted = cluster.count()?;
    let name = format!("peer {name}");
    outcome.rows(report, &name, sizes.produced(), &counted);
    figures::kind(report, &name, &outcome);
    Ok(outcome)
}

fn broker(kind: Kind, folder: &Path) -> Result<Foreign, Error> {
    std::fs::create_dir_all(folder).map_err(Error::io("making a broker's folder"))?;
    let (program, flag, address, text) = match kind {
        Kind::Mosquitto => {
            // Its limits on messages in flight are for slow clients; these are not slow.
            let (host, port) = mqtt::ADDRESS.split_once(':').unwrap_or_default();
            let text = format!(
                "listener {port} {host}\nallow_anonymous true\npersistence true\n\
                 persistence_location {}/\nmax_inflight_messages 0\nmax_queued_messages 0\n\
                 user root\nset_tcp_nodelay true\n",
                folder.display()
            );
            ("mosquitto", "-c", mqtt::ADDRESS, text)
        }
        _ => {
            let sync = match kind {
                Kind::JetstreamSync => "sync_interval: always",
                _ => "",
            };
            let text = format!(
                "listen: \"{}\"\njetstream {{\n  store_dir: \"{}\"\n  {sync}\n}}\n",
                nats::ADDRESS,
                folder.join("store").display()
            );
            ("nats-server", "-c", nats::ADDRESS, text)
        }
    };
    let absent = || {
        Error::Failed(format!(
            "{program} is not installed (`check/peers exchange` installs it)"
        ))
    };
    let path: PathBuf = find(program).ok_or_else(absent)?;
    let file = folder.join("broker.conf");
    std::fs::write(&file, text).map_err(Error::io("writing a broker's configuration"))?;
    let arguments: [OsString; 2] = [flag.into(), file.into()];
    let mut broker = Foreign::start(&path, &arguments, folder)?;
    let begin = Instant::now();
    while TcpStream::connect(address).is_err() {
        if begin.elapsed() > STARTING || !broker.runs() {
            let what = format!("{program} does not listen: {}", broker.last_output());
            return Err(Error::Failed(what));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(broker)
}
