//! Sends records: those that the caller reads, those available, and reports of lost ones.

use alloc::format;

use super::Sender;
use super::channel::{ChannelState, Lingering, Open, Queued, Reading, Switch};
use crate::message::{Message, Place, RECORDS_OVERHEAD_MAX};
use crate::pacer::PERIOD_MAX;
use crate::{Channel, Credit, LossReason, Pace, Records, RecordsBuilder};

impl Sender {
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
            // Not readable now: the next append is announced.
            open.last = first - 1;
            return;
        }
        if epoch != open.epoch {
            return self.other_epoch(channel, epoch);
        }
        let Some(schema) = schema else {
            let text =
                format!("{channel}: version {schema_version} of the schema was never announced");
            return self.fail_caller(text);
        };
        let bytes = usize::try_from(reading.bytes).unwrap_or(usize::MAX);
        let elements = usize::try_from(reading.elements).unwrap_or(usize::MAX);
        let records = records.take(elements, bytes);
        self.send(channel, first, schema, &records);
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
        // A rollback, or a new stage, intervened.
        if reading.outdated || open.next != reading.from {
            self.session.counters.answers_unused += 1;
            self.enqueue(channel);
            return None;
        }
        Some((reading, schema))
    }

    /// The log has a new epoch from here. It starts when everything of the old one is stored.
    fn other_epoch(&mut self, channel: Channel, epoch: u64) {
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        open.switch = Some(Switch {
            epoch,
            first: open.next,
            kept: open.next - 1,
        });
        self.switch_if_drained(channel);
        self.enqueue(channel);
    }

    /// The caller answers a read: numbers are lost.
    pub(super) fn gap(
        &mut self,
        channel: Channel,
        epoch: u64,
        from: u64,
        next: u64,
        reason: LossReason,
    ) {
        if self.take_reading(channel, from, 0).is_none() {
            return;
        }
        if next <= from || next == u64::MAX {
            return self.fail_caller(format!("{channel}: a gap from {from} to {next}"));
        }
        if self
            .open_mut(channel)
            .is_some_and(|open| epoch != open.epoch)
        {
            return self.other_epoch(channel, epoch);
        }
        self.send_lost(channel, from, next, reason);
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
        let idle = open.reading.is_none() && open.switch.is_none() && !open.catching_up;
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

    /// Sends available records as far as there is room; the rest is read later.
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
            let credit = Credit {
                bytes: open
                    .acknowledged
                    .bytes_limit
                    .saturating_sub(open.sent.bytes),
                elements: open
                    .acknowledged
                    .elements_limit
                    .saturating_sub(open.sent.elements),
            };
            if waits || !may || open.next != first || !self.has_room() || !self.may_pace() {
                break;
            }
            let bytes = credit.bytes.min(self.room()).max(1);
            let bytes = fill.min(usize::try_from(bytes).unwrap_or(usize::MAX));
            let elements = usize::try_from(credit.elements).unwrap_or(usize::MAX);
            let run = rest.take(elements, bytes);
            let count = run.len();
            self.send(channel, first, schema, &run);
            if count == rest.len() {
                break;
            }
            first += count as u64;
            rest = rest.skip(count);
        }
        self.enqueue(channel);
    }

    /// Size of records that fill a frame, in bytes.
    pub(super) fn records_fill(&self) -> usize {
        self.session
            .frame_fill()
            .saturating_sub(RECORDS_OVERHEAD_MAX)
    }

    /// Sends a run that fits into one frame, or one record that is larger.
    pub(super) fn send(&mut self, channel: Channel, first: u64, schema: u32, records: &Records) {
        let now = self.session.now;
        let room = self
            .session
            .frame_max()
            .saturating_sub(RECORDS_OVERHEAD_MAX);
        if records.byte_len() > room {
            return self.send_lost(channel, first, first + 1, LossReason::TooLarge);
        }
        let Some(open) = self
            .channels
            .get_mut(&channel)
            .and_then(|one| one.open.as_mut())
        else {
            return;
        };
        let (bytes, count) = (records.byte_len() as u64, records.len() as u64);
        let next = first + count;
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
        let message = Message::Records {
            place: open.place(channel),
            first,
            schema,
            behind: (open.last + 1).saturating_sub(next),
            records: records.clone(),
        };
        self.session.push(&message);
    }

    /// Reports numbers that never arrive.
    fn send_lost(&mut self, channel: Channel, from: u64, next: u64, reason: LossReason) {
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        open.next = next;
        open.sent_next = open.sent_next.max(next);
        open.last = open.last.max(next - 1);
        let place = open.place(channel);
        self.session.counters.lose(next - from);
        self.session.push(&Message::Lost {
            place,
            from,
            next,
            reason,
        });
    }

    pub(super) fn may_pace(&mut self) -> bool {
        let (now, in_flight) = (self.session.now, self.in_flight());
        // With nothing in flight no acknowledgement will arrive: no pacer may wait for one.
        let idle = in_flight.bytes == 0 && self.reads == 0;
        match self.pacer.next(now, in_flight) {
            Pace::Now => {
                self.pace_at = None;
                true
            }
            Pace::At(at) => {
                self.pace_at = Some(at.min(now + PERIOD_MAX));
                false
            }
            Pace::AfterAcknowledgement => idle,
        }
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

    /// The number after those that wait for more.
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
}

impl Lingering {
    fn byte_len(&self) -> usize {
        self.records.byte_len()
    }
}
