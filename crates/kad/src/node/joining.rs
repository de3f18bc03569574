//! Entering the network, and staying in it.

use std::time::Duration;

use chappe_machine::Instant;

use super::requests::{InFlight, Purpose};
use super::{Alarm, Job, Kad, SIZE_LOOKUPS_MAX, SIZES_MIN, Task, Why};
use crate::cryptography::Cryptography;
use crate::types::{Entrance, Event};
use crate::{Contact, Key};

/// The first wait before entrances are tried again.
pub(super) const ENTER_WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait before entrances are tried again.
const ENTER_WAIT_MAX: Duration = Duration::from_secs(300);
/// Entrances that are kept.
const ENTRANCES_MAX: usize = 64;
/// Entrances tried at a time.
pub(super) const ENTER_AT_ONCE: usize = 8;

impl<C: Cryptography> Kad<C> {
    pub(super) fn enter(&mut self, now: Instant, entrances: Vec<Entrance>) {
        for entrance in entrances {
            if self.entrances.contains(&entrance) {
                continue;
            }
            if self.entrances.len() >= ENTRANCES_MAX {
                self.entrances.pop_front();
            }
            self.entrances.push_back(entrance);
        }
        self.try_entrances(now, ENTER_AT_ONCE);
        self.timers.set(Alarm::Enter, now + self.enter_wait);
    }

    /// Tries the next so many entrances.
    fn try_entrances(&mut self, now: Instant, count: usize) {
        for _ in 0..count.min(self.entrances.len()) {
            let Some(entrance) = self.entrances.pop_front() else {
                return;
            };
            self.entrances.push_back(entrance);
            let Entrance { address, public } = entrance;
            match public {
                Some(public) => {
                    let contact = Contact { public, address };
                    self.ping(now, contact, Purpose::Enter);
                }
                None => self.greet(now, address),
            }
        }
    }

    /// Without contacts, entrances are tried again, less and less often.
    pub(super) fn enter_again(&mut self, now: Instant) {
        if self.table.len() > 0 {
            self.enter_wait = ENTER_WAIT_MIN;
            return;
        }
        self.try_entrances(now, ENTER_AT_ONCE);
        self.enter_wait = (self.enter_wait * 2).min(ENTER_WAIT_MAX);
        let jitter = self.random.f64() / 2.0;
        let wait = self.enter_wait.mul_f64(1.0 - jitter);
        self.timers.set(Alarm::Enter, now + wait);
    }

    /// An entrance has answered, or has not. When the last of them has, the neighbours are looked for:
    /// not before, because the first to answer may be one that names only its own kind.
    pub(super) fn entered(&mut self, now: Instant, by: Option<Contact>) {
        self.entered_by.extend(by);
        let awaited = |it: &InFlight| it.purpose == Purpose::Enter;
        if self.in_flight.values().any(awaited) {
            return;
        }
        let by = std::mem::take(&mut self.entered_by);
        if !by.is_empty() {
            self.join_by(now, &by);
        }
    }

    /// Looks for the neighbours, through these too.
    pub(super) fn join_by(&mut self, now: Instant, by: &[Contact]) {
        let target = self.place();
        let Task::Lookup(mut lookup) = self.begin_lookup(now, target, Why::Join) else {
            return;
        };
        // Through them others may be found than those that are known.
        for (at, contact) in by.iter().enumerate() {
            let place = self.place_of(contact);
            lookup.walk.begin(at % self.config.paths, place, *contact);
        }
        self.add_task(Task::Lookup(lookup));
    }

    /// The own neighbours are found: fill the other buckets, and see how large the network is.
    pub(super) fn neighbours_found(&mut self) {
        let contacts = self.table.len();
        if contacts == 0 {
            return;
        }
        if !self.joined {
            self.joined = true;
            for bucket in 0..self.table.depth() {
                self.refresh(bucket);
            }
            // Once more by all that are known then.
            let (target, why) = (self.place(), Why::Join);
            self.job(Job::Lookup { target, why });
        }
        self.say(Event::Joined { contacts });
    }

    /// A lookup of a random place of a bucket.
    fn refresh(&mut self, bucket: u32) {
        let noise = self.random.u128(..);
        let own = self.place();
        // The first bit that differs decides the bucket.
        let other = own.bits(bucket, 1) ^ 1;
        let target = own.within(bucket, 1, other, noise);
        let why = Why::Refresh;
        self.job(Job::Lookup { target, why });
    }

    /// Whether the size of the network is known well enough to choose regions. If it is not, and is
    /// `wanted`, it is found out.
    pub(super) fn size_is_known(&mut self, wanted: bool) -> bool {
        let enough = self.size.len() >= SIZES_MIN || self.size_lookups >= SIZE_LOOKUPS_MAX;
        if enough || self.table.len() == 0 {
            return true;
        }
        let waits = |job: &&Job| matches!(job, Job::Lookup { why: Why::Size, .. });
        let at_work = |task: &&Task| matches!(task, Task::Lookup(it) if it.why == Why::Size);
        let under_way =
            self.jobs.iter().filter(waits).count() + self.tasks.values().filter(at_work).count();
        if wanted {
            for _ in self.size.len() + under_way..SIZES_MIN {
                let target = Key::new(self.random.u128(..));
                let why = Why::Size;
                // Before all others: they wait for it.
                self.jobs.push_front(Job::Lookup { target, why });
                self.size_lookups += 1;
            }
        }
        false
    }

    pub(super) fn keep_house(&mut self, now: Instant) {
        let every = self.config.housekeeping;
        // So that not all nodes do it at the same time.
        let wait = every.mul_f64(1.0 - self.random.f64() / 4.0);
        self.timers.set(Alarm::Housekeeping, now + wait);
        self.store.expire(now);
        let age_s = u32::try_from(self.config.refresh.as_secs()).unwrap_or(u32::MAX);
        if let Some(bucket) = self.table.stale(Self::seconds(now), age_s) {
            self.refresh(bucket);
        }
        let share = |period: Duration| every.as_secs_f64() / period.as_secs_f64().max(1.0);
        // The size of the network changes slowly: one look in a refresh period.
        if self.size.len() > 0 && self.random.f64() < share(self.config.refresh) {
            let target = Key::new(self.random.u128(..));
            let why = Why::Size;
            self.job(Job::Lookup { target, why });
        }
        // Two parts of a network that was cut find each other by an entrance in the other part.
        if self.random.f64() < share(self.config.republish) {
            self.try_entrances(now, 1);
        }
        self.ask_the_silent(now);
        if self.table.len() == 0 && !self.entrances.is_empty() {
            self.timers.set(Alarm::Enter, now);
        }
    }
}
