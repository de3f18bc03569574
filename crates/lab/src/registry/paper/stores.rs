//! The library by store, the pauses of snapshots, and the memory of a node.

use std::thread;
use std::time::Instant;

use chappe_log::Level;
use chappe_registry::{MemoryJournal, Registry};

use super::library::Library;
use super::node::{Node, NodeStore};
use super::under_test::{Point, curve, publish};
use super::{Bench, STEP};
use crate::Error;

/// The levels of the log.
pub(super) const LEVELS: [(&str, Level); 3] = [
    ("memory", Level::Memory),
    ("process", Level::Process),
    ("power", Level::Power),
];

/// The longest publication of each hundred, without and during a snapshot, in ms.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots {
    pub(super) without: Vec<(usize, f64)>,
    pub(super) during: Vec<(usize, f64)>,
    /// How long each snapshot took.
    pub(super) snapshot: Vec<(usize, f64)>,
}

impl Bench<'_> {
    /// The business logic: no SOAP, and a journal in memory.
    pub(super) fn in_memory(&mut self, size: (usize, usize)) -> Result<Vec<Point>, Error> {
        let failed = Error::failed("opening a registry in memory");
        let registry = Registry::open(MemoryJournal::new()).map_err(failed)?;
        let mut library = Library::new(registry)?;
        library.add_canonical()?;
        curve(&mut library, size, &mut self.random)
    }

    pub(super) fn on_log(
        &mut self,
        name: &str,
        level: Level,
        size: (usize, usize),
    ) -> Result<Vec<Point>, Error> {
        let folder = self.subfolder(&format!("log-{name}"))?;
        let mut library = Library::on_log(&folder, level)?;
        curve(&mut library, size, &mut self.random)
    }

    /// Hundreds of publications alternately without and during a snapshot, at level `power`.
    pub(super) fn snapshots(&mut self) -> Result<Snapshots, Error> {
        let folder = self.subfolder("snapshots")?;
        let mut library = Library::on_log(&folder, Level::Power)?;
        let mut measured = Snapshots::default();
        let hundred = |library: &mut Library, from: usize| -> Result<f64, Error> {
            let mut longest = 0.0_f64;
            for number in from..from + STEP {
                let (_, times) = publish(library, number)?;
                let slowest = times.iter().max().copied().unwrap_or_default();
                longest = longest.max(slowest.as_secs_f64() * 1e3);
            }
            Ok(longest)
        };
        for from in (0..self.sizes.curve).step_by(2 * STEP) {
            measured
                .without
                .push((from + STEP, hundred(&mut library, from)?));
            let registry = library.registry.clone();
            let snapshot = thread::spawn(move || {
                let start = Instant::now();
                registry.compact().map(|()| start.elapsed())
            });
            let services = from + 2 * STEP;
            measured
                .during
                .push((services, hundred(&mut library, from + STEP)?));
            let ended = snapshot.join();
            let ended = ended.map_err(|_| Error::Failed("a snapshot panicked".to_owned()))?;
            let took = ended.map_err(Error::failed("writing a snapshot"))?;
            measured.snapshot.push((services, took.as_secs_f64() * 1e3));
        }
        Ok(measured)
    }

    /// Resident bytes of a node, less those of one with a hundred services. Its log is on the disk, as that of every
    /// node: a store in memory would hold each record a second time.
    pub(super) fn memory(&mut self) -> Result<Vec<(usize, f64)>, Error> {
        let folder = self.subfolder("memory")?;
        let node = Node::start(&self.program, &folder, &NodeStore::Log, false)?;
        let mut client = node.client()?;
        // What the first requests need is not the services'.
        for number in 0..STEP {
            publish(&mut client, 900_000 + number)?;
        }
        let before = node.resident()?;
        let mut measured = Vec::new();
        for from in (0..self.sizes.memory).step_by(1_000) {
            let until = (from + 1_000).min(self.sizes.memory);
            super::large::fill(&client, from..until)?;
            let grown = node.resident()?.saturating_sub(before);
            measured.push((until, grown as f64));
        }
        Ok(measured)
    }
}
