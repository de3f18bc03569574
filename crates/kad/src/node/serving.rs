//! Answers to other nodes.
//!
//! An address that has not returned a token receives at most three times the length of its request, and
//! nothing is stored for it.

use chappe_machine::Instant;

use super::Kad;
use crate::certificate::CERTIFICATE_BYTES;
use crate::cryptography::{Cryptography, TAG_BYTES};
use crate::message::{PACKET_BYTES_MAX, RECORDS_HEAD_BYTES, Reason, Verdict};
use crate::peers::Opened;
use crate::{AMPLIFICATION_MAX, Body, CONTACTS_MAX, Contact, HEAD_BYTES, Key, Record, Salt};

/// Bits by which this node's estimate of a region may be too narrow before it refuses a record as out of
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
        let request = (packet.number, packet.please);
        let is_greet = matches!(packet.body, Body::Greet { .. });
        if stranger || !is_greet && !self.requests.is_member(now, &from.public) {
            self.refuse(now, from, request, Reason::Certificate);
            return;
        }
        if !packet.client {
            if validated {
                self.observe(now, &from);
            } else if !is_greet && self.is_worth_a_check(&from) {
                self.check_contact(now, from);
            }
        }
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
                Body::Stored(self.store_record(now, from, level, record))
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
                    self.refuse(now, from, request, Reason::Token);
                    return;
                };
                let page = self.publications.page(now, place, (after, digest), room);
                if !validated && page.records.is_empty() && page.held > 0 && digest == 0 {
                    // The records would fit if the address were confirmed.
                    Body::Refused(Reason::Token)
                } else {
                    Body::Records {
                        held: page.held,
                        split: page.split,
                        records: page.records,
                    }
                }
            }
            // Answers are handled elsewhere.
            _ => return,
        };
        if around + 1 > most {
            return;
        }
        let answer = self.requests.answer(now, from, request, body);
        self.transmit(answer);
    }

    fn is_worth_a_check(&self, contact: &Contact) -> bool {
        self.table.wants(self.requests.place_of(contact)) || self.lost.contains(&contact.public)
    }

    fn refuse(&mut self, now: Instant, to: Contact, request: (u64, bool), reason: Reason) {
        // Without a certificate, so that it is no longer than the request: a head, a tag and one byte.
        let request = (request.0, false);
        let answer = self
            .requests
            .answer(now, to, request, Body::Refused(reason));
        self.transmit(answer);
    }

    fn contacts_for(
        &self,
        client: Contact,
        target: Key,
        count: u8,
        mut room: usize,
    ) -> Vec<Contact> {
        let count = usize::from(count).min(CONTACTS_MAX);
        let nearest = self.table.closest(target, count + 1).into_iter();
        let mut contacts: Vec<_> = nearest.map(|(_, contact)| contact).collect();
        contacts.retain(|contact| contact.public != client.public);
        contacts.truncate(count);
        contacts.retain(|contact| {
            let left = room.checked_sub(contact.wire_bytes());
            room = left.unwrap_or(0);
            left.is_some()
        });
        contacts
    }

    fn store_record(&mut self, now: Instant, from: Contact, level: u8, record: Record) -> Verdict {
        let place = record.key.salted(Salt::of_record(record.identity(), level));
        if place.shared_bits(self.place()) + REGION_SLACK_BITS < self.region_bits() {
            return Verdict::Rejected;
        }
        let notary = self.requests.notary(now);
        self.publications
            .store_record(now, &from, place, record, &notary)
    }
}
