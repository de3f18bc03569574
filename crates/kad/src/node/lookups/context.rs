//! The context of a task: settings, table and randomness; also starts walks.

use crate::gather::Gather;
use crate::node::question::{Answer, Purpose};
use crate::size::Size;
use crate::table::Table;
use crate::walk::{Walk, WalkConfig};
use crate::{Config, Key};

/// Number of nearest nodes that a lookup returns and that the size estimate uses.
pub(super) const CLOSEST: usize = 16;
/// Nearest nodes that must have answered on each path.
pub(super) const WIDTH: usize = 2;
/// Contacts from anywhere in the table with which each path of a cautious walk starts.
const FAR_PATH_SEEDS: usize = 4;

/// Everything outside a task that its steps use.
#[derive(Debug)]
pub(in crate::node) struct Context<'a> {
    pub(in crate::node) config: &'a Config,
    pub(in crate::node) table: &'a Table,
    pub(in crate::node) random: &'a mut fastrand::Rng,
}

impl Context<'_> {
    pub(super) fn walk_config(&self) -> WalkConfig {
        WalkConfig {
            width: WIDTH,
            parallel: self.config.parallel,
            host_contacts: self.config.host_contacts,
            asks_max: self.config.lookup_asks,
            finish: None,
        }
    }

    /// A walk that starts at the nearest known nodes, distributed over its paths.
    pub(super) fn walk(&self, points: &[Key], config: WalkConfig) -> Walk {
        let mut walk = Walk::new(points, config);
        let nearest: Vec<_> = points
            .iter()
            .map(|point| self.table.closest(*point, 2 * CLOSEST))
            .collect();
        // Each path in turn receives its nearest contact that no other path has.
        for rank in 0..2 * CLOSEST {
            for (path, contacts) in nearest.iter().enumerate() {
                let at = match points.first() == points.last() {
                    // One target: all paths share one list and take turns.
                    true => rank * points.len() + path,
                    false => rank,
                };
                if let Some((place, contact)) = contacts.get(at) {
                    walk.add_start(path, *place, *contact);
                }
            }
        }
        walk
    }

    /// A walk that starts at random known nodes, because the nearest may be an attacker's.
    fn walk_from_afar(&mut self, points: &[Key], config: WalkConfig) -> Walk {
        let mut walk = Walk::new(points, config);
        let known = self.table.any(FAR_PATH_SEEDS * points.len(), self.random);
        for (at, (place, contact)) in known.into_iter().enumerate() {
            walk.add_start(at % points.len(), place, contact);
        }
        walk
    }

    /// Gathers the nodes that share `bits` bits with a place. `is_wary`: walks on paths from afar,
    /// and through the surroundings.
    pub(super) fn gather(
        &mut self,
        (place, bits): (Key, u32),
        paths: usize,
        is_wary: bool,
        members_max: usize,
        size: &Size,
    ) -> Gather {
        let points = Gather::points(place, bits, paths, is_wary, self.random);
        let config = self.walk_config();
        let walk = match is_wary {
            true => self.walk_from_afar(&points, config),
            false => self.walk(&points, config),
        };
        let expected = members_expected(size, bits);
        Gather::new((place, bits), expected, walk, members_max, self.random)
    }
}

/// Expected number of nodes that share this many bits with a place, by the estimated size of the
/// network.
fn members_expected(size: &Size, bits: u32) -> f64 {
    let bits = i32::try_from(bits).unwrap_or(i32::MAX);
    size.nodes().unwrap_or(1.0) / f64::from(bits).exp2()
}

/// Passes the answer to a gathering's request to the gathering.
pub(super) fn on_gather_answer(gather: &mut Gather, purpose: Purpose, place: Key, answer: &Answer) {
    match (purpose, answer) {
        (Purpose::Walk(_), Answer::Contacts(contacts)) => gather.on_walk_answer(place, contacts),
        (Purpose::Walk(_), _) => gather.on_walk_failure(place),
        (Purpose::Probe(_), Answer::Contacts(contacts)) => gather.on_probe_answer(place, contacts),
        (Purpose::Probe(_), _) => gather.on_probe_failure(place),
        _ => {}
    }
}
