//! The inputs of the caller and of time: subscriptions, storage, acknowledgements.

use alloc::format;
use core::time::Duration;

use super::channel::{ChannelState, Phase};
use super::{Greeting, Receiver};
use crate::message::{Hello, Message};
use crate::planted::{self, Defect};
use crate::session::truncated;
use crate::{
    CHANNEL_NUMBERS_MAX, Channel, Code, Credit, DeadLetterReason, EARLIER_MAX, Failure, Fault,
    NAME_BYTES_MAX, Position, ReceiverEvent, RefusalReason, SERIALIZATION_BYTES_MAX, Start,
    Subscription,
};

/// Maximum number of entries of one acknowledgement; more are sent in another. They fit into the
/// smallest frame.
const ENTRIES_MAX: usize = 40;

/// Stored bytes after which a channel that catches up is acknowledged.
const BEHIND_BYTES: u64 = 8 * 1024;

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Receiver {
    // -- the handshake --

    pub(super) fn send_hello(&mut self) {
        let now = self.session.now;
        let config = &self.config;
        let hello = Hello {
            versions: config.session.versions,
            session: self.number,
            frame_bytes_max: config.session.frame_bytes_max as u64,
            window_bytes: config.window_bytes,
            acknowledge_ms: milliseconds(config.acknowledge_delay),
            dead_after_ms: milliseconds(config.session.dead_after),
        };
        self.phase = Greeting::Said;
        self.handshake_until = Some(now + config.session.handshake);
        self.session.push(&Message::Hello(hello));
    }

    // -- channels --

    pub(super) fn subscribe(&mut self, channel: Channel, subscription: Subscription) {
        let used = self.channels.contains_key(&channel) || self.ended.contains(channel);
        if channel.0 >= CHANNEL_NUMBERS_MAX || used {
            return self.fail_caller(format!("the number of {channel} was used, or is too large"));
        }
        if self.channels.len() >= self.config.channels_max {
            let limit = self.config.channels_max;
            return self.fail_caller(format!("{limit} channels are open, which is the limit"));
        }
        let name = subscription.stream.len();
        if name > NAME_BYTES_MAX || subscription.serialization.len() > SERIALIZATION_BYTES_MAX {
            return self.fail_caller(format!("{channel}: a name of {name} bytes is too long"));
        }
        let have = subscription.start.have();
        let mut given = subscription.earlier.iter().copied().chain(have);
        if given.any(|one| one.sequence >= u64::MAX - 1) || subscription.earlier.len() > EARLIER_MAX
        {
            let text = format!("{channel}: no stream has so many elements or epochs");
            return self.fail_caller(text);
        }
        let credit = subscription.credit.unwrap_or(self.config.credit);
        let credit = Credit {
            bytes: credit.bytes.max(1),
            elements: credit.elements.max(1),
        };
        let state = ChannelState::new(subscription, credit);
        self.channels.insert(channel, state);
        if self.version().is_some() {
            self.ask(channel);
        }
    }

    /// Asks for a channel.
    pub(super) fn ask(&mut self, channel: Channel) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let subscription = &state.subscription;
        let mut start = subscription.start;
        if let Start::After(position) = &mut start {
            position.sequence += u64::from(planted::is(Defect::ResumesTooFar));
        }
        state.phase = Phase::Asked;
        self.session.push(&Message::Subscribe {
            channel,
            start,
            earlier: subscription.earlier.clone(),
            level: subscription.level,
            credit: state.credit,
            serialization: &subscription.serialization,
            stream: &subscription.stream,
            known: subscription.known,
        });
    }

    pub(super) fn unsubscribe(&mut self, channel: Channel, reason: RefusalReason, text: &str) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        match state.phase {
            Phase::Leaving => {}
            Phase::Waiting => {
                self.remove(channel);
                self.session.event(ReceiverEvent::Unsubscribed { channel });
            }
            Phase::Asked | Phase::Open => {
                // New elements are unwanted; elements handed out before are the caller's
                // responsibility.
                let left = ChannelState::new(state.subscription.clone(), state.credit);
                self.held_bytes -= state.held_bytes();
                *state = left;
                state.phase = Phase::Leaving;
                let text = truncated(text);
                self.session.push(&Message::Unsubscribe {
                    channel,
                    reason,
                    text,
                });
                self.news.retain(|other| *other != channel);
            }
        }
    }

    /// Forgets a channel.
    pub(super) fn remove(&mut self, channel: Channel) {
        if let Some(state) = self.channels.remove(&channel) {
            self.held_bytes -= state.held_bytes();
            self.news.retain(|other| *other != channel);
        }
        self.ended.insert(channel);
    }

    // -- storage --

    fn open_state(&mut self, channel: Channel) -> Option<&mut ChannelState> {
        let state = self.channels.get_mut(&channel);
        let state = state.filter(|state| state.phase == Phase::Open);
        if state.is_none() {
            self.session.counters.answers_unused += 1;
        }
        state
    }

    pub(super) fn stored(&mut self, channel: Channel, position: Position) {
        let Some(state) = self.open_state(channel) else {
            return;
        };
        if position.epoch != state.epoch {
            // It belongs to an earlier stage, which is no longer acknowledged.
            let freed = state.store_residue(position);
            self.held_bytes -= freed;
            return;
        }
        if position.sequence > state.delivered {
            let delivered = state.position();
            let text =
                format!("{channel}: {position} is stored, the last handed out is {delivered}");
            return self.fail_caller(text);
        }
        let mut freed = state.store_residue(position);
        freed += state.store(position.sequence);
        self.held_bytes -= freed;
        self.note_stored(channel);
    }

    pub(super) fn refused(
        &mut self,
        channel: Channel,
        position: Position,
        reason: DeadLetterReason,
    ) {
        let Some(state) = self.open_state(channel) else {
            return;
        };
        if position.epoch != state.epoch {
            return;
        }
        if position.sequence > state.delivered {
            let delivered = state.position();
            let text =
                format!("{channel}: {position} is refused, the last handed out is {delivered}");
            return self.fail_caller(text);
        }
        if position.sequence <= state.stored || !state.refused_ahead.insert(position.sequence) {
            self.session.counters.answers_unused += 1;
            return;
        }
        state.refused += 1;
        let freed = state.store(0);
        self.held_bytes -= freed;
        self.session.counters.refused[reason.index()] += 1;
        self.note_stored(channel);
    }

    /// Something was stored: acknowledges it, now or a little later with more.
    fn note_stored(&mut self, channel: Channel) {
        let (elements, bytes) = (
            self.config.acknowledge_elements,
            self.config.acknowledge_bytes,
        );
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        let waiting = state.unacknowledged;
        // Channels that catch up wait for each acknowledgement; live ones do not.
        let bytes = if state.behind > 0 {
            bytes.min(BEHIND_BYTES)
        } else {
            bytes
        };
        let much = waiting.elements >= elements || waiting.bytes >= bytes;
        if much || (waiting.bytes > 0 && state.credit_runs_low()) {
            self.acknowledge_now = true;
        }
        self.needs_acknowledgement(channel);
    }

    // -- acknowledgements --

    /// Marks a channel for the next acknowledgement.
    pub(super) fn needs_acknowledgement(&mut self, channel: Channel) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if !state.news {
            state.news = true;
            self.news.push(channel);
        }
        if self.acknowledge_at.is_none() {
            self.acknowledge_at = Some(self.session.now + self.config.acknowledge_delay);
        }
    }

    /// Acknowledges everything of which there is news.
    pub(super) fn acknowledge(&mut self) {
        self.acknowledge_now = false;
        self.acknowledge_at = None;
        self.entries.clear();
        for channel in self.news.drain(..) {
            let Some(state) = self.channels.get_mut(&channel) else {
                continue;
            };
            state.news = false;
            if state.phase != Phase::Open {
                continue;
            }
            state.announced = state.limit();
            self.session.counters.acknowledged += state.unacknowledged.elements;
            state.unacknowledged = Credit {
                bytes: 0,
                elements: 0,
            };
            self.entries.push(state.entry(channel.0));
        }
        let limit = self.session.frame_fill();
        for entries in self.entries.chunks(ENTRIES_MAX) {
            self.session.counters.acknowledgements += 1;
            let writer = self.session.writer();
            let full = writer.push_acknowledge(entries, limit);
            self.session.transmit(full);
        }
    }

    // -- time --

    pub(super) fn run_timers(&mut self) {
        let now = self.session.now;
        if self.session.is_ended() {
            return;
        }
        self.session.timers();
        if self.handshake_until.is_some_and(|at| at <= now) {
            let text = "no answer to Hello arrived in time";
            let failure = Failure::new(Fault::Connection, Code::Handshake, text);
            self.session.fail(failure);
        }
        if self.session.is_ended() {
            return;
        }
        let due = self.acknowledge_at.is_some_and(|at| at <= now);
        if due || self.acknowledge_now {
            self.acknowledge();
        }
    }
}
