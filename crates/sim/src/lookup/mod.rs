//! A Kademlia network of the product's machines, from 10 to 100,000 nodes: published records are
//! searched for, while nodes join and leave, packets are lost, an attacker's nodes sit at the most
//! harmful places, and the network is partitioned and heals.
//!
//! The machines, their packets and their tables are the product's. The cryptography is idealized
//! ([`ideal`]): 100,000 nodes on two processors leave no time for real signatures, and the attacker
//! may place nodes anywhere without searching for keys.
//!
//! [`run`] simulates one network from a seed; the same settings give the same run.

mod attacker;
pub mod ideal;
mod outcome;
mod run;
mod world;

pub use outcome::{Outcome, Parted, Tally};
pub use run::{Progress, run};

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_kad::Config;

use crate::network::{Latency, Link};

/// The places of an attacker's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Random, as for honest nodes.
    Scattered,
    /// Nearer to the attacked keys than any honest node.
    Nearest,
    /// Spread over the regions of the attacked keys: by an attacker who knows how records are
    /// placed.
    Region,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Scattered, Self::Nearest, Self::Region];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scattered => "scattered",
            Self::Nearest => "nearest",
            Self::Region => "region",
        }
    }

    /// The attack of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attack| attack.name() == name)
    }
}

/// A temporary partition. Half of the devices are published before, the others meanwhile, and
/// searches continue in all parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partition {
    /// Its start, counted from the publication of the first half of the devices.
    pub start: Duration,
    /// Its end, counted from the same moment; after `start`.
    pub end: Duration,
    /// The number of parts, into which the nodes are divided at random. At least 2.
    pub parts: u16,
    /// Packets from a part of a higher number arrive at those of lower ones, but not the reverse.
    pub one_way: bool,
    /// Time after its end within which all parts must find all records.
    pub heal: Duration,
}

impl Partition {
    /// Two separate parts, and 25 minutes to heal: five until nodes that have lost each other
    /// retry, and 20 until every record was renewed since.
    #[must_use]
    pub fn new(start: Duration, end: Duration) -> Self {
        Self {
            start,
            end,
            parts: 2,
            one_way: false,
            heal: Config::new(1, [0; 32]).republish + Duration::from_secs(300),
        }
    }
}

/// The settings of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The source of all randomness.
    pub seed: u64,
    /// Nodes, the attacker's included.
    pub nodes: u32,
    /// The share of the attacker's nodes.
    pub sybils: f64,
    /// The places of the attacker's nodes.
    pub attack: Attack,
    /// Attacked keys among which they are divided, of those that are published. At least 1.
    pub attacked_keys: u32,
    /// Devices that are published, each under its own key and under the one of all devices.
    pub devices: u32,
    /// Searches for one device; with a partition, as many during it, as many while it heals, and as
    /// many afterwards.
    pub searches: u32,
    /// Searches for all devices.
    pub full_searches: u32,
    /// How long nodes stay, on average; others replace them. `None`: forever.
    pub session: Option<Duration>,
    /// Simulated time between publishing and searching, without a partition.
    pub settle: Duration,
    /// The partition, if there is one.
    pub partition: Option<Partition>,
    /// The link of every pair.
    pub link: Link,
    /// Bytes a second that leave a node, over all its links together; `None`: no limit.
    pub rate_bytes_per_s: Option<NonZeroU64>,
    /// Bytes that wait for that rate at a node; more are dropped.
    pub queue_bytes: u64,
    /// The share of nodes that are slow.
    pub slow: f64,
    /// Their time for each packet and timer.
    pub slow_by: Duration,
    /// Random nodes through which a node enters: with `n` of them a share of `sybils^n` enters by
    /// the attacker's alone and sees nothing else, whatever it does.
    pub entrances: u32,
    /// Whether the nodes enter one after the other, instead of starting with the tables of a
    /// network that has run for long.
    pub cold: bool,
    /// Approximate number of nodes that store a record; as in the product's configuration.
    pub region_nodes: u32,
    /// Credit of a search in bytes, and of each request for more.
    pub credit: u64,
}

impl Settings {
    /// A network of `nodes` nodes on links of 5 to 50 ms, without churn, loss and attacker.
    #[must_use]
    pub fn new(seed: u64, nodes: u32) -> Self {
        Self {
            seed,
            nodes,
            sybils: 0.0,
            attack: Attack::Nearest,
            attacked_keys: 10,
            devices: 100.min(nodes),
            searches: 500,
            full_searches: 4,
            session: None,
            settle: Duration::from_secs(120),
            partition: None,
            link: Link {
                latency: Latency::Uniform(Duration::from_millis(5), Duration::from_millis(50)),
                ..Link::default()
            },
            rate_bytes_per_s: None,
            queue_bytes: 64 * 1024,
            slow: 0.0,
            slow_by: Duration::from_millis(100),
            entrances: 8,
            cold: nodes <= 1_000,
            region_nodes: 20,
            credit: 64 * 1024,
        }
    }

    /// The number of honest nodes.
    #[must_use]
    pub fn honest(&self) -> u32 {
        let sybils = (f64::from(self.nodes) * self.sybils).round() as u32;
        self.nodes.saturating_sub(sybils)
    }

    /// The command that repeats this simulation.
    #[must_use]
    pub fn command(&self) -> String {
        let session = self.session.map_or(String::new(), |session| {
            format!(" --session {}s", session.as_secs_f64())
        });
        let partition = self.partition.map_or(String::new(), |it| {
            format!(
                " --partition {}s..{}s --parts {}{} --heal {}s",
                it.start.as_secs_f64(),
                it.end.as_secs_f64(),
                it.parts,
                if it.one_way { " --one-way" } else { "" },
                it.heal.as_secs_f64(),
            )
        });
        let rate = self.rate_bytes_per_s.map_or(String::new(), |rate| {
            format!(" --rate {rate} --queue {}", self.queue_bytes)
        });
        let slow = match self.slow > 0.0 {
            true => format!(
                " --slow {} --slow-by {}s",
                self.slow * 100.0,
                self.slow_by.as_secs_f64()
            ),
            false => String::new(),
        };
        // The link of `chappe-lab sim lookup`.
        let (low, high) = match self.link.latency {
            Latency::Uniform(low, high) => (low, high),
            other => (other.mean(), other.mean()),
        };
        format!(
            "chappe-lab sim lookup --seed {} --nodes {} --sybils {} --attack {} --attacked-keys {} \
             --devices {} --searches {} --full-searches {}{session} --settle {}s --latency-min {}s \
             --latency-max {}s --loss {} --begin {} --entrances {} --region-nodes {}\
             {rate}{slow}{partition}",
            self.seed,
            self.nodes,
            self.sybils * 100.0,
            self.attack.name(),
            self.attacked_keys,
            self.devices,
            self.searches,
            self.full_searches,
            self.settle.as_secs_f64(),
            low.as_secs_f64(),
            high.as_secs_f64(),
            self.link.loss * 100.0,
            if self.cold { "cold" } else { "warm" },
            self.entrances,
            self.region_nodes,
        )
    }
}
