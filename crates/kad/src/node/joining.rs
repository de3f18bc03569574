//! Joins the network and maintains the routing table.

use std::time::Duration;

use chappe_machine::Instant;

use super::entrances::ENTER_AT_ONCE;
use super::lookups::{Job, LookupPurpose};
use super::lost::ASKED_PER_RETURN;
use super::question::Purpose;
use super::{Alarm, Kad, seconds, seconds_of};
use crate::cryptography::Cryptography;
use crate::table::Entry;
use crate::types::{Entrance, Event};
use crate::{Contact, Key};

impl<C: Cryptography> Kad<C> {
    // -- entrances --

    pub(super) fn enter(&mut self, now: Instant, entrances: Vec<Entrance>) {
        self.entrances.add(entrances);
        self.try_entrances(now, ENTER_AT_ONCE);
        self.alarms.set(Alarm::Enter, now + self.entrances.wait());
    }

    fn try_entrances(&mut self, now: Instant, count: usize) {
        for Entrance { address, public } in self.entrances.next(count) {
            match public {
                Some(public) => {
                    let contact = Contact { public, address };
                    self.ping(now, contact, Purpose::Enter);
                }
                None => {
                    let greeting = self.requests.greet(now, address);
                    self.transmit(greeting);
                }
            }
        }
    }

    /// Tries entrances again while the table is empty, less and less often.
    pub(super) fn enter_again(&mut self, now: Instant) {
        if self.table.len() > 0 {
            self.entrances.reset_wait();
            return;
        }
        self.try_entrances(now, ENTER_AT_ONCE);
        let wait = self.entrances.back_off(&mut self.random);
        self.alarms.set(Alarm::Enter, now + wait);
    }

    /// Records whether an entrance answered. The neighbours are looked up only after the last outcome: the
    /// first entrance to answer may name only nodes of an attacker.
    pub(super) fn on_entrance(&mut self, now: Instant, answered: Option<Contact>) {
        if let Some(contact) = answered {
            self.entrances.on_answer(contact);
        }
        if self.requests.awaits_entrance() {
            return;
        }
        let seeds = self.entrances.take_answered();
        if !seeds.is_empty() {
            self.join(now, &seeds);
        }
    }

    // -- neighbours --

    /// Looks up the node's own place, also through `seeds`: they may know nodes that the table does not.
    fn join(&mut self, now: Instant, seeds: &[Contact]) {
        let placed = |contact: &Contact| (self.requests.place_of(contact), *contact);
        let seeds: Vec<_> = seeds.iter().map(placed).collect();
        self.start_lookup(now, self.place(), LookupPurpose::Join, &seeds);
    }

    /// Handles the end of the first lookup of neighbours: fills the other buckets once.
    pub(super) fn on_neighbours_found(&mut self) {
        let contacts = self.table.len();
        if contacts == 0 {
            return;
        }
        if !self.has_joined {
            self.has_joined = true;
            for bucket in 0..self.table.depth() {
                self.refresh(bucket);
            }
            // Again, through all contacts known by then.
            let (target, purpose) = (self.place(), LookupPurpose::Join);
            self.lookups.add_job(Job::Lookup { target, purpose });
        }
        self.emit(Event::Joined { contacts });
    }

    /// Looks up a random place in a bucket.
    fn refresh(&mut self, bucket: u32) {
        let noise = self.random.u128(..);
        let own = self.place();
        // The first bit that differs determines the bucket.
        let other = own.bits(bucket, 1) ^ 1;
        let target = own.within(bucket, 1, other, noise);
        let purpose = LookupPurpose::Refresh;
        self.lookups.add_job(Job::Lookup { target, purpose });
    }

    // -- contacts --

    /// Records that a node has proven its key and address.
    pub(super) fn observe(&mut self, now: Instant, contact: &Contact) {
        if !self.requests.may_send_to(contact.address) {
            return;
        }
        let place = self.requests.place_of(contact);
        let entry = Entry::new(place, contact, seconds(now));
        let silence_s = seconds_of(self.config.silence);
        if let Some(silent) = self.table.observe(entry, silence_s) {
            self.check_contact(now, silent);
        }
        self.on_seen(now, contact);
    }

    /// Pings a contact that the table wants checked, within limits.
    pub(super) fn check_contact(&mut self, now: Instant, contact: Contact) {
        if self.requests.may_check(self.requests.place_of(&contact)) {
            self.ping(now, contact, Purpose::Check);
        }
    }

    /// Records a missing answer; the table may remove the contact.
    pub(super) fn on_silence(&mut self, now: Instant, place: Key) {
        if let Some(contact) = self.table.on_failure(place) {
            self.lost.add(contact, seconds(now), &mut self.random);
        }
    }

    /// Records a sign of life. If the contact was lost, other lost contacts are asked too.
    fn on_seen(&mut self, now: Instant, contact: &Contact) {
        let is_first = self.lost.returned() == 0;
        if !self.lost.on_seen(contact) {
            return;
        }
        if is_first {
            // A random delay spreads the nodes; one rejoin serves all contacts that return meanwhile.
            let wait = self.config.housekeeping.mul_f64(self.random.f64());
            self.alarms.set(Alarm::Rejoin, now + wait);
        }
        self.ask_lost(now, ASKED_PER_RETURN);
    }

    fn ask_lost(&mut self, now: Instant, count: usize) {
        let pause_s = seconds_of(self.config.housekeeping);
        for _ in 0..count {
            let Some(contact) = self.lost.next_to_ask(seconds(now), pause_s) else {
                return;
            };
            self.ping(now, contact, Purpose::Return);
        }
    }

    /// Lost contacts have returned, so others may be back too, near this node's place and elsewhere.
    pub(super) fn rejoin(&mut self, now: Instant) {
        let seeds = self.lost.take_returned();
        if seeds.len() >= ENTER_AT_ONCE {
            // A whole part of the network is back: estimates made without it are too small.
            self.lookups.forget_size();
        }
        self.join(now, &seeds);
    }

    // -- housekeeping --

    pub(super) fn run_maintenance(&mut self, now: Instant) {
        let every = self.config.housekeeping;
        // A random offset spreads the nodes.
        let wait = every.mul_f64(1.0 - self.random.f64() / 4.0);
        self.alarms.set(Alarm::Housekeeping, now + wait);
        self.publications.expire(now);
        let age_s = seconds_of(self.config.refresh);
        if let Some(bucket) = self.table.stale(seconds(now), age_s) {
            self.refresh(bucket);
        }
        let share = |period: Duration| every.as_secs_f64() / period.as_secs_f64().max(1.0);
        // The size of the network changes slowly: one lookup per refresh period suffices.
        if self.lookups.has_size() && self.random.f64() < share(self.config.refresh) {
            let target = Key::new(self.random.u128(..));
            let purpose = LookupPurpose::Size;
            self.lookups.add_job(Job::Lookup { target, purpose });
        }
        // Entrances in the other part let two parts of a partitioned network find each other.
        if self.random.f64() < share(self.config.republish) {
            self.try_entrances(now, 1);
        }
        self.ask_silent(now);
        if self.table.len() == 0 && !self.entrances.is_empty() {
            self.alarms.set(Alarm::Enter, now);
        }
    }

    /// Asks contacts that did not answer their last request, so that they soon count as alive or lost, and
    /// one lost contact if it is due.
    fn ask_silent(&mut self, now: Instant) {
        for contact in self.table.failing().collect::<Vec<_>>() {
            self.check_contact(now, contact);
        }
        if self.lost.is_due(seconds(now)) {
            self.ask_lost(now, 1);
        }
    }
}
