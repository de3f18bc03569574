//! The messages that were received, by their identifiers: a repeated one gets the same reply, and is not looked at again (RFC
//! 7252, section 4.5).

use std::collections::VecDeque;
use std::time::Duration;

use chappe_machine::Instant;
use coap_lite::MessageType;

/// How long an identifier of a message is not used again: EXCHANGE_LIFETIME (RFC 7252, section 4.8.2).
const LIFETIME: Duration = Duration::from_secs(247);
/// Messages whose identifiers are remembered; reason: a repeated one follows soon.
const SEEN_MAX: usize = 1_024;

/// The reply to a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reply {
    /// None so far: it needs none, or its state is not stored yet.
    None,
    /// An acknowledgement or a reset.
    Sent(MessageType),
}

/// The newest messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Seen(VecDeque<(u16, Instant, Reply)>);

impl Seen {
    /// The reply to a message that was received before; `None` for a new one, which is remembered.
    pub(super) fn repeated(&mut self, now: Instant, id: u16) -> Option<Reply> {
        while self
            .0
            .front()
            .is_some_and(|(_, at, _)| *at + LIFETIME <= now)
        {
            self.0.pop_front();
        }
        if let Some((.., reply)) = self.0.iter().find(|(known, ..)| *known == id) {
            return Some(*reply);
        }
        if self.0.len() == SEEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, now, Reply::None));
        None
    }

    /// This reply is sent.
    pub(super) fn replied(&mut self, id: u16, message_type: MessageType) {
        if let Some(seen) = self.0.iter_mut().rev().find(|(known, ..)| *known == id) {
            seen.2 = Reply::Sent(message_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_repeated_within_its_lifetime_and_few_are_remembered() {
        let (mut seen, mut now) = (Seen::default(), Instant::ZERO);
        assert_eq!(seen.repeated(now, 7), None);
        assert_eq!(seen.repeated(now, 7), Some(Reply::None));
        seen.replied(7, MessageType::Reset);
        now += LIFETIME - Duration::from_secs(1);
        assert_eq!(seen.repeated(now, 7), Some(Reply::Sent(MessageType::Reset)));
        now += Duration::from_secs(1);
        assert_eq!(seen.repeated(now, 7), None);
        for id in 0..5_000 {
            seen.repeated(now, id);
        }
        assert_eq!(seen.0.len(), SEEN_MAX);
    }
}
