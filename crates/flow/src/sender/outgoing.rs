//! What the caller says of channels: answers, schemas, rollbacks.

use alloc::format;

use super::channel::{ChannelState, Open, Switch};
use super::{Refusing, Sender};
use crate::config::{SCHEMAS_MAX, SCHEMAS_UNCONFIRMED_MAX};
use crate::message::{Message, RECORDS_OVERHEAD_MAX, Rolled, SchemaText};
use crate::session::cut;
use crate::{Channel, Grant, Offer, RefusalReason, SCHEMA_BYTES_MAX, Schema};

impl Sender {
    // -- answers --

    pub(super) fn answer(&mut self, channel: Channel, offer: Offer) {
        let Some(state) = self.channels.get(&channel) else {
            // Unsubscribed in the meantime.
            self.session.counters.answers_unused += 1;
            return;
        };
        let is_open = state.open.is_some();
        match offer {
            Offer::Refuse { reason, text } => self.refuse(channel, reason, cut(&text).into()),
            Offer::Accept(grant) if !is_open => self.accept(channel, Rolled::No, grant),
            Offer::Rollback { kept, grant } if !is_open => {
                self.accept(channel, Rolled::of(kept), grant);
            }
            Offer::Rollback { kept, grant } => {
                self.rolled_back(channel, kept.map_or(0, |kept| kept.sequence), grant);
            }
            Offer::Accept(_) => self.caller_erred(format!("{channel} was accepted twice")),
        }
    }

    fn accept(&mut self, channel: Channel, rolled: Rolled, grant: Grant) {
        if grant.next == 0 || grant.last == u64::MAX {
            return self.caller_erred(format!("{channel} is granted from number 0 on"));
        }
        if !self.fits(&grant.schema) {
            return self.schema_too_large(channel);
        }
        let now = self.session.now;
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if rolled != Rolled::No {
            self.session.counters.rollbacks += 1;
        }
        state.open = Some(Open::new(rolled, grant, state.credit, now));
        self.send_answer(channel);
        self.enqueue(channel);
    }

    /// Says what was granted, or says it again.
    pub(super) fn send_answer(&mut self, channel: Channel) {
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        let Some(answer) = state.open.as_ref().and_then(|open| open.answer.as_ref()) else {
            self.session.counters.stale += 1;
            return;
        };
        let (rollback, grant) = &**answer;
        let known = state.known == Some(grant.schema.id);
        self.session.push(&Message::Accepted {
            channel,
            rollback: *rollback,
            epoch: grant.epoch,
            next: grant.next,
            last: grant.last,
            level: grant.level,
            schema: SchemaText {
                version: grant.schema.version,
                id: grant.schema.id,
                bytes: (!known).then_some(&*grant.schema.bytes),
            },
        });
    }

    /// The log went back while the channel is open.
    fn rolled_back(&mut self, channel: Channel, kept: u64, grant: Grant) {
        if grant.next == 0 || kept >= grant.next {
            return self.caller_erred(format!("{channel} goes back to before what is kept"));
        }
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        // Without a common past nothing more is sent of it.
        let until = match kept {
            0 => open.said.stored + 1,
            kept => kept + 1,
        };
        open.last = grant.last.max(grant.next - 1);
        open.lingering = None;
        if let Some(reading) = &mut open.reading {
            reading.outdated = true;
        }
        let begins = Switch {
            epoch: grant.epoch,
            first: grant.next,
            kept,
            until,
        };
        match &mut open.switch {
            // The next stage was to begin before what is gone, and still does.
            Some(pending) if kept >= pending.first => {}
            Some(pending) if until >= pending.until => {
                pending.epoch = grant.epoch;
                pending.first = grant.next;
            }
            // Nothing that is gone was sent: the new epoch is met when it is read.
            None if kept > 0 && open.sent_next <= until => {}
            _ => {
                // What both have is sent on, and sent again; the rest can never be read again.
                open.next = open.next.min(until);
                open.again = open.again.filter(|again| again.next <= until);
                open.switch = Some(begins);
            }
        }
        self.session.counters.rollbacks += 1;
        self.schema(channel, grant.schema);
        self.switch_if_drained(channel);
        self.enqueue(channel);
    }

    /// Ends a channel from this side.
    pub(super) fn refuse(
        &mut self,
        channel: Channel,
        reason: RefusalReason,
        text: alloc::string::String,
    ) {
        self.remove(channel);
        let refusing = Refusing {
            reason,
            text,
            again_at: self.session.now + self.session.round_trip.timeout(),
            attempts: 1,
        };
        self.session.push(&Message::Refused {
            channel,
            reason,
            text: &refusing.text,
        });
        self.refusing.insert(channel, refusing);
    }

    /// Forgets a channel.
    pub(super) fn remove(&mut self, channel: Channel) {
        let Some(state) = self.channels.remove(&channel) else {
            return;
        };
        self.ended.insert(channel);
        for queue in [&mut self.again, &mut self.live, &mut self.catch_up] {
            queue.retain(|queued| *queued != channel);
        }
        self.lingering.retain(|(_, queued)| *queued != channel);
        if let Some(open) = state.open {
            let in_flight = open.in_flight();
            self.in_flight.bytes -= in_flight.bytes;
            self.in_flight.elements -= in_flight.elements;
            if open.catching_up {
                self.in_flight_catch_up -= in_flight.bytes;
            }
            if let Some(reading) = open.reading {
                self.unreserve(reading, open.catching_up);
            }
        }
    }

    // -- schemas --

    fn fits(&self, schema: &Schema) -> bool {
        let room = self
            .session
            .frame_max()
            .saturating_sub(RECORDS_OVERHEAD_MAX);
        schema.bytes.len() <= SCHEMA_BYTES_MAX.min(room)
    }

    fn schema_too_large(&mut self, channel: Channel) {
        let text = "the schema is larger than the subscriber takes";
        self.refuse(channel, RefusalReason::Schema, text.into());
    }

    pub(super) fn schema(&mut self, channel: Channel, schema: Schema) {
        if !self.fits(&schema) {
            return self.schema_too_large(channel);
        }
        let now = self.session.now;
        let Some(open) = self.open_mut(channel) else {
            self.session.counters.answers_unused += 1;
            return;
        };
        if open.schemas.last() == Some(&schema.version) {
            return;
        }
        let index = u32::try_from(open.schemas.len()).unwrap_or(u32::MAX);
        if index >= SCHEMAS_MAX || open.unconfirmed.len() >= SCHEMAS_UNCONFIRMED_MAX {
            let text = "the schema changes too often for one session";
            return self.refuse(channel, RefusalReason::Busy, text.into());
        }
        open.schemas.push(schema.version);
        if !open.is_in_doubt() {
            open.doubt_since = now;
        }
        let bytes = Some(&*schema.bytes);
        self.session.push(&Message::Schema {
            channel,
            index,
            schema: SchemaText {
                version: schema.version,
                id: schema.id,
                bytes,
            },
        });
        if let Some(open) = self.open_mut(channel) {
            open.unconfirmed.push_back((index, schema));
        }
        self.arm_probe();
    }

    pub(super) fn open_mut(&mut self, channel: Channel) -> Option<&mut Open> {
        self.channels.get_mut(&channel)?.open.as_mut()
    }

    /// When everything sent is stored: counts anew, begins the next stage, if that is due.
    pub(super) fn switch_if_drained(&mut self, channel: Channel) {
        let Some(ChannelState {
            credit,
            open: Some(open),
            ..
        }) = self.channels.get_mut(&channel)
        else {
            return;
        };
        let switch = open.switch.filter(|switch| open.next >= switch.until);
        if !open.is_drained() || (!open.recount && switch.is_none()) {
            return;
        }
        let in_flight = open.in_flight();
        self.in_flight.bytes -= in_flight.bytes;
        self.in_flight.elements -= in_flight.elements;
        if open.catching_up {
            self.in_flight_catch_up -= in_flight.bytes;
        }
        open.recount = false;
        open.sent.bytes = open.said.bytes;
        open.sent.elements = open.said.elements;
        let Some(switch) = switch else {
            return;
        };
        open.switch = None;
        open.begin_stage(switch, *credit);
        open.doubt_since = self.session.now;
        let place = open.place(channel);
        self.session.push(&Message::Stage { place });
        self.arm_probe();
    }
}
