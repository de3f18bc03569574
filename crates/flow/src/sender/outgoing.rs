//! The caller's commands about channels: answers, schemas, rollbacks.

use alloc::format;

use super::Sender;
use super::channel::{ChannelState, Open, Switch};
use crate::config::SCHEMAS_MAX;
use crate::message::{Message, RECORDS_OVERHEAD_MAX, RollbackPoint, SchemaText};
use crate::session::truncated;
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
            Offer::Refuse { reason, text } => self.refuse(channel, reason, truncated(&text).into()),
            Offer::Accept(grant) if !is_open => self.accept(channel, RollbackPoint::No, grant),
            Offer::Rollback { kept, grant } if !is_open => {
                self.accept(channel, RollbackPoint::of(kept), grant);
            }
            Offer::Rollback { kept, grant } => {
                self.rolled_back(channel, kept.map_or(0, |kept| kept.sequence), grant);
            }
            Offer::Accept(_) => self.fail_caller(format!("{channel} was accepted twice")),
        }
    }

    fn accept(&mut self, channel: Channel, rolled: RollbackPoint, grant: Grant) {
        if grant.next == 0 || grant.last == u64::MAX {
            return self.fail_caller(format!("{channel} is granted from number 0"));
        }
        if !self.fits(&grant.schema) {
            return self.schema_too_large(channel);
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if rolled != RollbackPoint::No {
            self.session.counters.rollbacks += 1;
        }
        state.open = Some(Open::new(&grant, state.credit));
        let is_known = state.known == Some(grant.schema.id);
        self.session.push(&Message::Accepted {
            channel,
            rollback: rolled,
            epoch: grant.epoch,
            next: grant.next,
            last: grant.last,
            level: grant.level,
            schema: SchemaText {
                version: grant.schema.version,
                id: grant.schema.id,
                bytes: (!is_known).then_some(&*grant.schema.bytes),
            },
        });
        self.enqueue(channel);
    }

    /// The log was rolled back while the channel is open.
    fn rolled_back(&mut self, channel: Channel, kept: u64, grant: Grant) {
        if grant.next == 0 || kept >= grant.next {
            return self.fail_caller(format!(
                "{channel} is rolled back to before its kept position"
            ));
        }
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        // Without a common position nothing more is sent in this stage.
        let until = match kept {
            0 => open.acknowledged.stored + 1,
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
        };
        match &mut open.switch {
            // The next stage was to begin before the removed numbers, and still does.
            Some(pending) if kept >= pending.first => {}
            Some(pending) if until >= open.next => {
                pending.epoch = grant.epoch;
                pending.first = grant.next;
            }
            // No removed number was sent: the next read finds the new epoch.
            None if kept > 0 && open.sent_next <= until => {}
            _ => {
                // Only elements that both have need to be stored before the next stage.
                open.next = open.next.min(until);
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
        self.ended.insert(channel);
        self.session.push(&Message::Refused {
            channel,
            reason,
            text: &text,
        });
    }

    /// Removes a channel.
    pub(super) fn remove(&mut self, channel: Channel) {
        let Some(state) = self.channels.remove(&channel) else {
            return;
        };
        self.ended.insert(channel);
        for queue in [&mut self.live, &mut self.catch_up] {
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
        let text = "the schema exceeds the subscriber's limit";
        self.refuse(channel, RefusalReason::Schema, text.into());
    }

    pub(super) fn schema(&mut self, channel: Channel, schema: Schema) {
        if !self.fits(&schema) {
            return self.schema_too_large(channel);
        }
        let Some(open) = self.open_mut(channel) else {
            self.session.counters.answers_unused += 1;
            return;
        };
        if open.schemas.last() == Some(&schema.version) {
            return;
        }
        let index = u32::try_from(open.schemas.len()).unwrap_or(u32::MAX);
        if index >= SCHEMAS_MAX {
            let text = "the schema changes too often for one session";
            return self.refuse(channel, RefusalReason::Busy, text.into());
        }
        open.schemas.push(schema.version);
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
    }

    pub(super) fn open_mut(&mut self, channel: Channel) -> Option<&mut Open> {
        self.channels.get_mut(&channel)?.open.as_mut()
    }

    /// Begins the next stage, if one is due and everything sent is stored.
    pub(super) fn switch_if_drained(&mut self, channel: Channel) {
        let Some(ChannelState {
            credit,
            open: Some(open),
            ..
        }) = self.channels.get_mut(&channel)
        else {
            return;
        };
        let Some(switch) = open.switch.filter(|_| open.is_drained()) else {
            return;
        };
        let in_flight = open.in_flight();
        self.in_flight.bytes -= in_flight.bytes;
        self.in_flight.elements -= in_flight.elements;
        if open.catching_up {
            self.in_flight_catch_up -= in_flight.bytes;
        }
        open.switch = None;
        open.begin_stage(switch, *credit);
        let place = open.place(channel);
        self.session.push(&Message::Stage { place });
    }
}
