//! A day's backlog: one node catches up with a stream of 8.64 million unread elements while all
//! keep exchanging.
//!
//! There are few enough nodes that live data alone leave capacity: the question is whether catching
//! up disturbs live data.

use std::time::{Duration, Instant};

use super::Kind;
use super::cluster::Cluster;
use super::outcome::Outcome;
use super::run::Bench;
use crate::{Error, Limit, Reference, Report};

/// A day of an element every 10 ms.
const DAY: u64 = 8_640_000;
/// Nodes of a full run.
const NODES: usize = 6;
/// The node that has the backlog, and the one that catches up.
const FROM: usize = 0;
const TO: usize = 1;
/// Time limit.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs it.
pub(crate) fn run(bench: &Bench<'_>, report: &mut Report) -> Result<(), Error> {
    let quick = bench.settings.quick;
    let elements = if quick { DAY / 100 } else { DAY };
    let nodes = bench.sizes.nodes.min(NODES);
    let folder = bench.folder.path().join("backlog");
    (bench.settings.progress)(&format!("backlog: storing {elements} elements"));
    let mut cluster = Cluster::start(bench.settings, Kind::ZeromqReliable, nodes, &folder)?;
    let begin = Instant::now();
    cluster.fill(FROM, elements)?;
    let stored_s = begin.elapsed().as_secs_f64();
    cluster.produce(bench.sizes.period)?;
    std::thread::sleep(bench.sizes.warm);
    let before = Outcome::of(&cluster.measure(bench.sizes.measure)?, 0.0);
    (bench.settings.progress)("backlog: catching up");
    let begin = Instant::now();
    cluster.catch_up(TO, FROM)?;
    let mut during = Outcome::default();
    let step = if quick { 1 } else { 5 };
    let mut caught_up = 0;
    while caught_up < elements && begin.elapsed() < PATIENCE {
        let outcome = Outcome::of(&cluster.measure(Duration::from_secs(step))?, 0.0);
        during.latencies.extend(outcome.latencies);
        caught_up = cluster.progress()?[TO].caught_up;
    }
    let seconds = begin.elapsed().as_secs_f64();
    cluster.pause()?;
    cluster.settle()?;
    let counted = cluster.count()?;
    let minutes = seconds / 60.0 * DAY as f64 / caught_up.max(1) as f64;
    let note = format!("{caught_up} of {elements} in {seconds:.1} s");
    report.row("backlog: a day's elements", minutes, "min", note);
    let note = format!("{nodes} nodes that go on exchanging");
    report.row("backlog: live p99 before", before.p99_ms(), "ms", note);
    report.row("backlog: live p99 meanwhile", during.p99_ms(), "ms", "");
    let wrong = (counted.lost + counted.doubled) as f64;
    report.row("backlog: live elements lost or doubled", wrong, "", "");
    let note = "at the node that has it, before anything is exchanged";
    report.row("backlog: storing it", stored_s, "s", note);
    let name = "backlog: caught up with, an element";
    let microseconds = |seconds: f64, elements: u64| seconds * 1e6 / elements.max(1) as f64;
    let stored = Reference::new("storing it at its node", microseconds(stored_s, elements));
    let measured = (microseconds(seconds, caught_up), "µs");
    report.target(name, measured, stored, Limit::AtMost(5.0));
    let name = "backlog: live p99 meanwhile";
    let earlier = Reference::new("before", before.p99_ms());
    report.target(name, (during.p99_ms(), "ms"), earlier, Limit::AtMost(1.2));
    let due = Reference::new("due", (counted.received + counted.lost) as f64);
    let name = "backlog: live elements lost or doubled";
    report.target(name, (wrong, "elements"), due, Limit::AtMost(0.0));
    Ok(())
}
