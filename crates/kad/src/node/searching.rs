//! Searches: controlled by who searches.
//!
//! A search has a credit of bytes. Each request says how long its answer may be, and that is taken
//! off the credit when it is sent; what the answer did not use comes back with it. One node at a time
//! is asked for records, page by page; an answer longer than granted is not used. When the credit
//! does not suffice for the next request, the search waits.
//!
//! Nodes of the region are asked in turn from all its parts until some had records, and said what the
//! others did. That there are none is believed when enough members deny it: the more of them there
//! are above what the size of the network lets expect, the more must.

use std::collections::BTreeMap;

use chappe_machine::Instant;

use super::requests::{Answer, Purpose, Question};
use super::{Alarm, Kad, Task, TaskId};
use crate::config::{FIND_CONTACTS, REGION_CONTACTS};
use crate::cryptography::Cryptography;
use crate::gather::{Gather, Next};
use crate::message::PACKET_BYTES_MAX;
use crate::store::digest_of;
use crate::types::{Event, SearchReport};
use crate::{Contact, Key, Misuse, Record, Salt, SearchId};

/// How often a place is looked at again when nothing is found.
const LOOKS_MAX: u8 = 3;
/// How many bits nearer to the key the last look is.
const NEARER_BITS: u32 = 2;
/// Searches at a time.
const SEARCHES_MAX: usize = 64;
/// Records that a search remembers. Reason: 100,000 devices under one key, for once.
const FOUND_MAX: usize = 131_072;
/// Places that a search still has to visit. Reason: all children of two levels.
const SALTS_MAX: usize = 512;
/// A region with so many times the members that are to be expected is crowded. Reason: that the
/// estimate is wrong by so much, or chance, happens in one of some tens.
const CROWD: f64 = 1.5;

/// One of the places of the key.
#[derive(Debug)]
struct Visit {
    salt: Salt,
    /// How many bits the nodes share that are asked.
    bits: u32,
    /// How often the place was looked at before without finding anything.
    look: u8,
    gather: Gather,
    /// Who is asked for records, and from where on.
    asking: Option<(Contact, u128)>,
    /// Who is to be asked for the next page when there is credit again, and from where on.
    next_page: Option<(Contact, u128)>,
    /// Records that who is asked has sent.
    got: usize,
    /// Of what has been found at this place.
    digest: u64,
    asks: u32,
    replicas: u32,
    denials: u32,
    splits: u32,
}

/// A search at work.
#[derive(Debug)]
pub(super) struct Searching {
    pub(super) search: SearchId,
    key: Key,
    credit: u64,
    on_the_way: u64,
    paused: bool,
    salts: Vec<Salt>,
    /// How often the next place was looked at already.
    look: u8,
    visit: Option<Visit>,
    /// What was found: identity and sequence.
    found: BTreeMap<Key, u64>,
    report: SearchReport,
}

impl Searching {
    pub(super) fn came(
        &mut self,
        purpose: Purpose,
        place: Key,
        contacts: Option<Vec<(Key, Contact)>>,
    ) {
        let Some(visit) = &mut self.visit else {
            return;
        };
        match (purpose, contacts) {
            (Purpose::Walk(_), Some(contacts)) => visit.gather.walked(place, &contacts),
            (Purpose::Walk(_), None) => visit.gather.walk_failed(place),
            (Purpose::Probe(_), Some(contacts)) => visit.gather.probed(place, &contacts),
            (Purpose::Probe(_), None) => visit.gather.probe_failed(place),
            _ => {}
        }
    }

    /// An answer may come that is so long.
    pub(super) fn grants(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.credit = self.credit.saturating_sub(bytes);
        self.on_the_way += bytes;
        self.report.granted += bytes;
        self.report.on_the_way_max = self.report.on_the_way_max.max(self.on_the_way);
    }

    /// An answer has come, or nothing has in time.
    pub(super) fn settles(&mut self, granted: usize, arrived: usize) {
        let granted = granted as u64;
        // What is longer than granted is not used, and counted as overlong.
        let arrived = granted.min(arrived as u64);
        self.on_the_way = self.on_the_way.saturating_sub(granted);
        self.report.inflow += arrived;
        if arrived > 0 {
            // What did not come in time may come yet, and is not given out again.
            self.credit += granted - arrived;
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.report.inflow > self.report.granted {
            return Err(format!(
                "{} bytes came where {} were granted",
                self.report.inflow, self.report.granted
            ));
        }
        match &self.visit {
            Some(visit) => visit.gather.walk().check(),
            None => Ok(()),
        }
    }
}

impl<C: Cryptography> Kad<C> {
    pub(super) fn search(&mut self, search: SearchId, key: Key, credit: u64) {
        let searches = |task: &&Task| matches!(task, Task::Searching(_));
        let full = self.tasks.values().filter(searches).count() >= SEARCHES_MAX;
        if full || self.searching(search).is_some() {
            self.say(Event::Misused(Misuse::TooMany(SEARCHES_MAX)));
            return;
        }
        self.counters.searches += 1;
        self.add_task(Task::Searching(Box::new(Searching {
            search,
            key,
            credit,
            on_the_way: 0,
            paused: false,
            salts: vec![Salt::default()],
            look: 0,
            visit: None,
            found: BTreeMap::new(),
            report: SearchReport::default(),
        })));
    }

    pub(super) fn grant(&mut self, search: SearchId, credit: u64) {
        if let Some((id, searching)) = self.searching(search) {
            searching.credit = searching.credit.saturating_add(credit);
            searching.paused = false;
            self.timers.cancel(&Alarm::Search(id));
            self.awake.push_back(id);
        }
    }

    pub(super) fn stop(&mut self, search: SearchId) {
        if let Some((id, _)) = self.searching(search) {
            self.end_search(id);
        }
    }

    /// A search without credit got none for too long.
    pub(super) fn search_idled(&mut self, id: TaskId) {
        self.end_search(id);
    }

    fn end_search(&mut self, id: TaskId) {
        self.timers.cancel(&Alarm::Search(id));
        if let Some(Task::Searching(searching)) = self.tasks.remove(&id) {
            self.search_ended(&searching);
        }
    }

    fn search_ended(&mut self, searching: &Searching) {
        let mut report = searching.report;
        report.found = u32::try_from(searching.found.len()).unwrap_or(u32::MAX);
        let search = searching.search;
        self.say(Event::SearchEnded { search, report });
    }

    /// Whether there is credit for an answer of so many bytes; else the search is paused.
    fn affords(&mut self, now: Instant, id: TaskId, searching: &mut Searching) -> bool {
        if searching.credit >= PACKET_BYTES_MAX as u64 {
            return true;
        }
        // What is on the way may bring some back.
        if !searching.paused && searching.on_the_way == 0 {
            searching.paused = true;
            let search = searching.search;
            self.say(Event::SearchPaused { search });
            let until = now + self.config.search_idle;
            self.timers.set(Alarm::Search(id), until);
        }
        false
    }

    pub(super) fn work_on_search(
        &mut self,
        now: Instant,
        id: TaskId,
        mut searching: Box<Searching>,
    ) -> Option<Task> {
        if !self.size_is_known(true) {
            return Some(Task::Searching(searching));
        }
        loop {
            let Some(visit) = searching.visit.as_mut() else {
                let Some(salt) = searching.salts.pop() else {
                    self.search_ended(&searching);
                    return None;
                };
                self.visit(now, &mut searching, salt);
                continue;
            };
            if visit.asking.is_some() {
                return Some(Task::Searching(searching));
            }
            if !self.affords(now, id, &mut searching) {
                return Some(Task::Searching(searching));
            }
            if !self.go_on(now, id, &mut searching) {
                return Some(Task::Searching(searching));
            }
        }
    }

    fn visit(&mut self, now: Instant, searching: &mut Searching, salt: Salt) {
        let place = searching.key.salted(salt);
        let members_max = self.config.search_asks as usize;
        let look = searching.look;
        let (bits, paths) = match (look, self.search_bits()) {
            (0, bits) => (bits, self.config.paths),
            (1, bits) => (bits, 3 * self.config.paths),
            (2, bits) => (bits.saturating_sub(1), 4 * self.config.paths),
            (_, bits) => (bits + NEARER_BITS, 2 * self.config.paths),
        };
        let gather = self.gathering((place, bits), paths, look > 0, members_max);
        searching.visit = Some(Visit {
            salt,
            bits,
            look,
            gather,
            asking: None,
            next_page: None,
            got: 0,
            digest: 0,
            asks: 0,
            replicas: 0,
            denials: 0,
            splits: 0,
        });
        // What is kept here costs nothing.
        let own = self.store.page(now, place, (0, 0), usize::MAX);
        if own.held > 0 {
            for record in own.records {
                self.look_at(now, searching, record);
            }
            if let Some(visit) = &mut searching.visit {
                visit.replicas += 1;
                visit.splits += u32::from(own.split);
            }
        }
    }

    /// The inner half of the region: who published may have taken it for half as large as it is here.
    fn search_bits(&self) -> u32 {
        let nodes = self.network_nodes().unwrap_or(1.0);
        match self.region_bits() {
            // All nodes are the region, for everybody.
            0 if nodes < f64::from(self.config.region_nodes) => 0,
            bits => bits + 1,
        }
    }

    /// How many members must deny that there are records before it is believed: all of them where
    /// there are more than is to be expected.
    fn denials_wanted(&self, visit: &Visit) -> u32 {
        match visit.gather.crowd() > CROWD {
            true => u32::MAX,
            false => self.config.search_denials,
        }
    }

    /// One step of a visit. Says whether there may be another at once.
    fn go_on(&mut self, now: Instant, id: TaskId, searching: &mut Searching) -> bool {
        let Some(visit) = searching.visit.as_mut() else {
            return true;
        };
        if let Some((member, after)) = visit.next_page.take() {
            self.ask_member(now, id, searching, member, after);
            return true;
        }
        let enough =
            visit.replicas >= self.config.search_replicas || visit.asks >= self.config.search_asks;
        if enough {
            Self::leave(searching);
            return true;
        }
        // Whether all deny it is judged by how many there are: all are looked for then.
        let doubtful = visit.denials >= self.config.search_denials;
        let look_for = if doubtful { usize::MAX } else { 1 };
        match visit.gather.next(look_for, &mut self.random) {
            Next::Walk(contact, point) => {
                searching.report.finds += 1;
                let granted = self.ask(
                    now,
                    contact,
                    question(point, FIND_CONTACTS),
                    Purpose::Walk(id),
                );
                match (granted, searching.visit.as_mut()) {
                    (0, Some(visit)) => visit.gather.walk_failed(self.place_of(&contact)),
                    _ => searching.grants(granted),
                }
                true
            }
            Next::Probe(contact, point) => {
                searching.report.finds += 1;
                let granted = self.ask(
                    now,
                    contact,
                    question(point, REGION_CONTACTS),
                    Purpose::Probe(id),
                );
                match (granted, searching.visit.as_mut()) {
                    (0, Some(visit)) => visit.gather.probe_failed(self.place_of(&contact)),
                    _ => searching.grants(granted),
                }
                true
            }
            Next::Wait => false,
            Next::Done => {
                let denied = doubtful && visit.denials >= self.denials_wanted_of(searching);
                let member = match (denied, searching.visit.as_mut()) {
                    (false, Some(visit)) => visit.gather.take(&mut self.random),
                    _ => None,
                };
                match member {
                    Some(member) => self.ask_member(now, id, searching, member, 0),
                    None => Self::leave(searching),
                }
                true
            }
        }
    }

    fn denials_wanted_of(&self, searching: &Searching) -> u32 {
        let visit = searching.visit.as_ref();
        visit.map_or(0, |visit| self.denials_wanted(visit))
    }

    fn ask_member(
        &mut self,
        now: Instant,
        id: TaskId,
        searching: &mut Searching,
        member: Contact,
        after: u128,
    ) {
        let Some(visit) = searching.visit.as_mut() else {
            return;
        };
        if searching.report.asks == 0 {
            searching.report.hops = visit.gather.walk().hops(visit.gather.place, 1);
        }
        let question = Question::Ask {
            place: visit.gather.place,
            after,
            digest: visit.digest,
        };
        visit.asks += 1;
        searching.report.asks += 1;
        match self.ask(now, member, question, Purpose::Ask(id)) {
            0 => {}
            granted => {
                visit.asking = Some((member, after));
                searching.grants(granted);
            }
        }
    }

    /// The present place is done with; if it is split its parts come next.
    fn leave(searching: &mut Searching) {
        let Some(visit) = searching.visit.take() else {
            return;
        };
        searching.report.replicas += visit.replicas;
        searching.report.denials += visit.denials;
        // Nobody has anything. All paths may have ended among an attacker's nodes: once more by many
        // paths from afar. Few of the inner half may hold it: once in the whole. Who published may
        // know of a larger network, hence of a smaller region: once nearer.
        // Where all nodes there are have denied it, no look helps.
        let all = visit.bits == 0 && visit.denials as usize >= visit.gather.len();
        searching.look = match visit.replicas {
            0 if !all && visit.look < LOOKS_MAX => visit.look + 1,
            _ => 0,
        };
        if searching.look > 0 {
            searching.salts.push(visit.salt);
        }
        // One may say it wrongly.
        if visit.splits * 3 > visit.replicas && searching.salts.len() + 16 <= SALTS_MAX {
            searching.salts.extend(visit.salt.children());
        }
    }

    /// A node has sent records, or has not.
    pub(super) fn records_came(&mut self, now: Instant, id: TaskId, answer: Answer) {
        let Some(Task::Searching(mut searching)) = self.tasks.remove(&id) else {
            return;
        };
        self.took(now, &mut searching, answer);
        self.tasks.insert(id, Task::Searching(searching));
    }

    fn took(&mut self, now: Instant, searching: &mut Searching, answer: Answer) {
        let Some((member, after)) = searching.visit.as_mut().and_then(|it| it.asking.take()) else {
            return;
        };
        let (held, split, records) = match answer {
            Answer::Records {
                held,
                split,
                records,
            } => (usize::from(held), split, records),
            _ => {
                if let Some(visit) = &mut searching.visit {
                    visit.got = 0;
                }
                return;
            }
        };
        let mut last = after;
        let mut good = 0;
        for record in records {
            let identity = record.identity().number();
            if identity <= last && last != 0 || !self.look_at(now, searching, record) {
                // Out of order or not what was asked for: what follows is not looked at.
                break;
            }
            last = identity;
            good += 1;
        }
        let Some(visit) = &mut searching.visit else {
            return;
        };
        visit.got += good;
        if good > 0 && visit.got < held {
            visit.next_page = Some((member, last));
            return;
        }
        // That it holds what has been found already it says by sending nothing of it.
        let had = visit.got > 0 || held > 0 && visit.digest != 0;
        visit.got = 0;
        match had {
            true => {
                visit.replicas += 1;
                visit.splits += u32::from(split);
            }
            false => visit.denials += 1,
        }
    }

    /// Looks at one record: says whether it belongs to what was asked for and is signed.
    fn look_at(&mut self, now: Instant, searching: &mut Searching, record: Record) -> bool {
        let Some(visit) = &mut searching.visit else {
            return false;
        };
        let identity = record.identity();
        let fits = record.key == searching.key
            && Salt::of(identity, visit.salt.level()) == visit.salt
            && self
                .peers
                .unix_s(now)
                .is_none_or(|unix_s| !record.is_out_of_time(unix_s));
        let known = searching.found.get(&identity).copied();
        if !fits {
            return false;
        }
        if known.is_some_and(|known| known >= record.sequence) {
            return true;
        }
        if !record.is_signed(self.peers.cryptography()) {
            return false;
        }
        if known.is_none() && searching.found.len() >= FOUND_MAX {
            return true;
        }
        searching.found.insert(identity, record.sequence);
        if let Some(known) = known {
            let old = Record {
                sequence: known,
                value: Vec::new(),
                ..record.clone()
            };
            visit.digest ^= digest_of(&old);
        }
        visit.digest ^= digest_of(&record);
        let search = searching.search;
        self.say(Event::Found { search, record });
        true
    }
}

fn question(target: Key, count: u8) -> Question {
    Question::Find { target, count }
}
