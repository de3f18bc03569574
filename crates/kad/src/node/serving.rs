//! What a node answers to others.
//!
//! To an address that has not given back a token no answer is more than three times as long as the
//! question, and nothing is stored from it.

use chappe_machine::Instant;

use super::Kad;
use crate::certificate::CERTIFICATE_BYTES;
use crate::contact::{PackedAddress, host};
use crate::cryptography::{Cryptography, TAG_BYTES};
use crate::message::{PACKET_BYTES_MAX, RECORDS_HEAD_BYTES, Reason, Verdict};
use crate::peers::Opened;
use crate::{AMPLIFICATION_MAX, Body, CONTACTS_MAX, Contact, HEAD_BYTES, Key, Record, Salt};

/// Bits by which the own estimate of a region may be too narrow before a record is refused as out of
/// place. Reason: two estimates may differ by one bit each, and a young node knows less.
const REGION_SLACK_BITS: u32 = 4;

impl<C: Cryptography> Kad<C> {
    pub(super) fn serve(&mut self, now: Instant, from: Contact, opened: Opened) {
        let Opened {
            packet,
            validated,
            stranger,
            bytes,
        } = opened;
        let is_greet = matches!(packet.body, Body::Greet { .. });
        if stranger || !is_greet && !self.peers.is_member(now, &from.public) {
            let about = (packet.number, packet.please);
            self.refuse(now, from, about, Reason::Certificate);
            return;
        }
        if !packet.client {
            if validated {
                self.observe(now, &from);
            } else if !is_greet
                && (self.table.wants(self.place_of(&from)) || self.is_lost(&from.public))
            {
                self.check_whether_there(now, from);
            }
        }
        let about = (packet.number, packet.please);
        let around = HEAD_BYTES
            + TAG_BYTES
            + match self.config.membership.is_some() && packet.please {
                true => CERTIFICATE_BYTES,
                false => 0,
            };
        let most = match validated {
            true => PACKET_BYTES_MAX,
            false => (AMPLIFICATION_MAX * bytes).min(PACKET_BYTES_MAX),
        };
        let room = most.saturating_sub(around);
        let body = match packet.body {
            Body::Greet { .. } => Body::Greeting,
            Body::Ping => Body::Pong,
            _ if self.config.client => Body::Refused(Reason::Busy),
            Body::Find { target, count, .. } => {
                Body::Contacts(self.contacts_for(from, target, count, room))
            }
            Body::Store { level, record } if validated => {
                Body::Stored(self.keep(now, from, level, record))
            }
            Body::Store { .. } => Body::Refused(Reason::Token),
            Body::Ask {
                place,
                after,
                digest,
                bytes,
                ..
            } => {
                let room = room.min(usize::from(bytes).saturating_sub(around));
                let Some(room) = room.checked_sub(RECORDS_HEAD_BYTES) else {
                    self.refuse(now, from, about, Reason::Token);
                    return;
                };
                let page = self.store.page(now, place, (after, digest), room);
                if !validated && page.records.is_empty() && page.held > 0 && digest == 0 {
                    // It would fit if the address were confirmed.
                    Body::Refused(Reason::Token)
                } else {
                    Body::Records {
                        held: page.held,
                        split: page.split,
                        records: page.records,
                    }
                }
            }
            // Answers do not come here.
            _ => return,
        };
        if around + 1 > most {
            return;
        }
        match body {
            Body::Refused(_) => self.counters.refused += 1,
            _ => self.counters.served += 1,
        }
        if let Some(bytes) = self.peers.answer(now, from, about, body) {
            self.transmit(&from, bytes);
        }
    }

    fn refuse(&mut self, now: Instant, to: Contact, about: (u64, bool), reason: Reason) {
        self.counters.refused += 1;
        // As long as the question at most: a head, a tag and one byte.
        let about = (about.0, false);
        if let Some(bytes) = self.peers.answer(now, to, about, Body::Refused(reason)) {
            self.transmit(&to, bytes);
        }
    }

    fn contacts_for(
        &self,
        asker: Contact,
        target: Key,
        count: u8,
        mut room: usize,
    ) -> Vec<Contact> {
        let count = usize::from(count).min(CONTACTS_MAX);
        let mut contacts = self.table.closest(target, count + 1);
        contacts.retain(|contact| contact.public != asker.public);
        contacts.truncate(count);
        contacts.retain(|contact| {
            let left = room.checked_sub(contact.wire_bytes());
            room = left.unwrap_or(0);
            left.is_some()
        });
        contacts
    }

    fn keep(&mut self, now: Instant, from: Contact, level: u8, record: Record) -> Verdict {
        let place = record.key.salted(Salt::of(record.identity(), level));
        let near = place.shared_bits(self.place()) + REGION_SLACK_BITS >= self.region_bits();
        let in_time = self
            .peers
            .unix_s(now)
            .is_none_or(|unix_s| !record.is_out_of_time(unix_s));
        // The signature last: it costs most.
        if !near || !in_time || !record.is_signed(self.peers.cryptography()) {
            return Verdict::Rejected;
        }
        let host = host(&PackedAddress::from(from.address));
        self.store.put(now, place, record, host)
    }
}
