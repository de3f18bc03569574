//! Finding the nodes of a key's region.
//!
//! A record is not stored at the nodes nearest to its key, of which an attacker makes as many as he
//! likes, but all over the region of the key: the places that share the first bits with it, so many
//! that 20 to 40 honest nodes are there. How many bits that are follows from the size of the network,
//! which is estimated by lookups of random places elsewhere: crowding one region does not shrink it.
//!
//! Paths walk to random points in the region, then nodes of the region are asked for others, at
//! random points again. Members are taken from 16 cells of the region in turn, so that a crowd at one
//! place is one cell of sixteen. A region that is crowded all over has more members; all are used, up
//! to a limit: an attacker has to outnumber the honest nodes of the region by far, for each key.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::SPREAD_BITS;
use crate::walk::{State, Walk};
use crate::{Contact, Key};

const CELLS: usize = 1 << SPREAD_BITS;
/// Members asked for others one after the other without a new one, after which all count as found.
const BARREN_MAX: u32 = 4;
/// Least members asked for others: one for each quarter of the region.
const PROBES_MIN: u32 = 4;
/// Members asked for others at a time.
const PROBES_AT_ONCE: usize = 4;
/// Cells that may fill the members between them: who crowds one gets an eighth.
const CELLS_FULL: usize = 8;

/// What is known of a node of the region.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) contact: Contact,
    probed: bool,
    /// It was given out by [`Gather::take`].
    taken: bool,
    failed: bool,
}

/// The gathering of a region's nodes.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) place: Key,
    bits: u32,
    walk: Walk,
    members: BTreeMap<Key, Member>,
    members_max: usize,
    walked: bool,
    probing: BTreeSet<Key>,
    /// Members of each cell.
    cells: [usize; CELLS],
    probes: u32,
    barren: u32,
    cell: usize,
}

/// What to do next for a gathering.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask this node for this point, on the way.
    Walk(Contact, Key),
    /// Ask this member for this point.
    Probe(Contact, Key),
    /// Wait for answers.
    Wait,
    /// All are found.
    Done,
}

impl Gather {
    pub(crate) fn new(
        place: Key,
        bits: u32,
        walk: Walk,
        members_max: usize,
        random: &mut fastrand::Rng,
    ) -> Self {
        Self {
            place,
            bits,
            walk,
            members: BTreeMap::new(),
            members_max,
            walked: false,
            probing: BTreeSet::new(),
            cells: [0; CELLS],
            probes: 0,
            barren: 0,
            cell: random.usize(..CELLS),
        }
    }

    /// Points of a region, one for each path, in different cells.
    pub(crate) fn points(
        place: Key,
        bits: u32,
        paths: usize,
        random: &mut fastrand::Rng,
    ) -> Vec<Key> {
        let first = random.usize(..CELLS);
        // Cells far apart for few paths.
        let step = (CELLS / paths.clamp(1, CELLS)).max(1);
        let cell = |path: usize| ((first + path * step) % CELLS) as u32;
        let point = |path| place.within(bits, SPREAD_BITS, cell(path), random.u128(..));
        (0..paths).map(point).collect()
    }

    fn is_member(&self, place: Key) -> bool {
        place.shared_bits(self.place) >= self.bits
    }

    fn cell_of(&self, place: Key) -> usize {
        place.bits(self.bits, SPREAD_BITS) as usize
    }

    /// How many members are known.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The lookup behind it.
    pub(crate) fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Takes up a node, if it is of the region and there is room. Says whether it is a new one.
    fn add(&mut self, place: Key, contact: Contact, probed: bool) -> bool {
        let cell = self.cell_of(place);
        let room = self.members.len() < self.members_max
            && self.cells[cell] < (self.members_max / CELLS_FULL).max(1);
        if !room || !self.is_member(place) || self.members.contains_key(&place) {
            return false;
        }
        self.cells[cell] += 1;
        self.members.insert(
            place,
            Member {
                contact,
                probed,
                taken: false,
                failed: false,
            },
        );
        true
    }

    /// Takes up what the walk has found.
    fn join(&mut self) {
        for at in 0..self.walk.pool().len() {
            let candidate = &self.walk.pool()[at];
            let (place, contact) = (candidate.place, candidate.contact);
            let state = candidate.state;
            if state != State::Failed {
                self.add(place, contact, state != State::New);
            }
        }
    }

    /// What to do next. `enough`: stop walking once so many members can still be taken.
    pub(crate) fn next(&mut self, enough: usize, random: &mut fastrand::Rng) -> Next {
        if !self.walked {
            if let Some((contact, point)) = self.walk.next() {
                return Next::Walk(contact, point);
            }
            if !self.walk.is_done() {
                return Next::Wait;
            }
            self.walked = true;
            self.join();
        }
        if self.probing.len() >= PROBES_AT_ONCE {
            return Next::Wait;
        }
        let open = self.members.values().filter(|it| !it.taken && !it.failed);
        let whole = self.barren >= BARREN_MAX && self.probes >= PROBES_MIN;
        // What is on the way may bring others.
        let end = match self.probing.is_empty() {
            true => Next::Done,
            false => Next::Wait,
        };
        if open.count() >= enough {
            return Next::Done;
        }
        if whole || self.members.len() >= self.members_max {
            return end;
        }
        let probe = self.pick(|member| !member.probed && !member.failed, random);
        let Some(place) = probe else {
            return end;
        };
        let Some(member) = self.members.get_mut(&place) else {
            return end;
        };
        member.probed = true;
        self.probing.insert(place);
        self.probes += 1;
        let cell = random.u32(..1 << SPREAD_BITS);
        let point = self
            .place
            .within(self.bits, SPREAD_BITS, cell, random.u128(..));
        Next::Probe(member.contact, point)
    }

    /// A member for which `fit` holds: of the next cell that has one, any.
    fn pick(&mut self, fit: impl Fn(&Member) -> bool, random: &mut fastrand::Rng) -> Option<Key> {
        let mut cells: [Vec<Key>; CELLS] = Default::default();
        for (place, member) in &self.members {
            if fit(member) {
                cells[self.cell_of(*place)].push(*place);
            }
        }
        for step in 1..=CELLS {
            let cell = (self.cell + step) % CELLS;
            if !cells[cell].is_empty() {
                self.cell = cell;
                return Some(cells[cell][random.usize(..cells[cell].len())]);
            }
        }
        None
    }

    /// A node asked on the way has answered.
    pub(crate) fn walked(&mut self, place: Key, contacts: &[(Key, Contact)]) {
        self.walk.answered(place, contacts);
    }

    /// A node asked on the way has not answered.
    pub(crate) fn walk_failed(&mut self, place: Key) {
        self.walk.failed(place);
    }

    /// A member has answered with these.
    pub(crate) fn probed(&mut self, place: Key, contacts: &[(Key, Contact)]) {
        if !self.probing.remove(&place) {
            return;
        }
        let mut new = false;
        for (place, contact) in contacts.iter().take(crate::CONTACTS_MAX) {
            new |= self.add(*place, *contact, false);
        }
        self.barren = if new { 0 } else { self.barren + 1 };
    }

    /// A member has not answered.
    pub(crate) fn probe_failed(&mut self, place: Key) {
        self.probing.remove(&place);
        if let Some(member) = self.members.get_mut(&place) {
            member.failed = true;
        }
    }

    /// A member that was not taken yet; from one cell after the other.
    pub(crate) fn take(&mut self, random: &mut fastrand::Rng) -> Option<Contact> {
        let place = self.pick(|member| !member.taken && !member.failed, random)?;
        let member = self.members.get_mut(&place)?;
        member.taken = true;
        Some(member.contact)
    }

    /// The node itself is one of the region.
    pub(crate) fn holds(&self, own: Key) -> bool {
        self.is_member(own)
    }
}
