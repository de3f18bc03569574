//! The order in which channels send: live channels first, then those that catch up, each kind round
//! robin; and the deadlines.

use super::Sender;
use super::channel::{ChannelState, Queued, Reading};
use crate::{Channel, Code, Failure, Fault, SenderEvent};

impl Sender {
    /// Asks for as many records as there is room for.
    pub(super) fn pump(&mut self) {
        while self.reads < self.config.reads_max {
            if self.live.is_empty() && self.catch_up.is_empty() {
                return;
            }
            if !self.has_room() || !self.may_pace() {
                return;
            }
            let Some(channel) = self.next_channel() else {
                return;
            };
            self.read(channel);
        }
    }

    fn next_channel(&mut self) -> Option<Channel> {
        if let Some(channel) = self.live.pop_front() {
            return Some(channel);
        }
        let used = self.in_flight_catch_up + self.reserved_catch_up;
        let most = self.config.catch_up_bytes;
        if !worth_a_frame(used, most, self.records_fill() as u64) {
            return None;
        }
        self.catch_up.pop_front()
    }

    /// Whether the window over all channels has room.
    pub(super) fn has_room(&self) -> bool {
        let window = self.peer.map_or(0, |peer| peer.window_bytes);
        let used = self.in_flight.bytes + self.reserved;
        worth_a_frame(used, window, self.records_fill() as u64)
    }

    pub(super) fn room(&self) -> u64 {
        let window = self.peer.map_or(0, |peer| peer.window_bytes);
        window.saturating_sub(self.in_flight.bytes + self.reserved)
    }

    /// Puts a channel into its queue when it has something to send and may.
    pub(super) fn enqueue(&mut self, channel: Channel) {
        let fill = self.records_fill() as u64;
        let Some(ChannelState {
            credit,
            open: Some(open),
            ..
        }) = self.channels.get_mut(&channel)
        else {
            return;
        };
        let lag = open.lag();
        let catching_up = match open.catching_up {
            true => lag > self.config.live_lag / 10,
            false => lag > self.config.live_lag,
        };
        if catching_up != open.catching_up {
            open.catching_up = catching_up;
            let bytes = open.in_flight().bytes;
            let reserved = open.reading.map_or(0, |reading| reading.bytes);
            if catching_up {
                self.in_flight_catch_up += bytes;
                self.reserved_catch_up += reserved;
                open.lingering = None;
            } else {
                self.in_flight_catch_up -= bytes;
                self.reserved_catch_up -= reserved;
            }
        }
        if lag == 0 || open.queued != Queued::No || open.reading.is_some() || open.switch.is_some()
        {
            return;
        }
        if !open.has_credit(*credit, fill) {
            if !open.stalled {
                open.stalled = true;
                self.session.counters.stalls += 1;
                self.session.event(SenderEvent::Stalled { channel });
            }
            return;
        }
        if catching_up {
            open.queued = Queued::CatchUp;
            self.catch_up.push_back(channel);
        } else if self.config.linger.is_zero() {
            open.queued = Queued::Live;
            self.live.push_back(channel);
        } else {
            open.queued = Queued::Lingering;
            let until = self.session.now + self.config.linger;
            self.lingering.push_back((until, channel));
        }
    }

    /// Records that waited for more are sent with the next turn.
    pub(super) fn stop_lingering(&mut self, channel: Channel) {
        let Some(open) = self
            .channels
            .get_mut(&channel)
            .and_then(|one| one.open.as_mut())
        else {
            return;
        };
        if open.queued == Queued::Lingering {
            self.lingering.retain(|(_, queued)| *queued != channel);
            open.queued = Queued::Live;
            self.live.push_back(channel);
        }
    }

    /// Requests a channel's next records, or sends available ones.
    fn read(&mut self, channel: Channel) {
        let room = self.room();
        let fill = self.records_fill() as u64;
        let catching_up = self.in_flight_catch_up + self.reserved_catch_up;
        let catch_up_room = self.config.catch_up_bytes.saturating_sub(catching_up);
        let Some(ChannelState {
            credit,
            open: Some(open),
            ..
        }) = self.channels.get_mut(&channel)
        else {
            return;
        };
        open.queued = Queued::No;
        if open.lag() == 0 || open.reading.is_some() || open.switch.is_some() {
            return;
        }
        if !open.has_credit(*credit, fill) {
            return self.enqueue(channel);
        }
        if open.catching_up && !worth_a_frame(catching_up, self.config.catch_up_bytes, fill) {
            // It fell behind while it was in the other queue.
            open.queued = Queued::CatchUp;
            self.catch_up.push_back(channel);
            return;
        }
        let mut bytes = (open.acknowledged.bytes_limit - open.sent.bytes)
            .min(room)
            .min(fill);
        if open.catching_up {
            bytes = bytes.min(catch_up_room);
        }
        let bytes = bytes.max(1);
        let elements = open.acknowledged.elements_limit - open.sent.elements;
        if let Some(lingering) = open.lingering.take() {
            let (first, schema) = (lingering.first, lingering.schema);
            let records = lingering.records.finish();
            let fits = records.len() as u64 <= elements && records.byte_len() as u64 <= bytes;
            if fits && first == open.next {
                self.send(channel, first, schema, &records);
                return self.enqueue(channel);
            }
        }
        let reading = Reading {
            from: open.next,
            elements: elements.min(open.lag()),
            bytes,
            outdated: false,
        };
        open.reading = Some(reading);
        self.reads += 1;
        self.reserved += bytes;
        if open.catching_up {
            self.reserved_catch_up += bytes;
        }
        self.session.event(SenderEvent::Read {
            channel,
            from: reading.from,
            bytes,
            elements: reading.elements,
        });
    }

    /// A request to the caller is no longer open.
    pub(super) fn unreserve(&mut self, reading: Reading, catching_up: bool) {
        self.reads -= 1;
        self.reserved -= reading.bytes;
        if catching_up {
            self.reserved_catch_up -= reading.bytes;
        }
    }

    // -- time --

    pub(super) fn timers(&mut self) {
        let now = self.session.now;
        if self.session.is_ended() {
            return;
        }
        if self.peer.is_none() {
            if self.handshake_until <= now {
                let text = "no Hello arrived in time";
                let failure = Failure::new(Fault::Connection, Code::Handshake, text);
                self.session.fail(failure);
            }
            return;
        }
        self.session.timers();
        if self.session.is_ended() {
            return;
        }
        while let Some((_, channel)) = self.lingering.front().copied().filter(|(at, _)| *at <= now)
        {
            self.lingering.pop_front();
            if let Some(open) = self
                .channels
                .get_mut(&channel)
                .and_then(|one| one.open.as_mut())
            {
                open.queued = Queued::Live;
                self.live.push_back(channel);
            }
        }
        if self.pace_at.is_some_and(|at| at <= now) {
            self.pace_at = None;
        }
    }
}

/// Whether the rest of a window justifies a frame: a quarter of one, or of the window. Smaller
/// parts would cost a frame each. When nothing is in flight, any rest does.
fn worth_a_frame(used: u64, window: u64, fill: u64) -> bool {
    used == 0 || window.saturating_sub(used) >= (window.min(fill) / 4).max(1)
}
