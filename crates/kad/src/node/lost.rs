//! Contacts that were lost, and the search for others when one of them returns.
//!
//! Two parts of a network that were separated for longer than their tables remember must merge again,
//! even if no node has an entrance in the other part. So a node remembers contacts that its table removed
//! because they were silent, and asks them at growing intervals. A lost contact that answers or asks is a
//! sign that others are back too: two more are asked at once, and so on while they answer, on both sides.
//! Then the node looks up its own place through the contacts that returned.

use std::collections::BTreeSet;
use std::time::Duration;

use chappe_identity::PublicKey;

use super::entrances::ENTER_AT_ONCE;
use crate::Contact;
use crate::table::Table;

/// Lost contacts that are remembered. Reason: half of the table of a node among thousands. A further one
/// replaces a random one, so some old ones remain however many follow.
const LOST_MAX: usize = 64;
/// The shortest and the longest time between two requests to a lost contact.
const WAIT_MIN: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// Between those bounds the wait is this fraction of the time since the loss. Reason: reunion is delayed
/// by no more than that fraction, and a stranger who now has the address is hardly disturbed.
const WAIT_PART: u32 = 16;
/// Lost contacts asked for each one that returns.
pub(super) const ASKED_PER_RETURN: usize = 2;

/// A contact that the table removed for silence.
#[derive(Clone, Copy, Debug)]
struct LostContact {
    contact: Contact,
    since_s: u32,
    asked_s: u32,
}

impl LostContact {
    fn is_due(&self, now_s: u32) -> bool {
        // At most a day.
        let [least, most] = [WAIT_MIN, WAIT_MAX].map(|wait| wait.as_secs() as u32);
        let wait = now_s.saturating_sub(self.since_s) / WAIT_PART;
        now_s.saturating_sub(self.asked_s) >= wait.clamp(least, most)
    }
}

/// The lost contacts of a node.
#[derive(Debug, Default)]
pub(super) struct Lost {
    contacts: Vec<LostContact>,
    /// Contacts that returned since the neighbours were last looked up.
    returned: Vec<Contact>,
}

impl Lost {
    pub(super) fn contains(&self, public: &PublicKey) -> bool {
        self.contacts.iter().any(|it| it.contact.public == *public)
    }

    pub(super) fn add(&mut self, contact: Contact, now_s: u32, random: &mut fastrand::Rng) {
        let lost = LostContact {
            contact,
            since_s: now_s,
            asked_s: now_s,
        };
        if self.contacts.len() < LOST_MAX {
            self.contacts.push(lost);
        } else {
            let at = random.usize(..self.contacts.len());
            self.contacts[at] = lost;
        }
    }

    /// Whether it is time to ask one of them.
    pub(super) fn is_due(&self, now_s: u32) -> bool {
        self.contacts.iter().any(|it| it.is_due(now_s))
    }

    /// The contact to ask next: the one asked longest ago, if that was at least `pause_s` ago.
    pub(super) fn next_to_ask(&mut self, now_s: u32, pause_s: u32) -> Option<Contact> {
        // One asked a moment ago may still answer.
        let has_rested = |it: &&mut LostContact| now_s.saturating_sub(it.asked_s) >= pause_s;
        let rested = self.contacts.iter_mut().filter(has_rested);
        let next = rested.min_by_key(|it| it.asked_s)?;
        next.asked_s = now_s;
        Some(next.contact)
    }

    /// Records a sign of life. Returns whether the contact was lost.
    pub(super) fn on_seen(&mut self, contact: &Contact) -> bool {
        let is_same = |it: &LostContact| it.contact.public == contact.public;
        let Some(at) = self.contacts.iter().position(is_same) else {
            return false;
        };
        self.contacts.swap_remove(at);
        if self.returned.len() < ENTER_AT_ONCE {
            self.returned.push(*contact);
        }
        true
    }

    /// Contacts that returned since the neighbours were last looked up.
    pub(super) fn returned(&self) -> usize {
        self.returned.len()
    }

    /// Removes and returns the contacts that returned.
    pub(super) fn take_returned(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.returned)
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.contacts.capacity() * size_of::<LostContact>()
    }

    pub(super) fn check(&self, table: &Table) -> Result<(), String> {
        if self.contacts.len() > LOST_MAX || self.returned.len() > ENTER_AT_ONCE {
            return Err(format!(
                "{} lost contacts are stored, more than {LOST_MAX}",
                self.contacts.len()
            ));
        }
        if self.contacts.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<_> = table.contacts().map(|it| it.public).collect();
        let is_known = |it: &&LostContact| known.contains(&it.contact.public);
        match self.contacts.iter().find(is_known) {
            Some(it) => Err(format!("{} is both lost and known", it.contact.address)),
            None => Ok(()),
        }
    }
}
