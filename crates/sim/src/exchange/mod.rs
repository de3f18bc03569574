//! Whole pipelines on the simulated network and disks: log, flow, connection, flow, log.
//!
//! One to three origins, each with one or two streams, and one to three subscribers that read all of
//! them. The stores are `chappe_log::Store` on [`crate::SimDisk`], the sessions `chappe_link::Origin` and
//! `chappe_link::Subscriber`, dialled by `chappe_flow::Reconnect`: the product's own code. The nodes only
//! read and change their logs for the machines; where power is lost, an origin derives records from its
//! streams as a virtual sensor does. The judge sees every event and uses no code of the product.
//!
//! A run is drawn from its seed: nodes, links, times, limits, traffic, and one to six of the kinds
//! of [`Fault`], which then happen to nodes and links until the time is over. Then everything
//! heals, and the judge checks that every accepted element is at every subscriber, once and in
//! order, or was reported as lost for a true reason. The same settings give the same run, step by
//! step.
//!
//! ```
//! use chappe_sim::exchange::{Settings, run};
//! let report = run(&Settings { hours: 0.1, ..Settings::new(7) });
//! assert!(report.violations.is_empty(), "{:?}", report.violations);
//! ```

mod derived;
mod fault;
mod faults;
mod origin;
mod plan;
mod record;
mod repair;
mod rot;
mod run;
mod series;
mod serving;
mod store;
mod storing;
mod subscriber;
mod world;

use std::time::Duration;

pub use fault::{Fault, Sometimes};
pub use plan::Settings;
pub use series::{FAILED_KEPT, RUNS_FOR_EVERYTHING, Series, series};

use crate::judge::Violation;
use crate::network::{Node, Trace};
use chappe_flow::{Code, Failure, Fault as Whose};
use world::World;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The simulated time, including the time to recover.
    pub simulated: Duration,
    /// Steps of the network.
    pub steps: u64,
    /// Elements that were accepted.
    pub accepted: u64,
    /// Numbers reported to subscribers as lost.
    pub lost: u64,
    /// The counts of events.
    pub sometimes: Sometimes,
    /// The violations; the run ends at the first.
    pub violations: Vec<Violation>,
    /// The latest notes.
    pub trace: Trace,
}

/// Runs one seed.
#[must_use]
pub fn run(settings: &Settings) -> Report {
    run::Run::new(settings).run()
}

/// A session failed: correct if the connection is to blame, otherwise a violation.
fn failed(world: &mut World, node: Node, failure: &Failure) {
    world.note(node, failure.code.name(), [0; 3]);
    match failure.code {
        Code::Silent | Code::Handshake => world.sometimes.silent += 1,
        Code::Version => world.sometimes.version_refused += 1,
        _ if failure.fault == Whose::Connection => {}
        _ => {
            let what = format!("node {}: session failed: {failure:?}", node.0);
            world.violations.push(Violation(what));
        }
    }
}
