//! A run in which the network is partitioned for a while and heals.

use std::time::Duration;

use chappe_kad::{Config, Key};

use super::{Run, SEARCHES_PER_S, Search};
use crate::lookup::Partition;
use crate::lookup::outcome::Parted;
use crate::network::Node;

/// Attempts to draw a node of the wanted part. Reason: of 16 parts none is missed.
const DRAWS_MAX: u32 = 1_000;

/// The phase of a search, and the part of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Without a partition.
    Whole,
    /// During the partition: for a device of the own part.
    Own,
    /// For one of another part, whose records from before still live.
    Before,
    /// While the parts heal: for a device of another one.
    Healing,
    /// After the time to heal.
    Healed,
}

impl Run<'_> {
    /// The whole run from the first publication on, except for the search for all.
    pub(super) fn fall_apart(&mut self, partition: &Partition, keys: &[Key]) {
        let searches = self.settings.searches.max(1);
        let (before, meanwhile) = keys.split_at(keys.len().div_ceil(2));
        self.publish(before);
        self.pass("settle", partition.start);
        self.outcome.parted = Some(Parted::default());

        self.world.cut(true, partition.one_way);
        let cut = self.now();
        let lasts = partition.end.saturating_sub(partition.start);
        let wait = lasts / searches;
        let mut new = meanwhile.iter();
        for number in 0..searches {
            // Spread over all the time.
            let due = (number as usize + 1) * meanwhile.len() / searches as usize;
            while meanwhile.len() - new.len() < due
                && let Some(key) = new.next()
            {
                self.publish_one(*key);
            }
            // Renewed at least this long before the cut.
            let lives = self.now() - cut < records_live();
            let when = match number % 2 == 1 && lives {
                true => When::Before,
                false => When::Own,
            };
            let among = match when {
                When::Before => before.len(),
                _ => self.devices.len(),
            };
            self.search_parted(among, when);
            self.pass("in parts", wait);
        }

        self.world.cut(false, partition.one_way);
        self.healed_at = self.now();
        let foreign = self.foreign_share();
        self.parted().foreign_at_end = foreign;
        let wait = partition.heal / searches;
        for _ in 0..searches {
            self.search_parted(self.devices.len(), When::Healing);
            self.pass("healing", wait);
        }
        let wait = Duration::from_secs_f64(1.0 / SEARCHES_PER_S);
        for _ in 0..searches {
            self.search_parted(self.devices.len(), When::Healed);
            self.pass("healed", wait);
        }
    }

    fn parted(&mut self) -> &mut Parted {
        self.outcome.parted.get_or_insert_default()
    }

    /// A search for one of the first devices, by a node of the same part as its publisher or of
    /// another one.
    fn search_parted(&mut self, among: usize, when: When) {
        if among == 0 {
            return;
        }
        let device = self.world.random.usize(..among);
        if !self.is_there(device) {
            return;
        }
        let publisher = self.devices[device].publisher;
        let part = self.world.part(publisher);
        for _ in 0..DRAWS_MAX {
            let node = self.world.any_honest();
            let same = self.world.part(node) == part;
            if node != publisher && same == (when == When::Own) {
                self.begin_search(node, Some(device), when);
                return;
            }
        }
    }

    /// Counts a search for one device. Returns whether it must succeed.
    pub(super) fn count_parted(&mut self, search: &Search) -> bool {
        let found = search.found.is_some();
        let Some(parted) = &mut self.outcome.parted else {
            return true;
        };
        let tally = match search.when {
            When::Whole => return true,
            When::Own => &mut parted.own,
            When::Before => &mut parted.before,
            When::Healing => &mut parted.healing,
            When::Healed => &mut parted.healed,
        };
        tally.count(found);
        if matches!(search.when, When::Healing | When::Healed) && !found {
            let missed = (search.began - self.healed_at).as_secs_f64();
            parted.missed_until_s = parted.missed_until_s.max(missed);
        }
        matches!(search.when, When::Own | When::Healed)
    }

    /// Examines the tables at the end.
    pub(super) fn count_reached(&mut self) {
        let parts = self.settings.partition.map_or(0, |it| it.parts);
        let first_of = |part| {
            let mut nodes = (0..self.world.honest()).map(Node);
            nodes.find(|node| self.world.part(*node) == part)
        };
        let reached = (0..parts).filter_map(first_of);
        let reached = reached.map(|node| self.reached_from(node));
        let reached = reached.fold(1.0, f64::min);
        let foreign = self.foreign_share();
        let parted = self.parted();
        (parted.reached, parted.foreign) = (reached, foreign);
    }

    /// The share of all nodes that can be reached from a node from contact to contact.
    fn reached_from(&self, node: Node) -> f64 {
        let mut reached = vec![false; self.world.count() as usize];
        reached[node.0 as usize] = true;
        let mut open = vec![node];
        let mut count = 1_u32;
        while let Some(node) = open.pop() {
            for known in self.world.known_by(node) {
                if !std::mem::replace(&mut reached[known.0 as usize], true) {
                    count += 1;
                    open.push(known);
                }
            }
        }
        f64::from(count) / f64::from(self.world.count())
    }

    /// The share of a node's contacts in another part, mean of all honest nodes.
    fn foreign_share(&self) -> f64 {
        let honest = self.world.honest();
        let of = |node: Node| {
            let part = self.world.part(node);
            let (mut all, mut foreign) = (0_u32, 0_u32);
            for known in self.world.known_by(node) {
                all += 1;
                foreign += u32::from(self.world.part(known) != part);
            }
            f64::from(foreign) / f64::from(all.max(1))
        };
        (0..honest).map(|index| of(Node(index))).sum::<f64>() / f64::from(honest.max(1))
    }
}

/// How long records of a disconnected publisher are found at least.
fn records_live() -> Duration {
    let config = Config::new(1, [0; 32]);
    config.lifetime.saturating_sub(config.republish)
}
