//! Contacts that were lost, and what is done when they come back.
//!
//! A network that was cut for longer than its tables remember must become one again, also where nobody
//! has an entrance in the other part. So who goes from the table because he is silent is remembered, and asked
//! now and then, less and less often. Who answers, or asks, after he was lost, is a sign that others are back
//! too: two more are asked at once, and so on as long as they answer, at both ends. Then the own place
//! is looked for, through those that came back.

use std::time::Duration;

use chappe_identity::PublicKey;
use chappe_machine::Instant;

use super::joining::ENTER_AT_ONCE;
use super::requests::Purpose;
use super::{Alarm, Kad};
use crate::Contact;
use crate::cryptography::Cryptography;
use crate::size::Size;

/// Lost contacts that are remembered. Reason: half of the table of a node among thousands. Of more any
/// gives way, so that of those that were lost long ago some are left however many follow.
const LOST_MAX: usize = 64;
/// The shortest time between two questions to a lost contact, and the longest.
const WAIT_MIN: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// Between them it is this part of the time since it was lost. Reason: coming together takes no longer
/// in proportion, and a stranger who got the address is hardly troubled.
const WAIT_PART: u32 = 16;
/// Lost contacts that are asked for each one that is back.
const ASKED_FOR_ONE: usize = 2;

/// A contact that went from the table because it was silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    contact: Contact,
    since_s: u32,
    asked_s: u32,
}

impl Lost {
    fn is_due(&self, now_s: u32) -> bool {
        // At most a day.
        let [least, most] = [WAIT_MIN, WAIT_MAX].map(|wait| wait.as_secs() as u32);
        let wait = now_s.saturating_sub(self.since_s) / WAIT_PART;
        now_s.saturating_sub(self.asked_s) >= wait.clamp(least, most)
    }
}

impl<C: Cryptography> Kad<C> {
    pub(super) fn is_lost(&self, public: &PublicKey) -> bool {
        self.lost.iter().any(|it| it.contact.public == *public)
    }

    /// A contact has gone from the table because it was silent.
    pub(super) fn lose(&mut self, now: Instant, contact: Contact) {
        let now_s = Self::seconds(now);
        let lost = Lost {
            contact,
            since_s: now_s,
            asked_s: now_s,
        };
        if self.lost.len() < LOST_MAX {
            self.lost.push(lost);
        } else {
            let at = self.random.usize(..self.lost.len());
            self.lost[at] = lost;
        }
    }

    /// Asks contacts that did not answer last, so that they are soon sound again or lost, and one of the lost
    /// whose time it is.
    pub(super) fn ask_the_silent(&mut self, now: Instant) {
        for contact in self.table.failing().collect::<Vec<_>>() {
            self.check_whether_there(now, contact);
        }
        let now_s = Self::seconds(now);
        if self.lost.iter().any(|it| it.is_due(now_s)) {
            self.try_lost(now, 1);
        }
    }

    /// Asks so many of the lost, those that were not asked for longest.
    pub(super) fn try_lost(&mut self, now: Instant, count: usize) {
        let now_s = Self::seconds(now);
        // Who was asked just now is still awaited, or is not there.
        let pause_s = u32::try_from(self.config.housekeeping.as_secs()).unwrap_or(u32::MAX);
        for _ in 0..count {
            let rested = |it: &&mut Lost| now_s.saturating_sub(it.asked_s) >= pause_s;
            let next = self.lost.iter_mut().filter(rested);
            let Some(next) = next.min_by_key(|it| it.asked_s) else {
                return;
            };
            next.asked_s = now_s;
            let contact = next.contact;
            self.ping(now, contact, Purpose::Return);
        }
    }

    /// A node has shown that it is there: was it lost?
    pub(super) fn welcome(&mut self, now: Instant, contact: &Contact) {
        let back = |it: &Lost| it.contact.public == contact.public;
        let Some(at) = self.lost.iter().position(back) else {
            return;
        };
        self.lost.swap_remove(at);
        if self.returned.is_empty() {
            // Not all nodes of a network at the same time, and once for all that come back meanwhile.
            let wait = self.config.housekeeping.mul_f64(self.random.f64());
            self.timers.set(Alarm::Rejoin, now + wait);
        }
        if self.returned.len() < ENTER_AT_ONCE {
            self.returned.push(*contact);
        }
        self.try_lost(now, ASKED_FOR_ONE);
    }

    /// Some are back that were lost: others may be too, near the own place and elsewhere.
    pub(super) fn rejoin(&mut self, now: Instant) {
        let by = std::mem::take(&mut self.returned);
        if by.len() >= ENTER_AT_ONCE {
            // A whole part is back: how large the network was without it does not count.
            self.size = Size::default();
            self.size_lookups = 0;
        }
        self.join_by(now, &by);
    }

    pub(super) fn check_lost(&self) -> Result<(), String> {
        if self.lost.len() > LOST_MAX || self.returned.len() > ENTER_AT_ONCE {
            return Err(format!("{} lost contacts are kept", self.lost.len()));
        }
        if self.lost.is_empty() {
            return Ok(());
        }
        let known: std::collections::BTreeSet<_> =
            self.table.contacts().map(|it| it.public).collect();
        let known = |it: &&Lost| known.contains(&it.contact.public);
        match self.lost.iter().find(known) {
            Some(it) => Err(format!("{} is lost and known", it.contact.address)),
            None => Ok(()),
        }
    }
}
