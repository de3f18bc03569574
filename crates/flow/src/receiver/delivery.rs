//! Elements: each is handed out once, in order, or named as lost.

use alloc::format;
use alloc::string::String;

use super::Receiver;
use super::channel::{ChannelState, Run};
use crate::message::Place;
use crate::planted::{self, Defect};
use crate::{Channel, Code, Failure, LossReason, Position, ReceiverEvent, Records};

impl Receiver {
    pub(super) fn records(
        &mut self,
        place: &Place,
        first: u64,
        schema: u32,
        behind: u64,
        records: &Records,
    ) {
        if !self.in_place(place, first) || !self.is_next(place.channel, first) {
            return;
        }
        let state = self.channels.get(&place.channel);
        if state.is_none_or(|state| schema as usize >= state.schemas.len()) {
            let text = format!("{}: schema {schema} was never sent", place.channel);
            return self.session.fail(Failure::peer(Code::Contradiction, text));
        }
        self.hand_out(place.channel, schema, behind, records.clone());
    }

    pub(super) fn lost(&mut self, place: &Place, from: u64, next: u64, reason: LossReason) {
        if self.in_place(place, from) && self.is_next(place.channel, from) {
            self.lose(place.channel, next, reason);
        }
    }

    /// Whether a number follows the last one of the channel; if not, the session has failed.
    fn is_next(&mut self, channel: Channel, number: u64) -> bool {
        let expected = self.channels.get(&channel).map(|state| state.delivered + 1);
        if planted::is(Defect::IgnoresEpoch) && expected > Some(number) {
            return false;
        }
        if expected == Some(number) {
            return true;
        }
        let expected = expected.unwrap_or_default();
        let text = format!("{channel}: number {number} arrives, {expected} is next");
        self.session.fail(Failure::peer(Code::Contradiction, text));
        false
    }

    /// Whether elements belong to the stage of their channel, or start the next.
    pub(super) fn in_place(&mut self, place: &Place, first: u64) -> bool {
        let channel = place.channel;
        if !self.is_open(channel, "Records") {
            return false;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        let present = state.stage.number;
        let result = if place.stage.number == present {
            let same = place.epoch == state.epoch && place.stage == state.stage;
            let what = "the epoch, or the beginning, of a stage changes";
            if same { Ok(()) } else { Err(what) }
        } else if place.stage.number == present + 1 && first >= place.stage.first {
            self.begin_stage(place)
        } else {
            Err("a stage comes out of order, or begins before it begins")
        };
        if let Err(what) = result {
            let text = format!("{channel}: {what}");
            self.session.fail(Failure::peer(Code::Contradiction, text));
        }
        result.is_ok()
    }

    /// The origin starts a stage: everything sent before is stored here, or no longer exists.
    fn begin_stage(&mut self, place: &Place) -> Result<(), &'static str> {
        let channel = place.channel;
        let Some(state) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        let have = state.position();
        let (first, kept) = (place.stage.first, place.stage.kept);
        if first <= have.sequence && place.epoch == have.epoch {
            return Err("the origin was rolled back without a new epoch");
        }
        let unstored = state.residue.iter().chain(&state.unstored);
        if place.epoch != have.epoch && unstored.into_iter().any(|run| run.epoch == place.epoch) {
            return Err("an epoch is repeated");
        }
        state.begin_stage(place.stage, place.epoch, first);
        if first <= have.sequence {
            self.session.counters.rollbacks += 1;
            self.session.event(ReceiverEvent::Rollback {
                channel,
                have,
                kept: (kept > 0).then_some(Position {
                    epoch: have.epoch,
                    sequence: kept,
                }),
                next: Position {
                    epoch: place.epoch,
                    sequence: first,
                },
            });
        } else if first > have.sequence + 1 {
            self.session.counters.lose(first - have.sequence - 1);
            self.session.event(ReceiverEvent::Lost {
                channel,
                epoch: have.epoch,
                from: have.sequence + 1,
                next: first,
                reason: LossReason::Skipped,
            });
        }
        self.needs_acknowledgement(channel);
        Ok(())
    }

    /// Hands out the next elements.
    fn hand_out(&mut self, channel: Channel, schema: u32, behind: u64, records: Records) {
        let (bytes, elements) = (records.byte_len() as u64, records.len() as u64);
        let window = self.config.window_bytes;
        let held = (self.held_bytes, self.held_bytes_max());
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if let Some(text) = exceeded(state, window, held) {
            let text = format!("{channel}: {text}");
            self.session.fail(Failure::peer(Code::CreditExceeded, text));
            return;
        }
        let first = state.delivered + 1;
        let next = first + elements;
        state.delivered = next - 1;
        state.behind = behind;
        state.handed_out.bytes += bytes;
        state.handed_out.elements += elements;
        state.unstored.push_back(Run {
            epoch: state.epoch,
            next,
            elements,
            bytes,
        });
        self.held_bytes += bytes;
        self.session.counters.elements += elements;
        let version = state.schemas.get(schema as usize).copied();
        self.session.event(ReceiverEvent::Store {
            channel,
            epoch: state.epoch,
            first,
            schema_version: version.unwrap_or_default(),
            records,
            behind,
        });
        self.needs_acknowledgement(channel);
    }

    /// The maximum that an honest origin never exceeds: a window and one record beyond it, and once
    /// more for elements of previous stages.
    pub(super) fn held_bytes_max(&self) -> u64 {
        let frame = self.config.session.frame_bytes_max as u64;
        self.config
            .window_bytes
            .saturating_add(frame)
            .saturating_mul(2)
    }

    /// Reports numbers that never arrive.
    fn lose(&mut self, channel: Channel, next: u64, reason: LossReason) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let from = state.delivered + 1;
        state.delivered = next - 1;
        state.unstored.push_back(Run {
            epoch: state.epoch,
            next,
            elements: 0,
            bytes: 0,
        });
        let epoch = state.epoch;
        // If everything before is stored, it counts as stored at once.
        state.store(0);
        self.session.counters.lose(next - from);
        if !planted::is(Defect::HidesGaps) {
            self.session.event(ReceiverEvent::Lost {
                channel,
                epoch,
                from,
                next,
                reason,
            });
        }
        self.needs_acknowledgement(channel);
    }
}

/// Whether the origin exceeded its credit.
fn exceeded(state: &ChannelState, window: u64, held: (u64, u64)) -> Option<String> {
    let limit = state.limit();
    let sent = state.handed_out;
    if sent.bytes >= limit.bytes || sent.elements >= limit.elements {
        return Some(format!(
            "{} elements of {} bytes were sent, the credit is {} of {}",
            sent.elements, sent.bytes, limit.elements, limit.bytes
        ));
    }
    // Elements of earlier stages count too, but not against an honest origin.
    if state.unstored_bytes() >= window || held.0 >= held.1 {
        return Some(format!(
            "{} bytes are not stored, the window is {window}",
            held.0
        ));
    }
    None
}
