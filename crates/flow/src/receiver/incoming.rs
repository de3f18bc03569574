//! Messages of the origin, except elements.

use alloc::format;
use alloc::string::ToString;

use super::channel::Phase;
use super::{Greeting, Receiver};
use crate::message::{Message, Rolled, SchemaText, Welcome};
use crate::planted::{self, Defect};
use crate::session::version_failure;
use crate::{
    Channel, Code, FRAME_BYTES_MIN, Failure, Grant, LossReason, Position, ReceiverEvent,
    RefusalReason, SCHEMAS_MAX, SessionEvent,
};

impl Receiver {
    pub(super) fn message(&mut self, message: &Message<'_>) {
        if let Message::Welcome(welcome) = message {
            return self.welcome(welcome);
        }
        if self.version().is_none() {
            if !matches!(message, Message::Goodbye { .. }) || !self.session.common(message) {
                self.session.unexpected(message, "before Welcome");
            }
            return;
        }
        if self.session.common(message) {
            return;
        }
        match message {
            Message::Accepted { channel, .. } => self.accepted(*channel, message),
            Message::Refused {
                channel,
                reason,
                text,
            } => self.refused_by_origin(*channel, *reason, text),
            Message::Schema {
                channel,
                index,
                schema,
            } => self.schema(*channel, *index, schema),
            Message::Records {
                place,
                first,
                schema,
                behind,
                records,
            } => self.records(place, *first, *schema, *behind, records),
            Message::Lost {
                place,
                from,
                next,
                reason,
            } => self.lost(place, *from, *next, *reason),
            Message::Stage { place } => {
                if self.in_place(place, place.stage.first) {
                    self.needs_acknowledgement(place.channel);
                }
            }
            Message::Ended { channel } => self.ended_by_origin(*channel),
            Message::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            } => {
                let range = (*from, *next);
                if self.is_open(*channel, "Fetch") {
                    self.session
                        .fetch_requested(*request, *channel, *epoch, range, *bytes);
                } else {
                    self.session.answer_none(*request, *from);
                }
            }
            Message::Fetched {
                request,
                first,
                records,
            } => self.session.fetched(*request, *first, records.clone()),
            _ => self.session.unexpected(message, "from an origin"),
        }
    }

    fn welcome(&mut self, welcome: &Welcome) {
        if welcome.session != self.number {
            let text = "Welcome is for another session";
            self.session.fail(Failure::peer(Code::Contradiction, text));
            return;
        }
        if self.phase != Greeting::Said {
            let text = "Welcome answers no Hello";
            return self.session.fail(Failure::peer(Code::Unexpected, text));
        }
        let own = self.config.session.versions;
        let version = welcome.version;
        if version < own.0 || version > own.1 {
            return self.session.fail(version_failure(own, (version, version)));
        }
        if welcome.frame_bytes_max < FRAME_BYTES_MIN as u64 {
            let taken = welcome.frame_bytes_max;
            let text = format!(
                "the peer accepts frames of {taken} bytes, the minimum is {FRAME_BYTES_MIN}"
            );
            return self.session.fail(Failure::peer(Code::TooLarge, text));
        }
        self.phase = Greeting::Done(version);
        self.handshake_until = None;
        self.session
            .opened(welcome.frame_bytes_max, welcome.dead_after_ms);
        self.session.event(SessionEvent::Welcomed { version });
        let waiting: alloc::vec::Vec<_> = self.channels.keys().copied().collect();
        for channel in waiting {
            self.ask(channel);
        }
    }

    /// Whether a channel named by the origin is open. If not, it has ended or is ending, which the
    /// origin may not know yet; or the session has failed.
    pub(super) fn is_open(&mut self, channel: Channel, what: &str) -> bool {
        match self.channels.get(&channel).map(|state| state.phase) {
            Some(Phase::Open) => return true,
            Some(Phase::Waiting | Phase::Asked) => {
                let text = format!("{what} on {channel}, which is not granted");
                self.session.fail(Failure::peer(Code::Unexpected, text));
            }
            None if !self.ended.contains(channel) => {
                let text = format!("{what} on {channel}, which was never subscribed");
                self.session.fail(Failure::peer(Code::UnknownChannel, text));
            }
            Some(Phase::Leaving) | None => self.session.counters.stale += 1,
        }
        false
    }

    fn accepted(&mut self, channel: Channel, message: &Message<'_>) {
        let Message::Accepted {
            rollback,
            epoch,
            next,
            last,
            level,
            schema,
            ..
        } = message
        else {
            return;
        };
        let state = self.channels.get_mut(&channel);
        let Some(state) = state.filter(|state| state.phase == Phase::Asked) else {
            if self.is_open(channel, "Accepted") {
                let text = format!("{channel} is granted twice");
                self.session.fail(Failure::peer(Code::Contradiction, text));
            }
            return;
        };
        if schema.bytes.is_none() && state.subscription.known != Some(schema.id) {
            let text = format!("{channel}: a schema without bytes that is not known here");
            self.session.fail(Failure::peer(Code::Contradiction, text));
            return;
        }
        state.phase = Phase::Open;
        state.epoch = *epoch;
        state.delivered = next - 1;
        if planted::is(Defect::IgnoresEpoch) {
            let have = state.subscription.start.have();
            state.delivered = have.map_or(next - 1, |have| have.sequence.max(next - 1));
        }
        state.stored = state.delivered;
        state.schemas.push(schema.version);
        state.behind = (last + 1).saturating_sub(*next);
        let grant = Grant {
            epoch: *epoch,
            next: *next,
            last: *last,
            level: *level,
            schema: schema.to_schema(),
        };
        let have = state.subscription.start.have();
        let gap = have.and_then(|have| self.compare(channel, have, *rollback, *epoch, *next));
        self.session
            .event(ReceiverEvent::Accepted { channel, grant });
        if let Some(gap) = gap {
            self.session.event(gap);
        }
        self.needs_acknowledgement(channel);
    }

    /// Compares the local state with the offer: reports a rollback, returns a gap.
    fn compare(
        &mut self,
        channel: Channel,
        have: Position,
        rollback: Rolled,
        epoch: u64,
        next: u64,
    ) -> Option<ReceiverEvent> {
        let kept = match rollback {
            Rolled::Kept(position) => Some(position),
            Rolled::Unknown => None,
            // It does not state it, but the offered elements were numbered before.
            Rolled::No if next <= have.sequence => {
                let before = Position {
                    epoch,
                    sequence: next - 1,
                };
                (epoch == have.epoch && next > 1).then_some(before)
            }
            Rolled::No if next == have.sequence + 1 => return None,
            Rolled::No => {
                self.session.counters.lose(next - have.sequence - 1);
                return Some(ReceiverEvent::Lost {
                    channel,
                    epoch: have.epoch,
                    from: have.sequence + 1,
                    next,
                    reason: LossReason::Skipped,
                });
            }
        };
        self.session.counters.rollbacks += 1;
        let next = Position {
            epoch,
            sequence: next,
        };
        if !planted::is(Defect::HidesRollback) {
            self.session.event(ReceiverEvent::Rollback {
                channel,
                have,
                kept,
                next,
            });
        }
        None
    }

    fn refused_by_origin(&mut self, channel: Channel, reason: RefusalReason, text: &str) {
        let phase = self.channels.get(&channel).map(|state| state.phase);
        let Some(phase) = phase.filter(|phase| *phase != Phase::Waiting) else {
            self.is_open(channel, "Refused");
            return;
        };
        self.remove(channel);
        self.session.event(if phase == Phase::Leaving {
            ReceiverEvent::Unsubscribed { channel }
        } else {
            ReceiverEvent::Refused {
                channel,
                reason,
                text: text.to_string(),
            }
        });
    }

    fn ended_by_origin(&mut self, channel: Channel) {
        match self.channels.get(&channel).map(|state| state.phase) {
            Some(Phase::Leaving) => {
                self.remove(channel);
                self.session.event(ReceiverEvent::Unsubscribed { channel });
            }
            Some(_) => {
                let text = format!("{channel} is ended without a request");
                self.session.fail(Failure::peer(Code::Contradiction, text));
            }
            None => {
                self.is_open(channel, "Ended");
            }
        }
    }

    fn schema(&mut self, channel: Channel, index: u32, schema: &SchemaText<'_>) {
        if !self.is_open(channel, "Schema") {
            return;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if index as usize != state.schemas.len() || schema.bytes.is_none() {
            let next = state.schemas.len();
            let text = format!("{channel}: schema {index} without bytes, or {next} is next");
            self.session.fail(Failure::peer(Code::Contradiction, text));
            return;
        }
        if index >= SCHEMAS_MAX {
            let text = format!("{channel}: more than {SCHEMAS_MAX} schemas in one session");
            self.session.fail(Failure::peer(Code::TooLarge, text));
            return;
        }
        state.schemas.push(schema.version);
        let schema = schema.to_schema();
        self.session
            .event(ReceiverEvent::Schema { channel, schema });
    }
}
