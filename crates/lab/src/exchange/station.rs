//! The station of a process in the scenario: a node, or a client of a peer.

use std::time::{SystemTime, UNIX_EPOCH};

use super::message::Counted;
use crate::Error;

/// An element to be produced: its number from 1, and when its turn was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) time: i64,
}

/// The part of a process that differs between nodes and clients of peers.
pub(crate) trait Station {
    /// Connects to all others.
    async fn connect(&mut self) -> Result<(), Error>;
    /// Accepts elements that are due; they are stored or sent elsewhere.
    fn produce(&mut self, due: &[Due]);
    /// Number of elements that were produced and accepted.
    fn produced(&self) -> u64;
    /// Number of elements at the end, by origin.
    fn outputs(&self) -> Vec<u64>;
    /// The highest number at the end, by origin.
    fn reached(&mut self) -> Vec<u64>;
    /// Synchronizations of the disk so far.
    fn syncs(&self) -> u64 {
        0
    }
    /// Cuts the connections, or restores them.
    async fn outage(&mut self, _cut: bool) -> Result<(), Error> {
        Err(Error::Failed("this kind has no outage".to_owned()))
    }
    /// Stores elements in a stream without readers.
    async fn fill(&mut self, _elements: u64) -> Result<(), Error> {
        Err(Error::Failed("this kind has no backlog".to_owned()))
    }
    /// Reads that stream from the node that has it.
    async fn catch_up(&mut self, _from: usize) -> Result<(), Error> {
        Err(Error::Failed("this kind has no backlog".to_owned()))
    }
    /// Elements of the stream that it catches up with.
    fn caught_up(&self) -> u64 {
        0
    }
    /// Counts the elements that arrived and those that did not; then the station ends.
    async fn count(self, before: &[u64], produced: &[u64]) -> Result<Counted, Error>;
}

/// Nanoseconds of the wall clock: the processes of a run are on one machine.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0))
}
