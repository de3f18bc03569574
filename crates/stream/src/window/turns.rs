//! Turns of time that are evaluated as a whole.
//!
//! A turn is a whole multiple of the slide. Its elements wait here until it closes: on the source's
//! clock when the newest element is [`Timing::wait`](super::Timing::wait) after its end, on the node's
//! clock when the clock is. A turn without elements is passed over on the source's clock, and closes as
//! any other on the node's: silence is a value. Elements that come after their turn has closed are late.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Extent, Timing, Window, WindowClock, WindowLimits};
use crate::{Position, StreamElement, Timestamp};

/// Most turns of the node's clock that are evaluated at once, for example after the machine slept;
/// earlier ones are skipped and counted. One minute of turns of a second.
const TURNS_MAX: i64 = 60;

/// The elements of turns that are still open.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    length: i64,
    wait: i64,
    clock: WindowClock,
    pending: BTreeMap<(Timestamp, u64), (Arc<str>, Arc<StreamElement>)>,
    next: u64,
    bytes: usize,
    /// The newest time of an element.
    newest: Option<Timestamp>,
    /// The end of the last closed turn.
    closed: Option<i64>,
    /// The last element of that turn to arrive, on the source's clock: a window shorter than its turn
    /// may hold none of them, and a later run finds `closed` only by receiving one of them again.
    last_closed: Option<(Arc<str>, Position)>,
}

/// A turn that closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    /// Turns before it that were skipped.
    pub(super) skipped: u64,
}

impl Turns {
    /// Turns for a slide of time.
    pub(super) fn new(slide: Extent, timing: &Timing) -> Option<Self> {
        let Extent::Time(length) = slide else {
            return None;
        };
        let ns = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Some(Self {
            length: ns(length).max(1),
            wait: ns(timing.wait.unwrap_or_default()),
            clock: timing.clock,
            pending: BTreeMap::new(),
            next: 0,
            bytes: 0,
            newest: None,
            closed: None,
            last_closed: None,
        })
    }

    /// Whether the turn of this time has closed.
    pub(super) fn is_late(&self, time: Timestamp) -> bool {
        self.closed.is_some_and(|closed| time.0 < closed)
    }

    /// Whether the next turn's window, of this extent, reaches back to a late element.
    pub(super) fn reaches(&self, time: Timestamp, window: &Window, extent: Extent) -> bool {
        match (extent, self.closed) {
            (Extent::Time(length), Some(closed)) => {
                let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
                let end = closed.saturating_add(self.length);
                time.0 >= end.saturating_sub(length) && window.reaches(time)
            }
            _ => window.reaches(time),
        }
    }

    /// Holds an element until its turn closes; returns the number of elements dropped at a limit.
    pub(super) fn hold(
        &mut self,
        time: Timestamp,
        (stream, element): (Arc<str>, Arc<StreamElement>),
        limits: &WindowLimits,
    ) -> u64 {
        self.newest = self.newest.max(Some(time));
        self.bytes += element.size_bytes();
        self.pending.insert((time, self.next), (stream, element));
        self.next += 1;
        let mut dropped = 0;
        while self.pending.len() > limits.elements || self.bytes > limits.bytes {
            let Some((_, (_, element))) = self.pending.pop_first() else {
                break;
            };
            self.bytes -= element.size_bytes();
            dropped += 1;
        }
        dropped
    }

    /// Closes the next turn that ends by the clock: `now` on the node's clock, the newest element's time
    /// on the source's. Its elements enter `window`.
    pub(super) fn close(&mut self, now: Timestamp, window: &mut Window) -> Option<Closed> {
        let time = match self.clock {
            WindowClock::Source => self.newest?,
            WindowClock::Node => now,
        };
        self.close_until(time.0.saturating_sub(self.wait), window)
    }

    /// Closes the next turn that has elements, for a source that fell silent.
    pub(super) fn close_silent(&mut self, window: &mut Window) -> Option<Closed> {
        self.close_until(i64::MAX, window)
    }

    fn close_until(&mut self, time: i64, window: &mut Window) -> Option<Closed> {
        let first = self.pending.first_key_value().map(|((time, _), _)| time.0);
        let first = first.map(|time| self.end_of(time));
        let mut skipped = 0;
        let end = match (self.clock, self.closed) {
            (WindowClock::Source, _) | (_, None) if first.is_some() => first?,
            (WindowClock::Source, _) => return None,
            (WindowClock::Node, None) => {
                self.closed = Some(self.end_of(time).saturating_sub(self.length));
                return None;
            }
            (WindowClock::Node, Some(closed)) => {
                let next = closed.saturating_add(self.length);
                let turns = time.saturating_sub(next) / self.length;
                let kept = turns.min(TURNS_MAX - 1) * self.length;
                let end = self.end_of(time.saturating_sub(kept)) - self.length;
                let end = first.map_or(end, |first| end.min(first)).max(next);
                skipped = (end - next) / self.length;
                end
            }
        };
        if end > time || self.closed.is_some_and(|closed| end <= closed) {
            return None;
        }
        let later = self.pending.split_off(&(Timestamp(end), 0));
        let ending = std::mem::replace(&mut self.pending, later);
        if self.clock == WindowClock::Source {
            let last = ending.iter().max_by_key(|((_, number), _)| *number);
            self.last_closed = last.map(|(_, (stream, it))| (stream.clone(), it.position));
        }
        for (_, (stream, element)) in ending {
            self.bytes -= element.size_bytes();
            // Refusals are counted by the window.
            let _ = window.push(stream, element);
        }
        window.advance(Timestamp(end - 1));
        self.closed = Some(end);
        Some(Closed {
            skipped: u64::try_from(skipped).unwrap_or(0),
        })
    }

    /// The end of the turn of a time.
    fn end_of(&self, time: i64) -> i64 {
        let turn = time.div_euclid(self.length).saturating_add(1);
        turn.saturating_mul(self.length)
    }

    /// The end of the last closed turn.
    pub(super) fn closed(&self) -> Option<Timestamp> {
        self.closed.map(Timestamp)
    }

    /// The element by which a later run finds the end of the last closed turn.
    pub(super) fn last_closed(&self) -> Option<(&str, Position)> {
        let last = self.last_closed.as_ref();
        last.map(|(stream, position)| (&**stream, *position))
    }

    /// Forgets the time, and with `all` the elements too.
    pub(super) fn reset(&mut self, all: bool) {
        (self.closed, self.last_closed) = (None, None);
        if all {
            self.pending.clear();
            (self.bytes, self.newest) = (0, None);
        }
    }

    /// Starts again when the node's clock was set back by more than a turn.
    pub(super) fn follow_clock(&mut self, now: Timestamp) {
        let later = now.0.saturating_add(2 * self.length.min(i64::MAX / 2));
        if self.clock == WindowClock::Node && self.closed.is_some_and(|closed| closed > later) {
            self.reset(true);
        }
    }

    pub(super) fn has(&self, time: Timestamp, of: &str) -> bool {
        let mut equal = self.pending.range((time, 0)..=(time, u64::MAX));
        equal.any(|(_, (stream, _))| &**stream == of)
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<StreamElement>)> {
        self.pending
            .values()
            .map(|(stream, element)| (stream, element))
    }

    /// Elements and bytes that wait.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.pending.len(), self.bytes)
    }

    pub(super) fn remove_stream(&mut self, of: &str) {
        self.pending.retain(|_, (stream, _)| &**stream != of);
        let bytes = self
            .pending
            .values()
            .map(|(_, element)| element.size_bytes());
        self.bytes = bytes.sum();
    }

    pub(super) fn change(&mut self, change: impl Fn(&mut StreamElement)) {
        for (_, element) in self.pending.values_mut() {
            change(Arc::make_mut(element));
        }
        let bytes = self
            .pending
            .values()
            .map(|(_, element)| element.size_bytes());
        self.bytes = bytes.sum();
    }
}
