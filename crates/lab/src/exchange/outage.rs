//! After an outage: how soon latency returns to its previous value.
//!
//! All nodes exchange at nine tenths of the largest rate. The links of one node are cut: it
//! receives nothing, the others continue, and its backlog grows. Then the links are restored. The
//! 99th percentile of each second, at the node where it is highest, shows when latency is back to
//! normal: the median of five seconds counts, so that a single slow or fast second does not decide.

use std::time::Duration;

use super::Kind;
use super::cluster::Cluster;
use super::outcome::Outcome;
use super::run::Bench;
use crate::{Error, Limit, Reference, Report};

/// The node whose links are cut.
const NODE: usize = 1;
/// A latency up to this many times the previous maximum counts as normal.
const AS_BEFORE: f64 = 1.2;
/// Seconds of which the median counts.
const TOGETHER: usize = 5;
/// A shorter p99 cannot be distinguished from noise.
const NOISE_MS: f64 = 50.0;

/// Runs the outage of the reliable kind; `most` is the measured largest rate of all nodes together.
pub(crate) fn run(bench: &Bench<'_>, most: Option<f64>, report: &mut Report) -> Result<(), Error> {
    let (length, watched) = if bench.settings.quick {
        (Duration::from_secs(5), Duration::from_secs(15))
    } else {
        (Duration::from_secs(60), Duration::from_secs(60))
    };
    let nodes = bench.sizes.nodes;
    let most = most.unwrap_or_else(|| bench.sizes.arriving());
    let each = 0.9 * most / (nodes * nodes) as f64;
    let name = "outage";
    let folder = bench.folder.path().join(name);
    (bench.settings.progress)(&format!("{name}: {each:.0} elements a second each"));
    let mut cluster = Cluster::start(bench.settings, Kind::ZeromqReliable, nodes, &folder)?;
    cluster.produce(Duration::from_secs_f64(1.0 / each))?;
    std::thread::sleep(bench.sizes.warm);
    // As long as afterwards: the maximum of more seconds is higher.
    let before = Outcome::of(&cluster.measure(watched)?, 0.0);
    let highest = medians(&before.high).into_iter().max().unwrap_or_default();
    let bound_ms = (AS_BEFORE * highest.as_secs_f64() * 1e3).max(NOISE_MS);
    cluster.outage(&[NODE], true)?;
    std::thread::sleep(length);
    cluster.outage(&[NODE], false)?;
    let after = Outcome::of(&cluster.measure(watched)?, 0.0);
    let bound = Duration::from_secs_f64(bound_ms / 1e3);
    for (when, high) in [("before", &before.high), ("after", &after.high)] {
        let each = high.iter().map(|high| high.as_millis().to_string());
        let each = each.collect::<Vec<_>>().join(" ");
        (bench.settings.progress)(&format!("{name}: p99 of each second {when}, in ms: {each}"));
    }
    let back = back_after(&after.high, bound);
    cluster.pause()?;
    cluster.settle()?;
    let counted = cluster.count()?;
    let note = format!("{each:.0} elements a second each");
    report.row(
        "outage: highest p99 of five seconds before",
        highest.as_secs_f64() * 1e3,
        "ms",
        note,
    );
    let note = format!("after {length:?} without links, until p99 is below {bound_ms:.0} ms");
    report.row("outage: back after", back as f64, "s", note);
    let wrong = (counted.lost + counted.doubled) as f64;
    report.row("outage: lost or doubled", wrong, "", "");
    let outage = match bench.settings.quick {
        false => Ok(Reference::new("the outage", length.as_secs_f64())),
        true => Err("a quick outage is as short as the seconds looked at together".to_owned()),
    };
    let name = "outage: p99 is back after";
    report.compare(name, (back as f64, "s"), outage, Limit::AtMost(0.5));
    let due = Reference::new("due", (counted.received + counted.lost) as f64);
    let name = "outage: lost or doubled";
    report.target(name, (wrong, "elements"), due, Limit::AtMost(0.0));
    Ok(())
}

/// The median of each row of neighbouring seconds.
fn medians(seconds: &[Duration]) -> Vec<Duration> {
    let rows = seconds.windows(TOGETHER.min(seconds.len()).max(1));
    rows.map(|row| {
        let mut sorted = row.to_vec();
        sorted.sort_unstable();
        sorted[row.len() / 2]
    })
    .collect()
}

/// The seconds until the median stays within `bound`: the end of the last run of seconds above it.
fn back_after(seconds: &[Duration], bound: Duration) -> usize {
    let late = medians(seconds).iter().rposition(|median| *median > bound);
    late.map_or(0, |first| (first + TOGETHER).min(seconds.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_second_is_no_outage_and_a_row_of_them_is() {
        let seconds = |ms: &[u64]| -> Vec<Duration> {
            ms.iter().map(|ms| Duration::from_millis(*ms)).collect()
        };
        let bound = Duration::from_millis(50);
        let back = |ms: &[u64]| back_after(&seconds(ms), bound);
        assert_eq!(back(&[40, 900, 40, 40, 60, 40, 40, 40]), 0);
        // Seconds 0 to 3 are late: the median of seconds 1 to 5 is the last above the bound.
        assert_eq!(back(&[900, 800, 700, 60, 40, 40, 40, 40, 40, 40]), 6);
        // Never back, and no data.
        assert_eq!(back(&[900; 8]), 8);
        assert_eq!(back(&[]), 0);
        assert_eq!(medians(&seconds(&[3, 1, 2])), seconds(&[2]));
    }
}
