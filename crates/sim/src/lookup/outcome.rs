//! The results of a run.

use super::{Attack, Settings};
use crate::Distribution;

/// Number of searches, and of those that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// All.
    pub searches: u32,
    /// Those that found.
    pub found: u32,
}

impl Tally {
    pub(super) fn count(&mut self, found: bool) {
        self.searches += 1;
        self.found += u32::from(found);
    }

    /// The share that found; 1 without searches.
    #[must_use]
    pub fn share(&self) -> f64 {
        share(self.found, self.searches)
    }
}

/// The results for a partitioned network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parted {
    /// Searches within a part, during the partition, for records published by a node of the same
    /// part.
    pub own: Tally,
    /// For records published before by a node of another part, as long as its last records may
    /// live.
    pub before: Tally,
    /// For records published by a node of another part, while the parts merge.
    pub healing: Tally,
    /// The same, once they must have merged.
    pub healed: Tally,
    /// Seconds from the end of the partition to the last search that started and failed.
    pub missed_until_s: f64,
    /// The share of contacts that are of another part, mean of the nodes, when the partition ended.
    pub foreign_at_end: f64,
    /// The same at the end of the run.
    pub foreign: f64,
    /// The share of the nodes reachable from contact to contact at the end of the run: from a node
    /// of the part where it is smallest.
    pub reached: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Searches for one device whose publisher was present, and reachable for long enough.
    pub searches: u32,
    /// Those that found it.
    pub found: u32,
    /// Searches for devices whose keys were attacked.
    pub attacked_searches: u32,
    /// Those that found it.
    pub attacked_found: u32,
    /// For each device: successful searches, all searches, and honest nodes that hold its record at
    /// the end.
    pub by_device: Vec<(u32, u32, u32)>,
    /// Hops to the region.
    pub hops: Distribution,
    /// Requests of a search until the device was found.
    pub messages: Distribution,
    /// Requests for records until the device was found.
    pub asks: Distribution,
    /// Seconds until the device was found.
    pub seconds: Distribution,
    /// Bytes of answers of a search.
    pub inflow: Distribution,
    /// Bytes received as a share of those granted; above 1 is a broken promise.
    pub inflow_share: Distribution,
    /// Devices present at the start and at the end of a search for all of them, over all such
    /// searches.
    pub devices: u32,
    /// Those that it found.
    pub devices_found: u32,
    /// Requests of a search for all devices.
    pub full_messages: Distribution,
    /// Bytes of its answers.
    pub full_inflow: Distribution,
    /// Seconds that it took.
    pub full_seconds: Distribution,
    /// Honest nodes that stored a record, for each publication.
    pub copies: Distribution,
    /// Requests of a publication under one key.
    pub published: u32,
    /// Size of a node's state in bytes.
    pub state_bytes: Distribution,
    /// The size of the network as nodes estimate it, as a share of the true one.
    pub size_share: Distribution,
    /// Contacts of a node.
    pub contacts: Distribution,
    /// Mean number of bytes that a node sends per second over the entire run.
    pub bytes_per_s: f64,
    /// The results for the parts, if the network was partitioned.
    pub parted: Option<Parted>,
    /// The share of packets that a full queue dropped, or a slow node's full buffer.
    pub dropped_share: f64,
    /// Nodes that were replaced.
    pub replaced: u32,
    /// Simulated seconds.
    pub simulated_s: f64,
    /// Steps of the network.
    pub steps: u64,
}

impl Outcome {
    /// Requested figures that are not judged because no such search could have succeeded: their
    /// shares mean nothing.
    #[must_use]
    pub fn unjudged(&self, settings: &Settings) -> Vec<&'static str> {
        let one = settings.searches > 0;
        let attacked = settings.sybils > 0.0 && settings.attack != Attack::Scattered;
        let none = |of: fn(&Parted) -> &Tally| {
            let parted = self.parted.as_ref();
            parted.is_some_and(|parted| of(parted).searches == 0)
        };
        let kinds = [
            ("searches", !one && settings.full_searches == 0),
            ("searches for one device", one && self.searches == 0),
            (
                "searches for attacked keys",
                one && attacked && self.attacked_searches == 0,
            ),
            (
                "searches for all devices",
                settings.full_searches > 0 && self.devices == 0,
            ),
            ("searches in the own part", one && none(|it| &it.own)),
            (
                "searches from part to part, healed",
                one && none(|it| &it.healed),
            ),
        ];
        let kinds = kinds.into_iter().filter(|(_, unjudged)| *unjudged);
        kinds.map(|(kind, _)| kind).collect()
    }

    /// The share of searches that found their device; 1 without searches.
    #[must_use]
    pub fn success(&self) -> f64 {
        share(self.found, self.searches)
    }

    /// The share of searches for attacked keys that found their device; 1 without such.
    #[must_use]
    pub fn attacked_success(&self) -> f64 {
        share(self.attacked_found, self.attacked_searches)
    }

    /// The share of all devices found by searches for all of them; 1 if there were none.
    #[must_use]
    pub fn devices_share(&self) -> f64 {
        share(self.devices_found, self.devices)
    }
}

fn share(part: u32, whole: u32) -> f64 {
    match whole {
        0 => 1.0,
        whole => f64::from(part) / f64::from(whole),
    }
}
