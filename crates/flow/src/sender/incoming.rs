//! Messages of the subscriber.

use alloc::format;
use alloc::string::ToString;

use super::channel::{ChannelState, Open};
use super::{Peer, Sender};
use crate::message::{Entry, Hello, Message, Welcome};
use crate::session::version_failure;
use crate::{
    CHANNEL_NUMBERS_MAX, Channel, Code, DeadLetterReason, FRAME_BYTES_MIN, Failure, Position,
    RefusalReason, SenderEvent, SessionEvent, Subscription,
};

impl Sender {
    pub(super) fn message(&mut self, message: &Message<'_>) {
        if let Message::Hello(hello) = message {
            return self.hello(hello);
        }
        if self.peer.is_none() && !matches!(message, Message::Goodbye { .. }) {
            return self.session.unexpected(message, "before Hello");
        }
        if self.session.common(message) {
            return;
        }
        match message {
            Message::Subscribe { .. } => self.subscribe(message),
            Message::Unsubscribe {
                channel,
                reason,
                text,
            } => self.unsubscribe(*channel, *reason, text),
            Message::Acknowledge { entries } => {
                self.session.counters.acknowledgements += 1;
                for entry in entries.iter() {
                    self.acknowledge(&entry);
                    if self.session.is_ended() {
                        return;
                    }
                }
            }
            Message::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            } => {
                if self.channels.contains_key(channel) {
                    let range = (*from, *next);
                    self.session
                        .fetch_requested(*request, *channel, *epoch, range, *bytes);
                } else {
                    self.unknown(*channel, "Fetch");
                    self.session.answer_none(*request, *from);
                }
            }
            Message::Fetched {
                request,
                first,
                records,
            } => self.session.fetched(*request, *first, records.clone()),
            _ => self.session.unexpected(message, "from a subscriber"),
        }
    }

    fn hello(&mut self, hello: &Hello) {
        if self.peer.is_some() {
            let text = "a second Hello on one connection";
            self.session.fail(Failure::peer(Code::Contradiction, text));
            return;
        }
        let own = self.config.session.versions;
        let version = own.1.min(hello.versions.1);
        if version < own.0 || version < hello.versions.0 {
            return self.session.fail(version_failure(own, hello.versions));
        }
        if hello.frame_bytes_max < FRAME_BYTES_MIN as u64 || hello.window_bytes == 0 {
            let text = format!(
                "the peer accepts frames of {} bytes and {} bytes in total, the minimum is {FRAME_BYTES_MIN} and 1",
                hello.frame_bytes_max, hello.window_bytes
            );
            return self.session.fail(Failure::peer(Code::TooLarge, text));
        }
        self.peer = Some(Peer {
            version,
            window_bytes: hello.window_bytes,
        });
        let config = &self.config.session;
        let dead_after = config.dead_after.as_millis();
        self.session.push(&Message::Welcome(Welcome {
            version,
            session: hello.session,
            frame_bytes_max: config.frame_bytes_max as u64,
            dead_after_ms: u64::try_from(dead_after).unwrap_or(u64::MAX),
        }));
        self.session
            .opened(hello.frame_bytes_max, hello.dead_after_ms);
        self.session.event(SessionEvent::Welcomed { version });
    }

    fn subscribe(&mut self, message: &Message<'_>) {
        let Message::Subscribe {
            channel,
            start,
            earlier,
            level,
            credit,
            serialization,
            stream,
            known,
        } = message
        else {
            return;
        };
        let channel = *channel;
        if self.channels.contains_key(&channel) || self.ended.contains(channel) {
            let text = format!("{channel} is subscribed twice in one session");
            return self.session.fail(Failure::peer(Code::Contradiction, text));
        }
        let limit = self.config.channels_max;
        if self.channels.len() >= limit {
            self.refused_busy += 1;
            if self.refused_busy > limit {
                let text = format!("{limit} channels are open, and as many more were refused");
                return self
                    .session
                    .fail(Failure::peer(Code::TooManyChannels, text));
            }
            let text = format!("{limit} channels are open, which is the limit");
            return self.refuse(channel, RefusalReason::Busy, text);
        }
        let subscription = Subscription {
            stream: (*stream).to_string(),
            start: *start,
            earlier: earlier.clone(),
            level: *level,
            serialization: (*serialization).to_string(),
            known: *known,
            credit: Some(*credit),
        };
        let state = ChannelState {
            known: *known,
            credit: *credit,
            open: None,
        };
        self.channels.insert(channel, state);
        self.session.event(SenderEvent::Subscribe {
            channel,
            subscription,
        });
    }

    fn unsubscribe(&mut self, channel: Channel, reason: RefusalReason, text: &str) {
        let was_open = self.channels.contains_key(&channel);
        self.remove(channel);
        self.ended.insert(channel);
        self.session.push(&Message::Ended { channel });
        if was_open {
            self.session.event(SenderEvent::Unsubscribed {
                channel,
                reason,
                text: text.to_string(),
            });
        }
    }

    /// Handles a channel that does not exist: it has ended, or the peer is wrong.
    fn unknown(&mut self, channel: Channel, what: &str) {
        if self.ended.contains(channel) {
            self.session.counters.stale += 1;
            return;
        }
        debug_assert!(channel.0 < CHANNEL_NUMBERS_MAX, "it was decoded");
        let text = format!("{what} on {channel}, which was never subscribed");
        self.session.fail(Failure::peer(Code::UnknownChannel, text));
    }

    fn acknowledge(&mut self, entry: &Entry) {
        let channel = Channel(entry.channel);
        let now = self.session.now;
        let fill = self.records_fill() as u64;
        let Some(state) = self.channels.get_mut(&channel) else {
            return self.unknown(channel, "an acknowledgement");
        };
        let Some(open) = state.open.as_mut() else {
            let text = format!("{channel} is acknowledged before it was accepted");
            return self.session.fail(Failure::peer(Code::Unexpected, text));
        };
        if let Err((code, text)) = open.check_entry(entry) {
            let text = format!("{channel}: {text}");
            return self.session.fail(Failure::peer(code, text));
        }
        if entry.stage < open.stage.number {
            self.session.counters.stale += 1;
            return;
        }
        if let Err(text) = open.check_forward(entry) {
            let text = format!("{channel}: {text}");
            return self.session.fail(Failure::peer(Code::WentBack, text));
        }
        let before = open.acknowledged;
        open.acknowledged = *entry;
        let delay = open
            .timed
            .take_if(|(sequence, _)| *sequence <= entry.stored)
            .map(|(_, at)| now - at);
        let bytes = entry.bytes - before.bytes;
        let elements = entry.elements - before.elements;
        self.in_flight.bytes -= bytes;
        self.in_flight.elements -= elements;
        if open.catching_up {
            self.in_flight_catch_up -= bytes;
        }
        self.session.counters.acknowledged += elements;
        let refused = entry.refused.saturating_sub(before.refused);
        let all = &mut self.session.counters.refused[DeadLetterReason::Other.index()];
        *all = all.saturating_add(refused);
        if entry.stored > before.stored {
            let position = Position {
                epoch: open.epoch,
                sequence: entry.stored,
            };
            self.session.event(SenderEvent::Acknowledged {
                channel,
                position,
                refused: entry.refused,
            });
        }
        let credited = open.stalled && open.has_credit(state.credit, fill);
        if credited {
            open.stalled = false;
            self.session.event(SenderEvent::Resumed { channel });
        }
        if elements > 0 {
            let in_flight = self.in_flight();
            self.pacer
                .acknowledged(now, bytes, elements, delay, in_flight);
        }
        self.switch_if_drained(channel);
        self.enqueue(channel);
    }
}

impl Open {
    /// Rejects acknowledgements that no honest subscriber sends, however late.
    fn check_entry(&self, entry: &Entry) -> Result<(), (Code, alloc::string::String)> {
        let unsent = |text| Err((Code::AcknowledgedUnsent, text));
        if entry.stage > self.stage.number {
            return unsent(format!("stage {} was never started", entry.stage));
        }
        if entry.stage < self.stage.number {
            return Ok(());
        }
        if entry.stored >= self.sent_next {
            return unsent(format!(
                "number {} is acknowledged, the last sent is {}",
                entry.stored,
                self.sent_next - 1
            ));
        }
        if entry.elements > self.sent.elements || entry.bytes > self.sent.bytes {
            return unsent(format!(
                "{} elements of {} bytes are acknowledged, {} of {} were sent",
                entry.elements, entry.bytes, self.sent.elements, self.sent.bytes
            ));
        }
        Ok(())
    }

    /// The values that a later acknowledgement never decreases.
    fn check_forward(&self, entry: &Entry) -> Result<(), alloc::string::String> {
        let before = &self.acknowledged;
        let forward = [
            ("the number stored", before.stored, entry.stored),
            ("the elements", before.elements, entry.elements),
            ("the bytes", before.bytes, entry.bytes),
            (
                "the credit in elements",
                before.elements_limit,
                entry.elements_limit,
            ),
            ("the credit in bytes", before.bytes_limit, entry.bytes_limit),
            ("the dead letters", before.refused, entry.refused),
        ];
        let back = forward.iter().find(|(_, before, after)| after < before);
        match back {
            Some((what, before, after)) => {
                Err(format!("{what} decreases from {before} to {after}"))
            }
            None => Ok(()),
        }
    }
}
