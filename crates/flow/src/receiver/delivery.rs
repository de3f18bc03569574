//! Elements, into order: each is handed out once, or named as lost.

use alloc::format;
use alloc::string::String;

use super::channel::{Ahead, ChannelState, Phase, Run};
use super::{Receiver, Timer};
use crate::message::Place;
use crate::planted::{self, Defect};
use crate::{AHEAD_RUNS_MAX, Channel, Code, Failure, LossReason, Position, ReceiverEvent, Records};

impl Receiver {
    pub(super) fn records(
        &mut self,
        place: &Place,
        first: u64,
        schema: u32,
        behind: u64,
        records: &Records,
    ) {
        let channel = place.channel;
        let count = records.len() as u64;
        if !self.in_place(place, first) {
            return;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if schema as usize >= state.schemas.len() {
            // The schema was lost or overtaken; both are sent again.
            self.session.counters.stale += 1;
            return self.has_news(channel);
        }
        let expected = state.delivered + 1;
        let next = first + count;
        if next <= expected {
            self.session.counters.duplicates += count;
            if planted::is(Defect::HandsOutTwice) {
                self.session.event(ReceiverEvent::Store {
                    channel,
                    epoch: place.epoch,
                    first,
                    schema_version: schema,
                    records: records.clone(),
                    behind,
                });
            }
            // Perhaps the acknowledgement was lost.
            return self.has_news(channel);
        }
        if first > expected {
            let records = records.clone();
            let ahead = Ahead::Records {
                schema,
                behind,
                records,
            };
            return self.hold(channel, first, ahead);
        }
        let skipped = expected - first;
        self.session.counters.duplicates += skipped;
        if skipped > 0 {
            let rest = records.skip(usize::try_from(skipped).unwrap_or(usize::MAX));
            self.hand_out(channel, schema, behind, rest);
        } else {
            self.hand_out(channel, schema, behind, records.clone());
        }
        self.fill_from_ahead(channel);
    }

    pub(super) fn lost(&mut self, place: &Place, from: u64, next: u64, reason: LossReason) {
        let channel = place.channel;
        if !self.in_place(place, from) {
            return;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let expected = state.delivered + 1;
        if next <= expected {
            self.session.counters.stale += 1;
            return self.has_news(channel);
        }
        if from > expected {
            return self.hold(channel, from, Ahead::Lost { next, reason });
        }
        self.lose(channel, next, reason);
        self.fill_from_ahead(channel);
    }

    /// Whether elements belong where the channel is; begins the stage that they begin.
    pub(super) fn in_place(&mut self, place: &Place, first: u64) -> bool {
        let channel = place.channel;
        if self.known(channel, "Records") != Some(Phase::Open) {
            return false;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        let present = state.stage.number;
        if place.stage.number < present {
            self.session.counters.stale += 1;
            return false;
        }
        let result = if place.stage.number == present {
            let same = place.epoch == state.epoch && place.stage == state.stage;
            let what = "the epoch, or the beginning, of a stage changes";
            if same { Ok(()) } else { Err(what) }
        } else if place.stage.number == present + 1 && first >= place.stage.first {
            self.begin_stage(place)
        } else {
            Err("a stage is skipped, or begins before it begins")
        };
        if let Err(what) = result {
            let text = format!("{channel}: {what}");
            self.session.fail(Failure::peer(Code::Contradiction, text));
        }
        result.is_ok()
    }

    /// The origin begins a stage: what it sent before is stored here, or does not exist any more.
    fn begin_stage(&mut self, place: &Place) -> Result<(), &'static str> {
        let channel = place.channel;
        let Some(state) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        let have = state.position();
        let (first, kept) = (place.stage.first, place.stage.kept);
        if first <= have.sequence && place.epoch == have.epoch {
            return Err("the origin went back without a new epoch");
        }
        let unstored = state.residue.iter().chain(&state.unstored);
        if place.epoch != have.epoch && unstored.into_iter().any(|run| run.epoch == place.epoch) {
            return Err("an epoch comes back");
        }
        self.held_bytes -= state.ahead_bytes;
        state.begin_stage(place.stage, place.epoch, first);
        self.timers.cancel(&Timer::Hole(channel));
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
        self.has_news(channel);
        Ok(())
    }

    /// Hands out what comes next.
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
        self.has_news(channel);
    }

    /// What an honest origin never exceeds: a window and one record beyond it, once more for what
    /// stages that were left have handed out.
    pub(super) fn held_bytes_max(&self) -> u64 {
        let frame = self.config.session.frame_bytes_max as u64;
        self.config
            .window_bytes
            .saturating_add(frame)
            .saturating_mul(2)
    }

    /// Names what never comes.
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
        // Behind what is all stored it counts as stored at once.
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
        self.has_news(channel);
    }

    /// Keeps what came before its turn, if there is room, and waits for what is missing.
    fn hold(&mut self, channel: Channel, first: u64, ahead: Ahead) {
        let window = self.config.window_bytes;
        let (bytes, count) = match &ahead {
            Ahead::Records { records, .. } => (records.byte_len() as u64, records.len() as u64),
            Ahead::Lost { .. } => (0, 0),
        };
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let known = state.ahead.get(&first).map(Ahead::count);
        if known.is_some_and(|known| known >= count) {
            self.session.counters.duplicates += count;
        } else if state.ahead.len() >= AHEAD_RUNS_MAX
            || state.unstored_bytes() + state.ahead_bytes + bytes > state.credit.bytes
            || self.held_bytes + bytes > window
        {
            self.session.counters.dropped_ahead += count;
        } else {
            self.held_bytes += bytes;
            state.ahead_bytes += bytes;
            if let Some(Ahead::Records { records, .. }) = state.ahead.insert(first, ahead) {
                let less = records.byte_len() as u64;
                self.held_bytes -= less;
                state.ahead_bytes -= less;
                self.session.counters.duplicates += records.len() as u64;
            }
        }
        if !state.hole && !state.ahead.is_empty() {
            state.hole = true;
            let at = self.session.now + self.config.reorder;
            self.timers.set(Timer::Hole(channel), at);
        }
        self.has_news(channel);
    }

    /// Hands out what was held because something before it was missing.
    fn fill_from_ahead(&mut self, channel: Channel) {
        while !self.session.is_ended() {
            let Some(state) = self.channels.get_mut(&channel) else {
                return;
            };
            let expected = state.delivered + 1;
            let Some(entry) = state
                .ahead
                .first_entry()
                .filter(|one| *one.key() <= expected)
            else {
                break;
            };
            let (first, ahead) = entry.remove_entry();
            let skipped = expected - first;
            match ahead {
                Ahead::Records {
                    schema,
                    behind,
                    records,
                } => {
                    let bytes = records.byte_len() as u64;
                    state.ahead_bytes -= bytes;
                    self.held_bytes -= bytes;
                    let again = skipped.min(records.len() as u64);
                    self.session.counters.duplicates += again;
                    let rest = records.skip(usize::try_from(again).unwrap_or(usize::MAX));
                    if !rest.is_empty() {
                        self.hand_out(channel, schema, behind, rest);
                    }
                }
                Ahead::Lost { next, reason } if next > expected => {
                    self.lose(channel, next, reason);
                }
                Ahead::Lost { .. } => {}
            }
        }
        let state = self.channels.get_mut(&channel);
        if let Some(state) = state.filter(|state| state.hole && state.ahead.is_empty()) {
            state.hole = false;
            self.timers.cancel(&Timer::Hole(channel));
        }
    }
}

/// Whether the origin had no right to send more.
fn exceeded(state: &ChannelState, window: u64, held: (u64, u64)) -> Option<String> {
    let limit = state.limit();
    let sent = state.handed_out;
    if sent.bytes >= limit.bytes || sent.elements >= limit.elements {
        return Some(format!(
            "{} elements of {} bytes were sent, the credit is {} of {}",
            sent.elements, sent.bytes, limit.elements, limit.bytes
        ));
    }
    // What was left behind by stages counts too, but not against an honest origin.
    if state.unstored_bytes() >= window || held.0 >= held.1 {
        return Some(format!(
            "{} bytes are not stored, the window is {window}",
            held.0
        ));
    }
    None
}

impl Ahead {
    fn count(&self) -> u64 {
        match self {
            Self::Records { records, .. } => records.len() as u64,
            Self::Lost { .. } => u64::MAX,
        }
    }
}
