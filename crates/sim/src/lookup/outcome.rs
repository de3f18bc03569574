//! The results of a simulation.

use super::{Attack, Settings};
use crate::Distribution;

/// Searches, and the successful ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// All.
    pub searches: u32,
    /// The successful ones.
    pub found: u32,
}

impl Tally {
    pub(super) fn count(&mut self, found: bool) {
        self.searches += 1;
        self.found += u32::from(found);
    }

    /// The share of successful ones; 1 without searches.
    #[must_use]
    pub fn share(&self) -> f64 {
        share(self.found, self.searches)
    }
}

/// The results of a network with a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parted {
    /// Searches within a part, during the partition, for devices that a node of the same part
    /// publishes.
    pub own: Tally,
    /// For devices that a node of another part published before, while its last records may live.
    pub before: Tally,
    /// For devices that a node of another part publishes, while the parts heal.
    pub healing: Tally,
    /// The same, when they must have healed.
    pub healed: Tally,
    /// Seconds from the end of the partition to the start of the last unsuccessful search.
    pub missed_until_s: f64,
    /// The share of contacts in another part, mean of the nodes, when the partition ended.
    pub foreign_at_end: f64,
    /// The same, when the run ended.
    pub foreign: f64,
    /// The share of the nodes that can be reached from contact to contact when the run ended: from
    /// the part with the least reach.
    pub reached: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Searches for one device whose publisher was present, and reachable for long enough.
    pub searches: u32,
    /// The successful ones.
    pub found: u32,
    /// Searches for devices whose keys were attacked.
    pub attacked_searches: u32,
    /// The successful ones.
    pub attacked_found: u32,
    /// Of each device: searches that found it, all searches for it, and honest nodes that keep its
    /// record at the end.
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
    /// Bytes of answers, as a share of the granted ones; above 1 is a broken promise.
    pub inflow_share: Distribution,
    /// Devices present when a search for all of them began and when it ended, over all such
    /// searches.
    pub devices: u32,
    /// The devices found by them.
    pub devices_found: u32,
    /// Requests of a search for all devices.
    pub full_messages: Distribution,
    /// Bytes of its answers.
    pub full_inflow: Distribution,
    /// Seconds that it took.
    pub full_seconds: Distribution,
    /// Honest nodes that kept a record, of each publication.
    pub copies: Distribution,
    /// Requests of a publication under one key.
    pub published: u32,
    /// Bytes of a node's state.
    pub state_bytes: Distribution,
    /// The size of the network as nodes estimate it, as a share of the true one.
    pub size_share: Distribution,
    /// Contacts of a node.
    pub contacts: Distribution,
    /// Mean bytes per second that a node sends over the whole run.
    pub bytes_per_s: f64,
    /// The results of the partition, if there was one.
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
    /// The requested results that cannot be judged, because no search of the kind could have
    /// succeeded.
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

    /// The share of all devices that searches for all of them found; 1 without such.
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
