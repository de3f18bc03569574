//! Finds the nodes of a key's region.
//!
//! An attacker can make any number of nodes near a key, so a record is not stored at the nodes
//! nearest to its key but all over the region of the key: the places that share the first bits with
//! it, as many bits as leave 20 to 40 honest nodes. This number of bits follows from the size of
//! the network, which lookups of random places elsewhere estimate: crowding one region does not
//! shrink it.
//!
//! Paths walk to random points in the region. Then nodes of the region and of its *surroundings*
//! are asked for members, again at random points. The surroundings are eight times as large. An
//! attacker that crowds the region has few nodes there, and each honest node in them knows some
//! members in each part of the region, which makes up for a path that ended among an attacker's
//! nodes. Members are taken from 16 cells of the region in turn, so a crowd at one place fills one
//! cell of sixteen. A region that is crowded all over has more members; all are used, up to a
//! limit: an attacker has to outnumber the honest nodes of the region by far, for each key.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::SPREAD_BITS;
use crate::walk::{State, Walk};
use crate::{Contact, Key};

const CELLS: usize = 1 << SPREAD_BITS;
/// Bits by which the surroundings are wider than the region.
const SURROUNDING_BITS: u32 = 3;
/// Maximum number of remembered nodes of the surroundings, and of one cell of them.
const OUTSIDERS_MAX: usize = 96;
const OUTSIDERS_OF_CELL: usize = 12;
/// Members, and nodes of the surroundings, asked in a row without a new member before all count as
/// found; more in proportion to how crowded the region is.
const BARREN_MAX: u32 = 4;
/// The maximum of both, however crowded the region is.
const BARREN_CROWDED_MAX: u32 = 32;
/// Minimum number of members asked for others: one for each quarter of the region.
const PROBES_MIN: u32 = 4;
/// Members asked for others at a time.
const PROBES_AT_ONCE: usize = 4;
/// Cells that may fill the members between them: an attacker that crowds one cell gets an eighth.
const CELLS_FULL: usize = 8;

/// Knowledge about a node of the region, or of its surroundings.
#[derive(Debug)]
struct Known {
    contact: Contact,
    /// It was asked for members.
    probed: bool,
    /// It was returned by [`Gather::take`].
    taken: bool,
    failed: bool,
}

/// The search for a region's nodes.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) place: Key,
    bits: u32,
    /// Number of members expected from the size of the network.
    expected: f64,
    walk: Walk,
    members: BTreeMap<Key, Known>,
    members_max: usize,
    /// Number of members of each cell.
    cells: [usize; CELLS],
    outsiders: BTreeMap<Key, Known>,
    walked: bool,
    probing: BTreeSet<Key>,
    probes: u32,
    /// Numbers of members, and of others, asked in a row without a new member.
    barren: u32,
    barren_outside: u32,
    cell: usize,
}

/// The next action of a gathering.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask this node on the path for this point.
    Walk(Contact, Key),
    /// Ask this member for this point.
    Probe(Contact, Key),
    /// Wait for answers.
    Wait,
    /// All members are found.
    Done,
}

impl Gather {
    pub(crate) fn new(
        (place, bits): (Key, u32),
        expected: f64,
        walk: Walk,
        members_max: usize,
        random: &mut fastrand::Rng,
    ) -> Self {
        Self {
            place,
            bits,
            expected,
            walk,
            members: BTreeMap::new(),
            members_max,
            cells: [0; CELLS],
            outsiders: BTreeMap::new(),
            walked: false,
            probing: BTreeSet::new(),
            probes: 0,
            barren: 0,
            barren_outside: 0,
            cell: random.usize(..CELLS),
        }
    }

    /// Points of a region, one for each path, in different cells; with `around`, every other one in
    /// its surroundings.
    pub(crate) fn points(
        place: Key,
        bits: u32,
        paths: usize,
        around: bool,
        random: &mut fastrand::Rng,
    ) -> Vec<Key> {
        let first = random.usize(..CELLS);
        // Few paths get cells far apart.
        let step = (CELLS / paths.clamp(1, CELLS)).max(1);
        let cell = |path: usize| ((first + path * step) % CELLS) as u32;
        let bits_of = |path: usize| match around && path % 2 == 1 {
            true => surrounding_bits(bits),
            false => bits,
        };
        let point = |path| place.within(bits_of(path), SPREAD_BITS, cell(path), random.u128(..));
        (0..paths).map(point).collect()
    }

    fn is_member(&self, place: Key) -> bool {
        place.shared_bits(self.place) >= self.bits
    }

    fn cell_of(&self, place: Key) -> usize {
        place.bits(self.bits, SPREAD_BITS) as usize
    }

    /// The number of known members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The ratio of known to expected members; at least 1.
    pub(crate) fn crowd(&self) -> f64 {
        (self.members.len() as f64 / self.expected.max(1.0)).max(1.0)
    }

    /// The underlying lookup.
    pub(crate) fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Adds a node if it is in the region or its surroundings and there is room. Returns whether it
    /// is a new member.
    fn add(&mut self, place: Key, contact: Contact, probed: bool) -> bool {
        let known = Known {
            contact,
            probed,
            taken: false,
            failed: false,
        };
        if !self.is_member(place) {
            self.add_outsider(place, known);
            return false;
        }
        let cell = self.cell_of(place);
        let room = self.members.len() < self.members_max
            && self.cells[cell] < (self.members_max / CELLS_FULL).max(1);
        if !room || self.members.contains_key(&place) {
            return false;
        }
        self.cells[cell] += 1;
        self.members.insert(place, known);
        true
    }

    fn add_outsider(&mut self, place: Key, known: Known) {
        let bits = surrounding_bits(self.bits);
        let near = place.shared_bits(self.place) >= bits;
        if !near || self.outsiders.len() >= OUTSIDERS_MAX || self.outsiders.contains_key(&place) {
            return;
        }
        let cell = place.bits(bits, SPREAD_BITS);
        let same = |it: &&Key| it.bits(bits, SPREAD_BITS) == cell;
        if self.outsiders.keys().filter(same).count() < OUTSIDERS_OF_CELL {
            self.outsiders.insert(place, known);
        }
    }

    /// Adds the nodes that the walk has found.
    fn join(&mut self) {
        for at in 0..self.walk.pool().len() {
            let candidate = &self.walk.pool()[at];
            let (place, contact) = (candidate.place, candidate.contact);
            let state = candidate.state;
            if state != State::Failed {
                // A node on the path was asked for few contacts, and maybe for a point elsewhere.
                let probed = state != State::New && self.is_member(place);
                self.add(place, contact, probed);
            }
        }
    }

    /// The next action. `enough`: the walk stops once this many members can still be taken.
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
        if open.count() >= enough {
            return Next::Done;
        }
        let probe = match self.members.len() < self.members_max {
            true => self.next_probe(random),
            false => None,
        };
        let Some((place, contact)) = probe else {
            // Outstanding answers may name others.
            return match self.probing.is_empty() {
                true => Next::Done,
                false => Next::Wait,
            };
        };
        self.probing.insert(place);
        self.probes += 1;
        let cell = random.u32(..1 << SPREAD_BITS);
        let point = self
            .place
            .within(self.bits, SPREAD_BITS, cell, random.u128(..));
        Next::Probe(contact, point)
    }

    /// The next node to ask for members: one of the surroundings and a member in turn, until both
    /// kinds have named no new member for long enough.
    fn next_probe(&mut self, random: &mut fastrand::Rng) -> Option<(Key, Contact)> {
        let new = |it: &Known| !it.probed && !it.failed;
        let few = self.probes < PROBES_MIN;
        // Below 2^16 members.
        let barren_max = (f64::from(BARREN_MAX) * self.crowd()) as u32;
        let barren_max = barren_max.min(BARREN_CROWDED_MAX);
        let inside = match self.barren < barren_max || few {
            true => self.pick(false, new, random),
            false => None,
        };
        let outside = match self.barren_outside < barren_max || few {
            true => self.pick(true, new, random),
            false => None,
        };
        let place = match self.probes % 2 {
            0 => outside.or(inside),
            _ => inside.or(outside),
        }?;
        let known = match self.members.get_mut(&place) {
            Some(member) => member,
            None => self.outsiders.get_mut(&place)?,
        };
        known.probed = true;
        Some((place, known.contact))
    }

    /// A member, or a node of the surroundings, for which `fit` holds: of the next cell that has
    /// one.
    fn pick(
        &mut self,
        outside: bool,
        fit: impl Fn(&Known) -> bool,
        random: &mut fastrand::Rng,
    ) -> Option<Key> {
        let (all, bits) = match outside {
            true => (&self.outsiders, surrounding_bits(self.bits)),
            false => (&self.members, self.bits),
        };
        let mut cells: [Vec<Key>; CELLS] = Default::default();
        for (place, known) in all {
            if fit(known) {
                cells[place.bits(bits, SPREAD_BITS) as usize].push(*place);
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

    /// A node on the path has answered.
    pub(crate) fn on_walk_answer(&mut self, place: Key, contacts: &[(Key, Contact)]) {
        self.walk.on_answer(place, contacts);
    }

    /// A node on the path has not answered.
    pub(crate) fn on_walk_failure(&mut self, place: Key) {
        self.walk.on_failure(place);
    }

    /// A node asked for members has answered with these contacts.
    pub(crate) fn on_probe_answer(&mut self, place: Key, contacts: &[(Key, Contact)]) {
        if !self.probing.remove(&place) {
            return;
        }
        let mut new = false;
        for (place, contact) in contacts.iter().take(crate::CONTACTS_MAX) {
            new |= self.add(*place, *contact, false);
        }
        let barren = match self.is_member(place) {
            true => &mut self.barren,
            false => &mut self.barren_outside,
        };
        *barren = if new { 0 } else { *barren + 1 };
    }

    /// A node asked for members has not answered.
    pub(crate) fn on_probe_failure(&mut self, place: Key) {
        self.probing.remove(&place);
        let known = match self.members.get_mut(&place) {
            Some(member) => Some(member),
            None => self.outsiders.get_mut(&place),
        };
        if let Some(known) = known {
            known.failed = true;
        }
    }

    /// The next member that was not taken yet, from one cell after another.
    pub(crate) fn take(&mut self, random: &mut fastrand::Rng) -> Option<Contact> {
        let place = self.pick(false, |it| !it.taken && !it.failed, random)?;
        let member = self.members.get_mut(&place)?;
        member.taken = true;
        Some(member.contact)
    }

    /// This node is itself a member of the region.
    pub(crate) fn holds(&self, own: Key) -> bool {
        self.is_member(own)
    }
}

/// The number of leading bits that the surroundings of a region share.
fn surrounding_bits(bits: u32) -> u32 {
    bits.saturating_sub(SURROUNDING_BITS)
}
