//! What the subscriber says.

use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use super::channel::{ChannelState, Open, Range};
use super::{Peer, Sender};
use crate::message::{Entry, Hello, Message, SchemaText, Welcome};
use crate::planted::{self, Defect};
use crate::session::version_failure;
use crate::{
    CHANNEL_NUMBERS_MAX, Channel, Code, DeadLetterReason, FRAME_BYTES_MIN, Failure, Position,
    RefusalReason, SenderEvent, SessionEvent, Subscription,
};

/// What the subscriber takes for a long time to acknowledge; a larger number is taken for this.
const ACKNOWLEDGE_MS_MAX: u64 = 10_000;

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
            Message::Acknowledge {
                serial,
                probe,
                entries,
            } => {
                self.session.counters.acknowledgements += 1;
                let answers = self.probe_answered(*probe);
                for entry in entries.iter() {
                    self.acknowledge(*serial, answers, &entry);
                    if self.session.is_ended() {
                        return;
                    }
                }
            }
            Message::Missing {
                channel,
                stage,
                from,
                next,
            } => self.missing(*channel, *stage, *from, *next),
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
                        .asked_for(*request, *channel, *epoch, range, *bytes);
                } else {
                    self.unknown(*channel, "Fetch");
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
        if let Some(peer) = self.peer {
            if peer.session != hello.session {
                let text = "a second Hello of another session on one connection";
                self.session.fail(Failure::peer(Code::Contradiction, text));
                return;
            }
            return self.welcome();
        }
        let own = self.config.session.versions;
        let version = own.1.min(hello.versions.1);
        if version < own.0 || version < hello.versions.0 {
            return self.session.fail(version_failure(own, hello.versions));
        }
        if hello.frame_bytes_max < FRAME_BYTES_MIN as u64 || hello.window_bytes == 0 {
            let text = format!(
                "it takes frames of {} bytes and {} bytes in all, the least is {FRAME_BYTES_MIN} and 1",
                hello.frame_bytes_max, hello.window_bytes
            );
            return self.session.fail(Failure::peer(Code::TooLarge, text));
        }
        self.peer = Some(Peer {
            session: hello.session,
            version,
            window_bytes: hello.window_bytes,
            acknowledge_delay: Duration::from_millis(hello.acknowledge_ms.min(ACKNOWLEDGE_MS_MAX)),
        });
        self.welcome();
        self.session
            .opened(hello.frame_bytes_max, hello.dead_after_ms);
        self.session.event(SessionEvent::Welcomed { version });
    }

    fn welcome(&mut self) {
        let Some(peer) = self.peer else {
            return;
        };
        let config = &self.config.session;
        let dead_after = config.dead_after.as_millis();
        let welcome = Welcome {
            version: peer.version,
            session: peer.session,
            frame_bytes_max: config.frame_bytes_max as u64,
            dead_after_ms: u64::try_from(dead_after).unwrap_or(u64::MAX),
        };
        self.session.push(&Message::Welcome(welcome));
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
        if let Some(state) = self.channels.get(&channel) {
            // It did not hear the answer, or did not get one yet.
            if state.open.is_some() {
                self.send_answer(channel);
            }
            return;
        }
        if let Some(refusing) = self.refusing.get(&channel) {
            let (reason, text) = (refusing.reason, &refusing.text);
            self.session.push(&Message::Refused {
                channel,
                reason,
                text,
            });
            return;
        }
        if self.ended.contains(channel) {
            self.session.counters.stale += 1;
            return;
        }
        let limit = self.config.channels_max;
        if self.channels.len() + self.refusing.len() >= limit.saturating_mul(2) {
            let text = format!("{limit} channels are open and as many refused");
            self.session
                .fail(Failure::peer(Code::TooManyChannels, text));
            return;
        }
        if self.channels.len() >= limit {
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
        self.refusing.remove(&channel);
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

    /// A channel that is not there: either it was, or the peer is wrong.
    fn unknown(&mut self, channel: Channel, what: &str) {
        if self.ended.contains(channel) || self.refusing.contains_key(&channel) {
            self.session.counters.stale += 1;
            return;
        }
        debug_assert!(channel.0 < CHANNEL_NUMBERS_MAX, "it was decoded");
        let text = format!("{what} on {channel}, which was never subscribed");
        self.session.fail(Failure::peer(Code::UnknownChannel, text));
    }

    /// Whether an acknowledgement answers the last probe.
    fn probe_answered(&mut self, token: u64) -> bool {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.token == token) else {
            return false;
        };
        if !probe.answered {
            probe.answered = true;
            self.session
                .round_trip
                .sample(self.session.now - probe.sent_at);
        }
        true
    }

    fn acknowledge(&mut self, serial: u64, answers: bool, entry: &Entry) {
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
        if entry.stage < open.stage.number || serial <= open.serial {
            self.session.counters.stale += 1;
            // It has nothing of the present stage yet.
            if answers && serial > open.serial {
                self.answered(channel);
                self.enqueue(channel);
            }
            return;
        }
        if let Err(text) = open.check_forward(entry) {
            let text = format!("{channel}: {text}");
            return self.session.fail(Failure::peer(Code::WentBack, text));
        }
        open.serial = serial;
        open.answer = None;
        let before = open.said;
        open.said = *entry;
        if before.received != entry.received || before.stored != entry.stored {
            open.doubt_since = now;
            open.questions = 0;
        }
        open.unconfirmed
            .retain(|(index, _)| *index >= entry.schemas);
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
        if answers {
            self.answered(channel);
        }
        self.switch_if_drained(channel);
        self.enqueue(channel);
    }

    /// The subscriber has said what it has: what is missing goes again.
    fn answered(&mut self, channel: Channel) {
        let asked_at = self.probe.map(|probe| probe.sent_at);
        let session = &mut self.session;
        let Some(open) = self
            .channels
            .get_mut(&channel)
            .and_then(|one| one.open.as_mut())
        else {
            return;
        };
        open.doubt_since = session.now;
        if open.said.stage < open.stage.number {
            let place = open.place(channel);
            session.push(&Message::Stage { place });
        }
        for (index, schema) in &open.unconfirmed {
            session.push(&Message::Schema {
                channel,
                index: *index,
                schema: SchemaText {
                    version: schema.version,
                    id: schema.id,
                    bytes: Some(&schema.bytes),
                },
            });
        }
        let from = open.said.received + 1;
        let since = open.went_again.is_some_and(|(_, at)| Some(at) > asked_at);
        let again = !since && !planted::is(Defect::NeverSendsAgain);
        if from < open.probed_next.min(open.next) && again {
            session.counters.holes += 1;
            open.questions = 0;
            open.again = Some(Range {
                from,
                next: open.probed_next.min(open.next),
            });
        }
    }

    fn missing(&mut self, channel: Channel, stage: u32, from: u64, next: u64) {
        let now = self.session.now;
        let wait = self.session.round_trip.smoothed().unwrap_or_default();
        let Some(state) = self.channels.get_mut(&channel) else {
            return self.unknown(channel, "Missing");
        };
        let Some(open) = state.open.as_mut() else {
            let text = format!("{channel} misses records before it was accepted");
            return self.session.fail(Failure::peer(Code::Unexpected, text));
        };
        if stage > open.stage.number || (stage == open.stage.number && next > open.sent_next) {
            let text = format!("{channel} misses {} of stage {stage}, never sent", next - 1);
            return self
                .session
                .fail(Failure::peer(Code::AcknowledgedUnsent, text));
        }
        let recently = planted::is(Defect::NeverSendsAgain)
            || open
                .went_again
                .is_some_and(|(went, at)| from < went && now < at + wait);
        let from = from.max(open.said.received + 1);
        let next = next.min(open.next);
        if stage < open.stage.number || from >= next || recently {
            self.session.counters.stale += 1;
            return;
        }
        self.session.counters.holes += 1;
        open.again = Some(Range { from, next });
        self.enqueue(channel);
    }
}

impl Open {
    /// What no honest subscriber says, however late.
    fn check_entry(&self, entry: &Entry) -> Result<(), (Code, alloc::string::String)> {
        let unsent = |text| Err((Code::AcknowledgedUnsent, text));
        if entry.stage > self.stage.number {
            return unsent(format!("stage {} was never begun", entry.stage));
        }
        if entry.schemas as usize > self.schemas.len() {
            return unsent(format!("{} schemas were never sent", entry.schemas));
        }
        if entry.stage < self.stage.number {
            return Ok(());
        }
        if entry.received >= self.sent_next {
            return unsent(format!(
                "number {} is acknowledged, the last sent is {}",
                entry.received,
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

    /// What a later acknowledgement never takes back.
    fn check_forward(&self, entry: &Entry) -> Result<(), alloc::string::String> {
        let said = &self.said;
        let forward = [
            ("what is stored", said.stored, entry.stored),
            ("what is received", said.received, entry.received),
            ("the elements", said.elements, entry.elements),
            ("the bytes", said.bytes, entry.bytes),
            (
                "the credit in elements",
                said.elements_limit,
                entry.elements_limit,
            ),
            ("the credit in bytes", said.bytes_limit, entry.bytes_limit),
            ("the dead letters", said.refused, entry.refused),
            (
                "the schemas",
                u64::from(said.schemas),
                u64::from(entry.schemas),
            ),
        ];
        let back = forward.iter().find(|(_, before, after)| after < before);
        match back {
            Some((what, before, after)) => {
                Err(format!("{what} goes back from {before} to {after}"))
            }
            None => Ok(()),
        }
    }
}
