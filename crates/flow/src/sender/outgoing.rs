//! What the caller gives: answers, records, news of the log.

use alloc::format;

use chappe_machine::Instant;

use super::channel::{ChannelState, Lingering, Open, Queued, Reading, Switch};
use super::{Refusing, Sender};
use crate::config::{SCHEMAS_MAX, SCHEMAS_UNCONFIRMED_MAX};
use crate::message::{Message, Place, RECORDS_OVERHEAD_MAX, Rolled, SchemaText};
use crate::session::cut;
use crate::{
    Channel, Grant, LossReason, Offer, Pace, Records, RecordsBuilder, RefusalReason,
    SCHEMA_BYTES_MAX, Schema,
};

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

    // -- records --

    pub(super) fn appended(&mut self, channel: Channel, last: u64) {
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        open.last = open.last.max(last.min(u64::MAX - 2));
        self.enqueue(channel);
    }

    /// The caller answers a read with records.
    pub(super) fn read_done(
        &mut self,
        channel: Channel,
        epoch: u64,
        first: u64,
        schema_version: u32,
        records: &Records,
    ) {
        let Some((reading, schema)) = self.take_reading(channel, first, schema_version) else {
            return;
        };
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        if records.is_empty() {
            // Not to be read now: what was appended after it will be told.
            if reading.again {
                open.again = None;
            } else {
                open.last = first - 1;
            }
            return;
        }
        if epoch != open.epoch {
            return self.other_epoch(channel, epoch, reading);
        }
        let Some(schema) = schema else {
            let text = format!("{channel}: version {schema_version} of the schema was not told");
            return self.caller_erred(text);
        };
        let mut elements = reading.elements;
        if let (false, Some(switch)) = (reading.again, open.switch) {
            elements = elements.min(switch.until.saturating_sub(first));
        }
        if elements > 0 {
            let bytes = usize::try_from(reading.bytes).unwrap_or(usize::MAX);
            let elements = usize::try_from(elements).unwrap_or(usize::MAX);
            self.send(
                channel,
                first,
                schema,
                &records.take(elements, bytes),
                reading.again,
            );
        }
        self.enqueue(channel);
    }

    /// Ends the question that an answer belongs to.
    fn take_reading(
        &mut self,
        channel: Channel,
        first: u64,
        schema_version: u32,
    ) -> Option<(Reading, Option<u32>)> {
        let open = self
            .channels
            .get_mut(&channel)
            .and_then(|one| one.open.as_mut());
        let found = open.and_then(|open| {
            let reading = open.reading.take_if(|reading| reading.from == first)?;
            Some((reading, open.schema_index(schema_version), open.catching_up))
        });
        let Some((reading, schema, catching_up)) = found else {
            self.session.counters.answers_unused += 1;
            return None;
        };
        self.unreserve(reading, catching_up);
        let open = self.open_mut(channel)?;
        // A rollback, or a new stage, came between.
        let stale = reading.outdated
            || if reading.again {
                open.again.is_none_or(|again| again.from != reading.from)
            } else {
                open.next != reading.from
            };
        if stale {
            self.session.counters.answers_unused += 1;
            self.enqueue(channel);
            return None;
        }
        Some((reading, schema))
    }

    /// The log has a new epoch from here on. It begins when all of the old one is stored.
    fn other_epoch(&mut self, channel: Channel, epoch: u64, reading: Reading) {
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        if reading.again || open.switch.is_some() {
            // What was there is there no more, and nobody said so.
            let text = "the stream's past has changed: subscribe anew";
            return self.refuse(channel, RefusalReason::Removed, text.into());
        }
        open.switch = Some(Switch {
            epoch,
            first: open.next,
            kept: open.next - 1,
            until: open.next,
        });
        self.switch_if_drained(channel);
        self.enqueue(channel);
    }

    /// The caller answers a read: numbers are lost.
    pub(super) fn gap(&mut self, channel: Channel, from: u64, next: u64, reason: LossReason) {
        let Some((reading, _)) = self.take_reading(channel, from, 0) else {
            return;
        };
        if next <= from || next == u64::MAX {
            return self.caller_erred(format!("{channel}: a gap from {from} to {next}"));
        }
        self.send_lost(channel, reading, next, reason);
        self.enqueue(channel);
    }

    pub(super) fn live(
        &mut self,
        channel: Channel,
        epoch: u64,
        mut first: u64,
        schema_version: u32,
        records: &Records,
    ) {
        let linger = self.config.linger;
        let fill = self.records_fill();
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        let end = first.saturating_add(records.len() as u64).min(u64::MAX - 1);
        open.last = open.last.max(end - 1);
        let expected = open.expected();
        let follows = first <= expected && expected < end && epoch == open.epoch;
        let still = open.switch.is_none() && !open.recount;
        let idle = open.reading.is_none() && still && !open.catching_up;
        let schema = open.schema_index(schema_version);
        let (true, true, Some(schema)) = (follows, idle, schema) else {
            return self.enqueue(channel);
        };
        let skipped = expected - first;
        let shortened;
        let mut records = records;
        if skipped > 0 {
            shortened = records.skip(usize::try_from(skipped).unwrap_or(usize::MAX));
            records = &shortened;
            first = expected;
        }
        if linger.is_zero() && open.lingering.is_none() {
            return self.send_live(channel, first, schema, records);
        }
        let room = fill.saturating_sub(open.lingering.as_ref().map_or(0, Lingering::byte_len));
        let same = open
            .lingering
            .as_ref()
            .is_none_or(|one| one.schema == schema);
        if same && records.byte_len() <= room {
            open.linger(first, schema, records);
        }
        let full = !same || records.byte_len() >= room;
        self.enqueue(channel);
        if full {
            self.stop_lingering(channel);
        }
    }

    /// Sends what is at hand as far as there is room; the rest is read later.
    fn send_live(&mut self, channel: Channel, mut first: u64, schema: u32, records: &Records) {
        let fill = self.records_fill();
        let mut rest = records.clone();
        while !rest.is_empty() {
            let Some(ChannelState {
                credit,
                open: Some(open),
                ..
            }) = self.channels.get(&channel)
            else {
                return;
            };
            let waits = open.queued != Queued::No || open.reading.is_some();
            let may = open.has_credit(*credit, fill as u64);
            let credit = crate::Credit {
                bytes: open.said.bytes_limit.saturating_sub(open.sent.bytes),
                elements: open.said.elements_limit.saturating_sub(open.sent.elements),
            };
            if waits || !may || open.next != first || !self.has_room() || !self.may_pace() {
                break;
            }
            let bytes = fill.min(usize::try_from(credit.bytes).unwrap_or(usize::MAX));
            let elements = usize::try_from(credit.elements).unwrap_or(usize::MAX);
            let run = rest.take(elements, bytes);
            let count = run.len();
            self.send(channel, first, schema, &run, false);
            if count == rest.len() {
                break;
            }
            first += count as u64;
            rest = rest.skip(count);
        }
        self.enqueue(channel);
    }

    /// Bytes of records that fill a frame.
    pub(super) fn records_fill(&self) -> usize {
        self.session
            .frame_fill()
            .saturating_sub(RECORDS_OVERHEAD_MAX)
    }

    /// Sends a run that fits into one frame, or one record that is larger.
    pub(super) fn send(
        &mut self,
        channel: Channel,
        first: u64,
        schema: u32,
        records: &Records,
        again: bool,
    ) {
        let now = self.session.now;
        let room = self
            .session
            .frame_max()
            .saturating_sub(RECORDS_OVERHEAD_MAX);
        let Some(open) = self
            .channels
            .get_mut(&channel)
            .and_then(|one| one.open.as_mut())
        else {
            return;
        };
        let (bytes, count) = (records.byte_len() as u64, records.len() as u64);
        if records.byte_len() > room {
            let reading = Reading {
                from: first,
                elements: 1,
                bytes: 0,
                again,
                outdated: false,
            };
            return self.send_lost(channel, reading, first + 1, LossReason::TooLarge);
        }
        let next = first + count;
        if again {
            open.went(first, next, now);
            self.session.counters.sent_again += count;
        } else {
            if !open.is_in_doubt() {
                open.doubt_since = now;
            }
            open.next = next;
            open.sent_next = open.sent_next.max(next);
            open.sent.bytes += bytes;
            open.sent.elements += count;
            open.timed = open.timed.or(Some((next - 1, now)));
            self.in_flight.bytes += bytes;
            self.in_flight.elements += count;
            if open.catching_up {
                self.in_flight_catch_up += bytes;
            }
            self.session.counters.elements += count;
            self.pacer.sent(now, bytes, count);
        }
        let message = Message::Records {
            place: open.place(channel),
            first,
            schema,
            behind: (open.last + 1).saturating_sub(next),
            records: records.clone(),
        };
        self.session.push(&message);
        self.arm_probe();
    }

    /// Names numbers that never come.
    fn send_lost(&mut self, channel: Channel, reading: Reading, next: u64, reason: LossReason) {
        let now = self.session.now;
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        let from = reading.from;
        let mut next = next;
        if let Some(switch) = open.switch {
            next = next.min(switch.until.max(from + 1));
        }
        if reading.again {
            open.went(from, next, now);
        }
        if !open.is_in_doubt() {
            open.doubt_since = now;
        }
        let counted = from < open.next;
        open.next = open.next.max(next);
        open.sent_next = open.sent_next.max(next);
        open.last = open.last.max(next - 1);
        open.recount |= counted;
        let place = open.place(channel);
        self.session.counters.lose(next - from);
        self.session.push(&Message::Lost {
            place,
            from,
            next,
            reason,
        });
        self.arm_probe();
    }

    pub(super) fn may_pace(&mut self) -> bool {
        match self.pacer.next(self.session.now, self.in_flight()) {
            Pace::Now => {
                self.pace_at = None;
                true
            }
            Pace::At(at) => {
                self.pace_at = Some(at);
                false
            }
            Pace::AfterAcknowledgement => false,
        }
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

impl Open {
    pub(super) fn place(&self, channel: Channel) -> Place {
        Place {
            channel,
            stage: self.stage,
            epoch: self.epoch,
        }
    }

    /// The number that comes next, behind what waits for more.
    fn expected(&self) -> u64 {
        let waiting = self
            .lingering
            .as_ref()
            .map_or(0, |one| one.records.len() as u64);
        self.next + waiting
    }

    fn linger(&mut self, first: u64, schema: u32, records: &Records) {
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            first,
            schema,
            records: RecordsBuilder::default(),
        });
        lingering.records.append(records);
    }

    /// These numbers went again.
    fn went(&mut self, from: u64, next: u64, now: Instant) {
        self.went_again = Some((next, now));
        self.again = self.again.and_then(|mut again| {
            if again.from >= from {
                again.from = again.from.max(next);
            }
            (again.from < again.next).then_some(again)
        });
    }
}

impl Lingering {
    fn byte_len(&self) -> usize {
        self.records.byte_len()
    }
}
