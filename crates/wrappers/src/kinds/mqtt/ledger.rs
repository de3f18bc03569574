//! Which messages are stored, so that one that the broker repeats is stored once.
//!
//! A broker repeats what was not acknowledged under its packet identifier and with the flag DUP (MQTT 5.0, 4.4). It has
//! at most as many such messages as it was allowed to send, and they are the newest. The mark of a batch names as many:
//! after a crash between storing and acknowledging, a repeated message is recognized by its identifier and its content.

use std::collections::VecDeque;

use ring::digest::{SHA256, digest};

use super::session::{Message, Receipt};
use crate::Mark;

/// Messages that a mark names; a broker of MQTT 5.0 has at most as many on their way.
pub(super) const MESSAGES: usize = 64;
/// The first byte of a mark.
const VERSION: u8 = 1;
/// Bytes before the messages: the version, the number of the batch, the subscription.
const HEAD_BYTES: usize = 1 + 8 + 8;
/// Bytes of a message: its identifier and the beginning of its hash.
const MESSAGE_BYTES: usize = 2 + 8;

/// The messages that are stored or on their way to the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ledger {
    /// Batches so far.
    number: u64,
    /// The beginning of the hash of what is subscribed to.
    subscription: [u8; 8],
    /// The newest messages, oldest first.
    messages: VecDeque<(u16, [u8; 8])>,
}

impl Ledger {
    /// The one of a mark, if it is one.
    pub(super) fn of(mark: &Mark) -> Option<Self> {
        let bytes = mark.bytes();
        let (head, messages) = bytes.split_at_checked(HEAD_BYTES)?;
        let is_whole = head[0] == VERSION && messages.len() % MESSAGE_BYTES == 0;
        is_whole.then_some(())?;
        let messages = messages.chunks_exact(MESSAGE_BYTES).map(|message| {
            let packet_id = u16::from_le_bytes([message[0], message[1]]);
            Some((packet_id, message[2..].try_into().ok()?))
        });
        Some(Self {
            number: u64::from_le_bytes(head[1..9].try_into().ok()?),
            subscription: head[9..].try_into().ok()?,
            messages: messages.collect::<Option<_>>()?,
        })
    }

    /// Whether the subscription is the one of the mark; afterwards it is.
    pub(super) fn subscribe(&mut self, filters: &[String], qos: u8) -> bool {
        let text = format!("{qos} {}", filters.join("\n"));
        let subscription = beginning(text.as_bytes());
        std::mem::replace(&mut self.subscription, subscription) == subscription
    }

    /// The broker has forgotten the session and its messages.
    pub(super) fn forget(&mut self) {
        self.messages.clear();
    }

    /// Whether a message is one that was stored before, and is only repeated.
    pub(super) fn has(&self, message: &Message) -> bool {
        let Some(receipt) = message.receipt.filter(|_| message.is_duplicate) else {
            return false;
        };
        self.messages.contains(&entry(receipt, message))
    }

    /// Adds a message, which is stored with the next mark.
    pub(super) fn add(&mut self, message: &Message) {
        if let Some(receipt) = message.receipt {
            self.messages.push_back(entry(receipt, message));
            if self.messages.len() > MESSAGES {
                self.messages.pop_front();
            }
        }
    }

    /// The mark of the next batch.
    pub(super) fn mark(&mut self) -> Mark {
        self.number = self.number.wrapping_add(1);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + MESSAGES * MESSAGE_BYTES);
        bytes.push(VERSION);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.subscription);
        for (packet_id, hash) in &self.messages {
            bytes.extend(packet_id.to_le_bytes());
            bytes.extend(hash);
        }
        // 657 bytes at most, below the limit of a mark.
        Mark::new(bytes).unwrap_or_default()
    }
}

fn entry(receipt: Receipt, message: &Message) -> (u16, [u8; 8]) {
    let content = [message.topic.as_bytes(), &[0], &message.payload].concat();
    (receipt.packet_id, beginning(&content))
}

fn beginning(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..8]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(packet_id: u16, payload: &str, is_duplicate: bool) -> Message {
        Message {
            topic: "a/b".to_owned(),
            payload: payload.as_bytes().to_vec(),
            receipt: Some(Receipt {
                packet_id,
                is_exactly_once: false,
            }),
            is_duplicate,
            is_retained: false,
            cut_of: None,
        }
    }

    #[test]
    fn a_mark_knows_the_newest_messages() {
        let mut ledger = Ledger::default();
        assert!(!ledger.subscribe(&["a/#".to_owned()], 1));
        for number in 0..100 {
            ledger.add(&message(number, "x", false));
        }
        let mark = ledger.mark();
        assert_ne!(mark, ledger.mark(), "each batch has a mark of its own");
        let mut after = Ledger::of(&mark).unwrap();
        assert!(after.subscribe(&["a/#".to_owned()], 1));
        assert!(!after.subscribe(&["a/#".to_owned()], 2));
        let known = (0..100).filter(|number| after.has(&message(*number, "x", true)));
        assert_eq!(known.collect::<Vec<_>>(), (36..100).collect::<Vec<_>>());
        assert!(!after.has(&message(99, "x", false)), "a new message");
        assert!(!after.has(&message(99, "y", true)), "another content");
        after.forget();
        assert!(!after.has(&message(99, "x", true)));
    }

    #[test]
    fn a_mark_of_another_kind_is_none() {
        for bytes in [vec![], vec![1; 20], vec![2; HEAD_BYTES], vec![1; 400]] {
            assert_eq!(Ledger::of(&Mark::new(bytes).unwrap()), None);
        }
    }
}
