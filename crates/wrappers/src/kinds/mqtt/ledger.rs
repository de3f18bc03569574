//! Which messages are stored, so that one that the broker repeats is stored once.
//!
//! A broker repeats what was not acknowledged under its packet identifier and with the flag DUP (MQTT 5.0, 4.4). It has
//! at most as many such messages as it was allowed to send, and they are the newest. The mark of a batch names them:
//! after a crash between storing and acknowledging, a repeated message is recognized by its identifier and its content.
//! Beyond the newest 64, a mark names only messages that the broker may not know to be acknowledged, so that the marks
//! of a quiet topic are short.
//!
//! A broker that soon uses an identifier again, as one that takes the lowest free one, may repeat a new message that looks
//! like a stored one. Then nothing is taken for a repeat: quality of service 1 permits doubles, but no loss.

use std::collections::VecDeque;

use ring::digest::{SHA256, digest};

use super::session::{Message, Receipt};
use crate::Mark;

/// Most messages that a mark names; a broker of MQTT 5.0 has at most as many on their way. Reason: with a commit of
/// 5 ms it may send 100,000 a second.
pub(super) const MESSAGES: usize = 512;
/// Messages that a mark names in any case; reason: a broker that crashes may have forgotten acknowledgements.
const MESSAGES_KEPT: usize = 64;
/// The first byte of a mark.
const VERSION: u8 = 1;
/// The first byte of a mark, if the broker uses identifiers again soon: it names no messages.
const VERSION_REUSED: u8 = 2;
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
    /// How many of the oldest the broker knows to be acknowledged.
    confirmed: usize,
    /// Messages that were dropped since it was made.
    dropped: u64,
    /// Whether the broker used an identifier again for a new message, while the former one was among the newest.
    is_reused: bool,
}

impl Ledger {
    /// The one of a mark, if it is one.
    pub(super) fn of(mark: &Mark) -> Option<Self> {
        let bytes = mark.bytes();
        let (head, messages) = bytes.split_at_checked(HEAD_BYTES)?;
        let is_reused = head[0] == VERSION_REUSED && messages.is_empty();
        let is_whole = is_reused || head[0] == VERSION && messages.len() % MESSAGE_BYTES == 0;
        is_whole.then_some(())?;
        let messages = messages.chunks_exact(MESSAGE_BYTES).map(|message| {
            let packet_id = u16::from_le_bytes([message[0], message[1]]);
            Some((packet_id, message[2..].try_into().ok()?))
        });
        Some(Self {
            number: u64::from_le_bytes(head[1..9].try_into().ok()?),
            subscription: head[9..].try_into().ok()?,
            messages: messages.collect::<Option<_>>()?,
            is_reused,
            ..Self::default()
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
        self.dropped += self.messages.len() as u64;
        self.messages.clear();
        self.confirmed = 0;
        self.is_reused = false;
    }

    /// The number of the newest message.
    pub(super) fn newest(&self) -> u64 {
        self.dropped + self.messages.len() as u64
    }

    /// The broker knows that the messages up to this number are acknowledged.
    pub(super) fn confirm(&mut self, number: u64) {
        let confirmed = usize::try_from(number.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.confirmed = self.confirmed.max(confirmed.min(self.messages.len()));
        while self.confirmed > 0 && self.messages.len() > MESSAGES_KEPT {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        self.messages.pop_front();
        self.confirmed = self.confirmed.saturating_sub(1);
        self.dropped += 1;
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
            let is_taken = |(id, _): &(u16, [u8; 8])| *id == receipt.packet_id;
            if self.is_reused || !message.is_duplicate && self.messages.iter().any(is_taken) {
                self.forget();
                self.is_reused = true;
                self.dropped += 1;
                return;
            }
            self.messages.push_back(entry(receipt, message));
            let has_confirmed = self.confirmed > 0 && self.messages.len() > MESSAGES_KEPT;
            if has_confirmed || self.messages.len() > MESSAGES {
                self.drop_oldest();
            }
        }
    }

    /// The mark of the next batch.
    pub(super) fn mark(&mut self) -> Mark {
        self.number = self.number.wrapping_add(1);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.messages.len() * MESSAGE_BYTES);
        bytes.push(if self.is_reused {
            VERSION_REUSED
        } else {
            VERSION
        });
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.subscription);
        for (packet_id, hash) in &self.messages {
            bytes.extend(packet_id.to_le_bytes());
            bytes.extend(hash);
        }
        // 5,137 bytes at most.
        Mark::long(bytes)
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
        for number in 0..600 {
            ledger.add(&message(number, "x", false));
        }
        let mark = ledger.mark();
        assert_ne!(mark, ledger.mark(), "each batch has a mark of its own");
        let mut after = Ledger::of(&mark).unwrap();
        assert!(after.subscribe(&["a/#".to_owned()], 1));
        assert!(!after.subscribe(&["a/#".to_owned()], 2));
        let known = (0..600).filter(|number| after.has(&message(*number, "x", true)));
        assert_eq!(known.collect::<Vec<_>>(), (88..600).collect::<Vec<_>>());
        assert!(!after.has(&message(599, "x", false)), "a new message");
        assert!(!after.has(&message(599, "y", true)), "another content");
        after.forget();
        assert!(!after.has(&message(599, "x", true)));
    }

    #[test]
    fn what_the_broker_knows_to_be_acknowledged_makes_no_mark_longer() {
        let mut ledger = Ledger::default();
        for number in 0..600 {
            ledger.add(&message(number, "x", false));
        }
        assert_eq!(ledger.newest(), 600);
        ledger.confirm(300);
        let mut after = Ledger::of(&ledger.mark()).unwrap();
        assert!(!after.has(&message(299, "x", true)));
        assert!(after.has(&message(300, "x", true)));
        assert_eq!(after.newest(), 300, "the numbers belong to the ledger");
        after.confirm(u64::MAX);
        assert_eq!(after.messages.len(), 64);
        // Those that are confirmed leave one by one; an earlier confirmation changes nothing.
        after.add(&message(600, "x", false));
        after.confirm(1);
        assert_eq!((after.messages.len(), after.newest()), (64, 301));
        ledger.forget();
        assert_eq!(ledger.newest(), 600);
    }

    #[test]
    fn of_a_broker_that_uses_identifiers_again_nothing_is_a_repeat() {
        let mut ledger = Ledger::default();
        ledger.add(&message(1, "x", false));
        assert!(ledger.has(&message(1, "x", true)));
        ledger.add(&message(2, "x", false));
        ledger.add(&message(1, "x", false));
        let mark = ledger.mark();
        let mut after = Ledger::of(&mark).unwrap();
        // The fourth message, which was on its way when the node ended.
        assert!(!ledger.has(&message(1, "x", true)) && !after.has(&message(1, "x", true)));
        after.add(&message(1, "x", true));
        ledger.add(&message(1, "x", true));
        assert_eq!((ledger.newest(), after.newest()), (4, 1));
        after.forget();
        after.add(&message(1, "x", false));
        assert!(after.has(&message(1, "x", true)), "a new session");
    }

    #[test]
    fn a_mark_of_another_kind_is_none() {
        let longer = vec![2; HEAD_BYTES + MESSAGE_BYTES];
        for bytes in [
            vec![],
            vec![1; 20],
            vec![3; HEAD_BYTES],
            longer,
            vec![1; 400],
        ] {
            assert_eq!(Ledger::of(&Mark::new(bytes).unwrap()), None);
        }
    }
}
