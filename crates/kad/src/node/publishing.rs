//! Own records: stored all over the regions of their keys, and renewed.

use std::time::Duration;

use chappe_machine::Instant;

use super::requests::{Answer, Purpose, Question};
use super::{Alarm, JOBS_MAX, Job, Kad, Task, TaskId, WIDTH};
use crate::config::{FIND_CONTACTS, REGION_CONTACTS};
use crate::cryptography::Cryptography;
use crate::gather::{Gather, Next};
use crate::message::Verdict;
use crate::types::{Event, Published};
use crate::{Contact, Key, Misuse, Record, SALT_LEVELS_MAX, Salt, VALUE_BYTES_MAX};

/// Keys of one publication. Reason: types and scopes of a device.
const KEYS_MAX: usize = 64;
/// The first wait until a record that hardly anybody keeps is stored again; each is twice the one before.
const AGAIN_MIN: Duration = Duration::from_secs(15);

/// What this node publishes.
#[derive(Debug)]
pub(super) struct Publication {
    keys: Vec<Key>,
    value: Vec<u8>,
    /// Since it was last renewed, a record of it found fewer keepers than a search asks.
    poor: bool,
    /// How long until it is then renewed.
    again: Duration,
}

/// A record on its way to the nodes of a region.
#[derive(Debug)]
pub(super) struct Publishing {
    slot: u16,
    level: u8,
    record: Record,
    gather: Gather,
    gathered: bool,
    on_the_way: usize,
    outcome: Published,
    withdraws: bool,
}

impl Publishing {
    pub(super) fn came(
        &mut self,
        purpose: Purpose,
        place: Key,
        contacts: Option<Vec<(Key, Contact)>>,
        answer: &Answer,
    ) {
        match (purpose, contacts) {
            (Purpose::Walk(_), Some(contacts)) => self.gather.walked(place, &contacts),
            (Purpose::Walk(_), None) => self.gather.walk_failed(place),
            (Purpose::Probe(_), Some(contacts)) => self.gather.probed(place, &contacts),
            (Purpose::Probe(_), None) => self.gather.probe_failed(place),
            (Purpose::Store(_), _) => {
                self.on_the_way = self.on_the_way.saturating_sub(1);
                match answer {
                    Answer::Stored(verdict) => self.count(*verdict),
                    _ => self.outcome.silent += 1,
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Kept => &mut self.outcome.kept,
            Verdict::Outdated => &mut self.outcome.outdated,
            Verdict::Full => &mut self.outcome.full,
            Verdict::Rejected => &mut self.outcome.rejected,
        };
        *count += 1;
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.gather.walk().check()
    }
}

impl<C: Cryptography> Kad<C> {
    pub(super) fn publish(&mut self, now: Instant, slot: u16, keys: Vec<Key>, value: Vec<u8>) {
        let misuse = if value.len() > VALUE_BYTES_MAX {
            Some(Misuse::TooLong {
                bytes: value.len(),
                most: VALUE_BYTES_MAX,
            })
        } else if keys.len() > KEYS_MAX {
            Some(Misuse::TooMany(KEYS_MAX))
        } else if !self.publications.contains_key(&slot)
            && self.publications.len() >= self.config.publications_max
        {
            Some(Misuse::TooMany(self.config.publications_max))
        } else {
            None
        };
        if let Some(misuse) = misuse {
            self.say(Event::Misused(misuse));
            return;
        }
        let publication = Publication {
            keys,
            value,
            poor: false,
            again: AGAIN_MIN,
        };
        if let Some(old) = self.publications.insert(slot, publication) {
            let keys = self.publications.get(&slot).map(|it| it.keys.clone());
            let keys = keys.unwrap_or_default();
            let gone = old.keys.into_iter().filter(|key| !keys.contains(key));
            let gone: Vec<_> = gone.collect();
            self.end_records(slot, gone);
        }
        self.renew(now, slot);
    }

    pub(super) fn withdraw(&mut self, slot: u16) {
        if let Some(publication) = self.publications.remove(&slot) {
            self.timers.cancel(&Alarm::Publish(slot));
            self.end_records(slot, publication.keys);
        }
    }

    fn end_records(&mut self, slot: u16, keys: Vec<Key>) {
        for key in keys {
            let level = 0;
            self.job(Job::Withdraw { slot, key, level });
        }
    }

    /// It is time to store the records of a publication again.
    pub(super) fn renew(&mut self, now: Instant, slot: u16) {
        let republish = self.config.republish;
        let Some(publication) = self.publications.get_mut(&slot) else {
            return;
        };
        publication.again = match std::mem::take(&mut publication.poor) {
            true => (publication.again * 2).min(republish),
            false => AGAIN_MIN.min(republish),
        };
        let keys = publication.keys.clone();
        let jitter = self.random.f64() / 10.0;
        let wait = republish.mul_f64(1.0 - jitter);
        self.timers.set(Alarm::Publish(slot), now + wait);
        for key in keys {
            let level = 0;
            let again = |job: &Job| matches!(job, Job::Publish { slot: of, key: at, .. } if (*of, *at) == (slot, key));
            if !self.jobs.iter().any(again) && self.jobs.len() < JOBS_MAX {
                self.job(Job::Publish { slot, key, level });
            }
        }
    }

    pub(super) fn begin_publishing(
        &mut self,
        now: Instant,
        slot: u16,
        key: Key,
        level: u8,
    ) -> Option<Task> {
        let publication = self.publications.get(&slot)?;
        let value = publication.value.clone();
        let record = self.own_record(now, (key, slot), self.config.lifetime, value);
        Some(self.begin_storing(slot, level, record, false))
    }

    pub(super) fn begin_withdrawing(
        &mut self,
        now: Instant,
        slot: u16,
        key: Key,
        level: u8,
    ) -> Task {
        let second = Duration::from_secs(1);
        let record = self.own_record(now, (key, slot), second, Vec::new());
        self.begin_storing(slot, level, record, true)
    }

    fn own_record(
        &mut self,
        now: Instant,
        about: (Key, u16),
        lifetime: Duration,
        value: Vec<u8>,
    ) -> Record {
        self.sequence += 1;
        let lifetime_s = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let end = |unix_s: u64| unix_s + u64::from(lifetime_s);
        let expires_s = self.peers.unix_s(now).map_or(0, end);
        let times = (lifetime_s, expires_s);
        Record::sign(
            self.peers.cryptography(),
            about,
            self.sequence,
            times,
            value,
        )
    }

    fn begin_storing(&mut self, slot: u16, level: u8, record: Record, withdraws: bool) -> Task {
        let place = record.key.salted(Salt::of(record.identity(), level));
        // A path on which an attacker's node is asked may end among its kind. A search goes on where
        // it finds nothing; a record that went astray is missing until it is renewed.
        let paths = 4 * self.config.paths;
        // A third more than searchers count on: their estimate of the network may be the smaller one.
        let bits = self.size.region_bits(self.config.region_nodes * 4 / 3);
        let most = self.config.region_nodes_max;
        let gather = self.gathering((place, bits), paths, true, most);
        Task::Publishing(Box::new(Publishing {
            slot,
            level,
            record,
            gather,
            gathered: false,
            on_the_way: 0,
            outcome: Published::default(),
            withdraws,
        }))
    }

    /// The gathering of the nodes that share `bits` bits with a place. `wary`: by paths from afar, and
    /// through the surroundings.
    pub(super) fn gathering(
        &mut self,
        (place, bits): (Key, u32),
        paths: usize,
        wary: bool,
        members_max: usize,
    ) -> Gather {
        let points = Gather::points(place, bits, paths, wary, &mut self.random);
        let manner = self.manner(WIDTH);
        let walk = match wary {
            true => self.walk_from_afar(&points, manner),
            false => self.walk(&points, manner),
        };
        let expected = self.members_expected(bits);
        Gather::new((place, bits), expected, walk, members_max, &mut self.random)
    }

    /// How many nodes share so many bits with a place, by the size of the network.
    pub(super) fn members_expected(&self, bits: u32) -> f64 {
        let bits = i32::try_from(bits).unwrap_or(i32::MAX);
        self.network_nodes().unwrap_or(1.0) / f64::from(bits).exp2()
    }

    pub(super) fn work_on_publishing(
        &mut self,
        now: Instant,
        id: TaskId,
        mut publishing: Box<Publishing>,
    ) -> Option<Task> {
        while !publishing.gathered {
            match publishing.gather.next(usize::MAX, &mut self.random) {
                Next::Walk(contact, point) => {
                    let ask = (point, FIND_CONTACTS);
                    if !self.find(now, contact, ask, Purpose::Walk(id)) {
                        publishing.gather.walk_failed(self.place_of(&contact));
                    }
                }
                Next::Probe(contact, point) => {
                    let ask = (point, REGION_CONTACTS);
                    if !self.find(now, contact, ask, Purpose::Probe(id)) {
                        publishing.gather.probe_failed(self.place_of(&contact));
                    }
                }
                Next::Wait => return Some(Task::Publishing(publishing)),
                Next::Done => {
                    publishing.gathered = true;
                    self.keep_own(now, &mut publishing);
                }
            }
        }
        while publishing.on_the_way < self.config.store_parallel {
            let Some(member) = publishing.gather.take(&mut self.random) else {
                break;
            };
            let question = Question::Store {
                level: publishing.level,
                record: publishing.record.clone(),
            };
            match self.ask(now, member, question, Purpose::Store(id)) {
                0 => publishing.outcome.silent += 1,
                _ => publishing.on_the_way += 1,
            }
        }
        if publishing.on_the_way > 0 {
            return Some(Task::Publishing(publishing));
        }
        self.published(now, &publishing);
        None
    }

    /// The node is one of the region itself.
    fn keep_own(&mut self, now: Instant, publishing: &mut Publishing) {
        if !self.config.client && publishing.gather.holds(self.place()) {
            let place = publishing.gather.place;
            // Of the share of no other host.
            let verdict = self.store.put(now, place, publishing.record.clone(), 0);
            publishing.count(verdict);
        }
    }

    fn published(&mut self, now: Instant, publishing: &Publishing) {
        let outcome = publishing.outcome;
        let (slot, key) = (publishing.slot, publishing.record.key);
        let level = publishing.level;
        // A few may say it wrongly; what was kept here stays here in any case.
        let answers = outcome.kept + outcome.outdated + outcome.full + outcome.rejected;
        if outcome.full * 3 > answers && level < SALT_LEVELS_MAX {
            let level = level + 1;
            self.job(match publishing.withdraws {
                true => Job::Withdraw { slot, key, level },
                false => Job::Publish { slot, key, level },
            });
        }
        // Here and at all contacts, where there are few.
        let wanted = self.config.search_replicas as usize;
        let wanted = wanted.min(self.table.len() + 1);
        if !publishing.withdraws
            && (answers as usize) < wanted
            && let Some(publication) = self.publications.get_mut(&slot)
        {
            publication.poor = true;
            let jitter = self.random.f64() / 10.0;
            let wait = publication.again.mul_f64(1.0 - jitter);
            self.timers.set(Alarm::Publish(slot), now + wait);
        }
        if !publishing.withdraws {
            self.say(Event::Published {
                slot,
                key,
                level,
                outcome,
            });
        }
    }
}
