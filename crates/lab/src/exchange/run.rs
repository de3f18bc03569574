//! The whole scenario: our kinds, the peers, and the targets.
//!
//! The reference of a rate is the same nodes without a network (`no-network`): they produce, process and
//! store as much, and exchange nothing. The p99 is compared with theirs, and with that of JetStream when it
//! synchronizes before it acknowledges (`sync_interval: always`), as our nodes do.

use std::time::Duration;

use super::cluster::Cluster;
use super::figures;
use super::outcome::Outcome;
use super::{Kind, backlog, gsn, interrupt, namespace, outage, peers};
use crate::process::Folder;
use crate::{Error, Limit, Reference, Report, Settings, floor, percentile};

/// Parts that can be selected by name, besides the kinds.
const PARTS: [&str; 5] = ["gsn", "mosquitto", "jetstream", "outage", "backlog"];

/// Sizes of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) nodes: usize,
    pub(crate) period: Duration,
    pub(crate) warm: Duration,
    pub(crate) measure: Duration,
    /// Number of measurements of our own kinds.
    pub(crate) repeats: usize,
}

impl Sizes {
    fn of(settings: &Settings) -> Self {
        let (nodes, warm, measure, repeats) = if settings.quick {
            (4, 2, 4, 1)
        } else {
            (24, 5, 20, 3)
        };
        Self {
            nodes,
            period: Duration::from_millis(10),
            warm: Duration::from_secs(warm),
            measure: Duration::from_secs(measure),
            repeats,
        }
    }

    /// Elements per second of each producer.
    pub(crate) fn produced(&self) -> f64 {
        1.0 / self.period.as_secs_f64()
    }

    /// Elements a second that arrive, all nodes together.
    pub(crate) fn arriving(&self) -> f64 {
        self.produced() * (self.nodes * self.nodes) as f64
    }
}

/// The parts: our own kinds one by one, the peers, and two more demanding runs of ours.
pub(crate) fn parts() -> Vec<&'static str> {
    Kind::OURS
        .map(Kind::name)
        .into_iter()
        .chain(PARTS)
        .collect()
}

/// Runs the scenario, in a thread with its own network namespace.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| inside(settings));
        match running.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Failed("the scenario panicked".to_owned())),
        }
    })
}

fn inside(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("exchange", settings.seed);
    if let Err(error) = namespace::enter() {
        let what = format!("a separate network: {error}; the machine's loopback is used");
        report.skipped.push(what);
    }
    let folder = Folder::new("exchange")?;
    interrupt::remove(folder.path().to_owned());
    let sizes = Sizes::of(settings);
    let bench = Bench {
        settings,
        sizes,
        folder,
    };
    let wanted = |name: &str| settings.only.is_empty() || settings.only.iter().any(|o| o == name);
    if let Err(error) = bench.disk(&mut report) {
        report.skipped.push(format!("the disk alone: {error}"));
    }
    let (mut reliable, mut alone) = (None, None);
    let mut lines = Vec::new();
    for kind in Kind::OURS {
        if wanted(kind.name()) {
            let outcome = bench.ours(kind, &mut report);
            lines.extend(outcome.as_ref().map(|ours| ours.outcome.line(kind.name())));
            match kind {
                Kind::ZeromqReliable => reliable = outcome,
                Kind::NoNetwork => alone = outcome,
                _ => {}
            }
        }
    }
    if wanted("outage") {
        let most = reliable.as_ref().and_then(|ours| ours.most);
        if let Err(error) = outage::run(&bench, most, &mut report) {
            report.failed("outage", &error);
        }
    }
    if wanted("backlog")
        && let Err(error) = backlog::run(&bench, &mut report)
    {
        report.failed("backlog", &error);
    }
    let synced = peers::run(&bench, &wanted, &mut report, &mut lines);
    let gsn = if wanted("gsn") {
        gsn::run(&bench, &mut report, &mut lines)
    } else {
        Err("GSN was not asked for".to_owned())
    };
    figures::summary(&mut report, &lines);
    if let Some(ours) = &reliable {
        let references = References {
            alone: alone.as_ref(),
            synced,
            gsn,
        };
        references.judge(ours, &mut report);
    }
    Ok(report)
}

/// Outcomes of this run with which ours is compared, or reasons why there are none.
struct References<'a> {
    /// The same nodes without a network.
    alone: Option<&'a Ours>,
    /// JetStream, synchronized before each acknowledgement.
    synced: Result<Outcome, String>,
    /// Elements per second of GSN at its maximum.
    gsn: Result<f64, String>,
}

impl References<'_> {
    fn judge(self, ours: &Ours, report: &mut Report) {
        let outcome = &ours.outcome;
        let name = "zeromq-reliable";
        let alone = |of: fn(&Outcome) -> f64| {
            let alone = self.alone.ok_or("no-network was not measured")?;
            Ok(Reference::new("no-network", of(&alone.outcome)))
        };
        report.compare(
            format!("{name}: received, processed, stored, acknowledged"),
            (outcome.all, "1/s"),
            alone(|it| it.all),
            Limit::AtLeast(0.99),
        );
        report.compare(
            format!("{name}: the slowest producer"),
            (outcome.slowest_producer, "1/s"),
            alone(|it| it.slowest_producer),
            Limit::AtLeast(0.99),
        );
        let p99 = format!("{name}: p99 from source to stored output");
        let measured = (outcome.p99_ms(), "ms");
        let of_alone = alone(Outcome::p99_ms);
        report.compare(p99.clone(), measured, of_alone, Limit::AtMost(3.0));
        let synced = self
            .synced
            .map(|peer| Reference::new("jetstream-sync", peer.p99_ms()));
        report.compare(p99, measured, synced, Limit::AtMost(0.1));
        let wrong = (ours.lost + ours.doubled) as f64;
        let produced = Reference::new("due", (ours.received + ours.lost) as f64);
        let name_of_wrong = format!("{name}: lost or doubled");
        report.target(
            name_of_wrong,
            (wrong, "elements"),
            produced,
            Limit::AtMost(0.0),
        );
        // Both at their maximum: GSN is also asked for a thousand a second.
        let most = ours.most.unwrap_or(outcome.all).max(outcome.all);
        let gsn = self.gsn.map(|gsn| Reference::new("GSN", gsn));
        let name_of_most = format!("{name}: the largest rate");
        report.compare(name_of_most, (most, "1/s"), gsn, Limit::AtLeast(10.0));
    }
}

/// Shared state of the parts.
pub(crate) struct Bench<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) sizes: Sizes,
    pub(crate) folder: Folder,
}

/// One kind of ours, when it ran.
struct Ours {
    outcome: Outcome,
    most: Option<f64>,
    received: u64,
    lost: u64,
    doubled: u64,
}

impl Bench<'_> {
    /// The current cost of the disk alone: an element waits for two of its syncs.
    fn disk(&self, report: &mut Report) -> Result<(), Error> {
        const BYTES: usize = 2_000;
        const ROUNDS: usize = 200;
        let pause = Duration::from_millis(super::node::COMMIT_PAUSE_MS.into());
        let (folder, writers) = (self.folder.path(), self.sizes.nodes);
        let mut times = floor::syncs(folder, writers, BYTES, pause, ROUNDS)?;
        for percent in [50.0, 99.0] {
            let ms = percentile(&mut times, percent).as_secs_f64() * 1e3;
            let what = format!("the disk alone: append and sync, p{percent:.0}");
            let note = format!("{writers} writers, 2 kB every {pause:?}");
            report.row(&what, ms, "ms", note);
        }
        Ok(())
    }

    fn ours(&self, kind: Kind, report: &mut Report) -> Option<Ours> {
        match self.measure(kind, report) {
            Ok(ours) => Some(ours),
            Err(error) => {
                report.failed(kind.name(), &error);
                None
            }
        }
    }

    fn measure(&self, kind: Kind, report: &mut Report) -> Result<Ours, Error> {
        let (name, sizes) = (kind.name(), self.sizes);
        (self.settings.progress)(&format!("{name}: starting {} nodes", sizes.nodes));
        let folder = self.folder.path().join(name);
        let mut cluster = Cluster::start(self.settings, kind, sizes.nodes, &folder)?;
        (self.settings.progress)(&format!("{name}: an element every {:?}", sizes.period));
        cluster.produce(sizes.period)?;
        std::thread::sleep(sizes.warm);
        let mut outcomes = Vec::with_capacity(sizes.repeats);
        for _ in 0..sizes.repeats {
            let combined = cluster.measure(sizes.measure)?;
            outcomes.push(Outcome::of(&combined, 0.0));
        }
        outcomes.sort_by(|a, b| a.p99_ms().total_cmp(&b.p99_ms()));
        let each: Vec<_> = outcomes
            .iter()
            .map(|it| format!("{:.0}", it.p99_ms()))
            .collect();
        let outcome = outcomes.swap_remove(outcomes.len() / 2);
        let most = if self.settings.quick {
            None
        } else {
            self.most(&mut cluster, name, &outcome)?
        };
        cluster.pause()?;
        cluster.settle()?;
        let counted = cluster.count()?;
        let _ = std::fs::remove_dir_all(&folder);
        outcome.rows(report, name, sizes.produced(), &counted);
        let what = format!("{name}: repeats, the one with the median p99 is shown");
        let note = format!("p99 of each in ms: {}", each.join(", "));
        report.row(&what, each.len() as f64, "", note);
        figures::kind(report, name, &outcome);
        if let Some(most) = most {
            let what = format!("{name}: the largest rate before lag, all together");
            let note = "p99 below a second, at least 0.98 arrive in time";
            report.row(&what, most, "1/s", note);
        }
        Ok(Ours {
            outcome,
            most,
            received: counted.received,
            lost: counted.lost,
            doubled: counted.doubled,
        })
    }

    /// The largest rate of all nodes together at which it keeps up.
    fn most(
        &self,
        cluster: &mut Cluster,
        name: &str,
        usual: &Outcome,
    ) -> Result<Option<f64>, Error> {
        const UP: [u32; 7] = [125, 150, 175, 200, 250, 300, 400];
        const DOWN: [u32; 5] = [75, 50, 35, 20, 10];
        const EACH: Duration = Duration::from_secs(5);
        let keeps_up = |outcome: &Outcome, rate: f64| {
            let due = rate * (self.sizes.nodes * self.sizes.nodes) as f64;
            outcome.all >= 0.98 * due && outcome.p99_ms() <= 1_000.0
        };
        let up = keeps_up(usual, self.sizes.produced());
        let mut most = Some(usual.all).filter(|_| up);
        let steps = if up { &UP[..] } else { &DOWN[..] };
        for rate in steps {
            (self.settings.progress)(&format!("{name}: {rate} elements a second each"));
            if !up {
                // What has piled up at a larger rate is not this one's.
                cluster.pause()?;
                cluster.settle()?;
            }
            cluster.produce(Duration::from_secs(1) / *rate)?;
            std::thread::sleep(EACH / 2);
            let outcome = Outcome::of(&cluster.measure(EACH)?, 0.0);
            let kept_up = keeps_up(&outcome, f64::from(*rate));
            if kept_up {
                most = Some(outcome.all);
            }
            if kept_up != up {
                break;
            }
        }
        Ok(most)
    }
}
