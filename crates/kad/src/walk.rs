//! One iterative lookup over several paths that share no node.
//!
//! Sources: Kademlia (2002), section 2.3; Baumgart, Mies: S/Kademlia (2007), section 4.4 (disjoint
//! paths). Each path walks towards its own point. For a plain lookup that is the target; for a
//! region it is a random point in it, so no path leads to an attacker that waits nearest to the
//! target. A node belongs to the first path that learned of it. A path ends when its nearest
//! unasked node is farther from its point than enough nodes that answered. A plain lookup then asks
//! those of the nearest nodes known to any path that have not been asked.

use std::collections::BTreeSet;

use crate::contact::{PackedAddress, host};
use crate::{Contact, Key};

/// Maximum number of nodes that a lookup remembers. Reason: twice what honest answers contain on 4
/// paths.
const POOL_MAX: usize = 1_024;
/// Maximum number of contacts of one answer that are processed.
const ANSWER_MAX: usize = crate::CONTACTS_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    New,
    Asked,
    Answered,
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) place: Key,
    pub(crate) contact: Contact,
    pub(crate) state: State,
    /// Number of answers that led to it: 1 for a contact of the own table.
    pub(crate) hops: u8,
    path: u8,
}

#[derive(Debug)]
struct Path {
    point: Key,
    on_the_way: usize,
    done: bool,
}

/// The state of a lookup.
#[derive(Debug)]
pub(crate) struct Walk {
    paths: Vec<Path>,
    pool: Vec<Candidate>,
    places: BTreeSet<Key>,
    /// Number of near nodes of a path that must have answered.
    width: usize,
    parallel: usize,
    host_contacts: usize,
    asked: u32,
    asks_max: u32,
    turn: usize,
    /// Of a plain lookup: the target, and the number of nearest nodes to ask.
    finish: Option<(Key, usize)>,
}

/// The settings of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkConfig {
    pub(crate) width: usize,
    pub(crate) parallel: usize,
    pub(crate) host_contacts: usize,
    pub(crate) asks_max: u32,
    pub(crate) finish: Option<(Key, usize)>,
}

impl Walk {
    /// A lookup towards these points, one path each.
    pub(crate) fn new(points: &[Key], config: WalkConfig) -> Self {
        let path = |point: &Key| Path {
            point: *point,
            on_the_way: 0,
            done: false,
        };
        Self {
            paths: points.iter().map(path).collect(),
            pool: Vec::new(),
            places: BTreeSet::new(),
            width: config.width,
            parallel: config.parallel,
            host_contacts: config.host_contacts,
            asked: 0,
            asks_max: config.asks_max,
            turn: 0,
            finish: config.finish,
        }
    }

    /// The known nodes.
    pub(crate) fn pool(&self) -> &[Candidate] {
        &self.pool
    }

    /// The number of nodes asked.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// Adds a start node to a path.
    pub(crate) fn add_start(&mut self, path: usize, place: Key, contact: Contact) {
        self.add_candidate(path, 1, place, contact);
    }

    fn add_candidate(&mut self, path: usize, hops: u8, place: Key, contact: Contact) {
        if self.pool.len() >= POOL_MAX || self.places.contains(&place) {
            return;
        }
        if !contact.address.ip().is_loopback() {
            let here = host(&PackedAddress::from(contact.address));
            let same = |it: &&Candidate| host(&PackedAddress::from(it.contact.address)) == here;
            if self.pool.iter().filter(same).count() >= self.host_contacts {
                return;
            }
        }
        self.places.insert(place);
        self.pool.push(Candidate {
            place,
            contact,
            state: State::New,
            hops,
            // At most 16 paths.
            path: path as u8,
        });
    }

    /// The next node to ask, and the point to ask for. `None`: wait, or [`Walk::is_done`].
    pub(crate) fn next(&mut self) -> Option<(Contact, Key)> {
        let count = self.paths.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if let Some(at) = self.next_of(index) {
                self.turn = (index + 1) % count;
                let path = &mut self.paths[index];
                path.on_the_way += 1;
                self.asked += 1;
                let candidate = &mut self.pool[at];
                candidate.state = State::Asked;
                return Some((candidate.contact, path.point));
            }
        }
        self.finish()
    }

    /// All paths have ended: the next of the nearest nodes that was not asked.
    fn finish(&mut self) -> Option<(Contact, Key)> {
        let (target, count) = self.finish?;
        if !self.paths.iter().all(|path| path.done) || self.asked >= self.asks_max {
            return None;
        }
        let known = |it: &(usize, &Candidate)| it.1.state != State::Failed;
        let mut nearest: Vec<_> = self.pool.iter().enumerate().filter(known).collect();
        nearest.sort_by_key(|(_, it)| it.place.distance(target));
        nearest.truncate(count);
        let new = nearest.iter().find(|(_, it)| it.state == State::New);
        let Some((at, _)) = new else {
            if !nearest.iter().any(|(_, it)| it.state == State::Asked) {
                self.finish = None;
            }
            return None;
        };
        let at = *at;
        self.asked += 1;
        let candidate = &mut self.pool[at];
        candidate.state = State::Asked;
        Some((candidate.contact, target))
    }

    fn next_of(&mut self, index: usize) -> Option<usize> {
        let path = &mut self.paths[index];
        if path.done || path.on_the_way >= self.parallel {
            return None;
        }
        if self.asked >= self.asks_max {
            path.done = path.on_the_way == 0;
            return None;
        }
        let point = path.point;
        let of_path = || {
            let own = move |(_, it): &(usize, &Candidate)| usize::from(it.path) == index;
            self.pool.iter().enumerate().filter(own)
        };
        let nearest = of_path()
            .filter(|(_, it)| it.state == State::New)
            .min_by_key(|(_, it)| it.place.distance(point));
        let Some((at, nearest)) = nearest else {
            path.done = path.on_the_way == 0;
            return None;
        };
        let distance = nearest.place.distance(point);
        let nearer =
            |it: &Candidate| it.state == State::Answered && it.place.distance(point) < distance;
        if of_path().filter(|(_, it)| nearer(it)).count() >= self.width {
            path.done = path.on_the_way == 0;
            return None;
        }
        Some(at)
    }

    fn answer(&mut self, place: Key, state: State) -> Option<(usize, u8)> {
        let asked = |it: &&mut Candidate| it.place == place && it.state == State::Asked;
        let candidate = self.pool.iter_mut().find(asked)?;
        candidate.state = state;
        let (path, hops) = (usize::from(candidate.path), candidate.hops);
        // None is outstanding on a path that has ended.
        self.paths[path].on_the_way = self.paths[path].on_the_way.saturating_sub(1);
        Some((path, hops))
    }

    /// A node has answered with these contacts.
    pub(crate) fn on_answer(&mut self, place: Key, contacts: &[(Key, Contact)]) {
        if let Some((path, hops)) = self.answer(place, State::Answered) {
            for (place, contact) in contacts.iter().take(ANSWER_MAX) {
                self.add_candidate(path, hops.saturating_add(1), *place, *contact);
            }
        }
    }

    /// A node has not answered.
    pub(crate) fn on_failure(&mut self, place: Key) {
        self.answer(place, State::Failed);
    }

    /// Whether every path has ended. Ask [`Walk::next`] first.
    pub(crate) fn is_done(&self) -> bool {
        let asked = |it: &Candidate| it.state == State::Asked;
        self.paths.iter().all(|path| path.done)
            && (self.finish.is_none() || self.asked >= self.asks_max)
            && !self.pool.iter().any(asked)
    }

    /// The nodes nearest to `target` that answered, nearest first.
    pub(crate) fn closest(&self, target: Key, count: usize) -> Vec<&Candidate> {
        let answered = |it: &&Candidate| it.state == State::Answered;
        let mut nearest: Vec<_> = self.pool.iter().filter(answered).collect();
        nearest.sort_by_key(|it| it.place.distance(target));
        nearest.truncate(count);
        nearest
    }

    /// The largest number of hops to one of the nearest.
    pub(crate) fn hops(&self, target: Key, count: usize) -> u8 {
        let nearest = self.closest(target, count);
        nearest.iter().map(|it| it.hops).max().unwrap_or(0)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let asked = |index: usize| {
            let of = |it: &&Candidate| usize::from(it.path) == index && it.state == State::Asked;
            self.pool.iter().filter(of).count()
        };
        for (index, path) in self.paths.iter().enumerate() {
            let counted = asked(index) == path.on_the_way || path.done;
            if !counted || path.on_the_way > self.parallel {
                return Err(format!("path {index} counts {} in flight", path.on_the_way));
            }
        }
        if self.pool.len() > POOL_MAX || self.pool.len() != self.places.len() {
            return Err("the pool of a lookup is too large".to_owned());
        }
        Ok(())
    }
}
