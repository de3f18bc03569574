//! The windows of one source: one for all its elements, or one for each key.
//!
//! Windows by key are bounded together: by the number of keys, and by the elements and bytes of a single
//! window. At a limit the key that was used least recently is dropped with its window, and counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::turns::Turns;
use super::{
    Extent, LatePolicy, Refusal, Slide, Timing, Window, WindowClock, WindowCounters, WindowLimits,
};
use crate::{PlannedQuery, Position, StreamElement, Timestamp};

/// Arrivals of a key are numbered from its own multiple of this, so that no two of a source are equal.
const NUMBERS_A_KEY: u64 = 1 << 36;
/// Keys that are numbered before numbers are used again.
const KEYS_NUMBERED: u64 = 1 << 26;

/// What a window is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowShape {
    pub(crate) extent: Extent,
    pub(crate) slide: Extent,
    pub(crate) first: usize,
    pub(crate) late: LatePolicy,
    pub(crate) timing: Timing,
}

/// A window with its slide.
#[derive(Debug)]
pub(crate) struct Part {
    shape: WindowShape,
    limits: WindowLimits,
    pub(crate) window: Window,
    pub(crate) slide: Slide,
    turns: Option<Turns>,
    late_in_a_row: u32,
    /// The number from which its arrivals are numbered.
    pub(crate) numbered_from: u64,
    /// What the window does not count itself.
    counters: WindowCounters,
    /// The compiled statement over this key's window.
    pub(crate) query: Option<Box<PlannedQuery>>,
    /// When it was used, on the clock of its source's keys.
    used: u64,
}

/// The windows of a source.
#[derive(Debug)]
pub(crate) struct Parts {
    shape: WindowShape,
    limits: WindowLimits,
    whole: Part,
    keyed: Option<Keyed>,
}

#[derive(Debug)]
struct Keyed {
    parts: HashMap<Arc<str>, Part>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    made: u64,
    keys_max: usize,
    /// Elements and bytes of all.
    size: (usize, usize),
    /// Counters of dropped windows.
    dropped: WindowCounters,
}

impl WindowShape {
    /// Whether turns are evaluated as a whole.
    pub(crate) fn has_turns(&self) -> bool {
        let is_of_time = matches!(self.slide, Extent::Time(_));
        is_of_time && (self.timing.clock == WindowClock::Node || self.timing.wait.is_some())
    }
}

impl Part {
    fn new(shape: WindowShape, limits: WindowLimits, first: u64) -> Self {
        let window = Window::new(shape.extent, shape.late, limits).timed(&shape.timing);
        Self {
            shape,
            limits,
            window: window.numbered_from(first),
            numbered_from: first,
            slide: Slide::new(shape.slide).first_at(shape.first),
            turns: Turns::new(shape.slide, &shape.timing).filter(|_| shape.has_turns()),
            late_in_a_row: 0,
            counters: WindowCounters::default(),
            query: None,
            used: 0,
        }
    }

    /// Adds an element; returns whether an evaluation is due now.
    pub(crate) fn push(
        &mut self,
        stream: Arc<str>,
        element: Arc<StreamElement>,
    ) -> Result<bool, Refusal> {
        let Some(turns) = &mut self.turns else {
            self.window.push(stream, element)?;
            let newest = self.window.newest().unwrap_or_default();
            return Ok(self.slide.is_due(newest));
        };
        let time = self.shape.timing.clock.time_of(&element);
        if self.shape.timing.unique_times && turns.has(time, &stream) {
            self.counters.equal_times += 1;
            return Err(Refusal::EqualTime);
        }
        if turns.is_late(time) {
            let is_inserted = self.shape.late == LatePolicy::Insert
                && turns.reaches(time, &self.window, self.shape.extent);
            if is_inserted {
                self.late_in_a_row = 0;
                return self.window.push(stream, element).map(|()| false);
            }
            self.late_in_a_row += 1;
            let is_reset = self.shape.timing.clock == WindowClock::Source
                && self.late_in_a_row >= self.limits.late_in_a_row;
            if !is_reset {
                self.counters.late_dropped += 1;
                return Err(Refusal::Late);
            }
            self.counters.resets += 1;
            self.window.clear();
            turns.reset(true);
        }
        self.late_in_a_row = 0;
        self.counters.over_elements += turns.hold(time, (stream, element), &self.limits);
        Ok(false)
    }

    fn close_turn(&mut self, now: Timestamp) -> bool {
        let window = &mut self.window;
        let closed = self
            .turns
            .as_mut()
            .and_then(|turns| turns.close(now, window));
        self.counters.turns_skipped += closed.map_or(0, |closed| closed.skipped);
        closed.is_some()
    }

    fn end_silent_turn(&mut self) -> bool {
        if let Some(turns) = &mut self.turns {
            return turns.close_silent(&mut self.window).is_some();
        }
        let is_due = self.slide.is_pending();
        if is_due {
            self.slide
                .mark_evaluated(self.window.newest().unwrap_or_default());
        }
        is_due
    }

    /// Whether elements wait for an evaluation.
    pub(crate) fn is_pending(&self) -> bool {
        match &self.turns {
            Some(turns) => turns.size().0 > 0,
            None => self.slide.is_pending(),
        }
    }

    /// The time of an evaluation: the end of the turn, or the newest time.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let closed = self.turns.as_ref().and_then(Turns::closed);
        closed.or(self.window.newest())
    }

    /// The node's clock was set.
    pub(crate) fn follow_clock(&mut self, now: Timestamp) {
        if let Some(turns) = &mut self.turns {
            turns.follow_clock(now);
        }
    }

    /// Forgets since when turns are counted, with `all` its waiting elements too.
    pub(crate) fn reset_turns(&mut self, all: bool) {
        if let Some(turns) = &mut self.turns {
            turns.reset(all);
        }
        if all {
            self.slide = Slide::new(self.shape.slide).first_at(self.shape.first);
        }
    }

    fn counters(&self) -> WindowCounters {
        let mut counters = self.counters;
        counters += self.window.counters();
        counters
    }

    fn set_counters(&mut self, counters: WindowCounters) {
        self.counters = WindowCounters::default();
        self.window.set_counters(counters);
    }

    fn size(&self) -> (usize, usize) {
        let (elements, bytes) = self.turns.as_ref().map_or((0, 0), Turns::size);
        (elements + self.window.len(), bytes + self.window.bytes())
    }

    fn remove_stream(&mut self, stream: &str) {
        self.window.remove_stream(stream);
        if let Some(turns) = &mut self.turns {
            turns.remove_stream(stream);
        }
    }

    /// The first element of `stream` that it holds, or by which it knows its last closed turn.
    fn first_of(&self, stream: &str) -> Option<Position> {
        let waiting = self.turns.iter().flat_map(Turns::elements);
        let held = self.window.elements();
        let all = held
            .map(|arrival| (&arrival.stream, &arrival.element))
            .chain(waiting);
        let of_stream = all.filter(|(of, _)| &***of == stream);
        let positions = of_stream.map(|(_, element)| element.position);
        let closed = self.turns.as_ref().and_then(Turns::last_closed);
        let closed = closed.filter(|(of, _)| *of == stream);
        let positions = positions.chain(closed.map(|(_, position)| position));
        positions.min_by_key(|position| position.sequence)
    }
}

impl Parts {
    /// Windows by key, of at most `keys` keys; or one window.
    pub(crate) fn new(shape: WindowShape, keys: Option<usize>, limits: WindowLimits) -> Self {
        Self {
            shape,
            limits,
            whole: Part::new(shape, limits, 0),
            keyed: keys.map(|keys_max| Keyed {
                parts: HashMap::new(),
                by_use: BTreeMap::new(),
                uses: 0,
                made: 0,
                keys_max,
                size: (0, 0),
                dropped: WindowCounters::default(),
            }),
        }
    }

    /// Whether there is a window for each key.
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed.is_some()
    }

    pub(crate) fn shape(&self) -> &WindowShape {
        &self.shape
    }

    /// The window of a key, if it is known. Without keys, the one window.
    pub(crate) fn get(&self, key: &str) -> Option<&Part> {
        match &self.keyed {
            None => Some(&self.whole),
            Some(keyed) => keyed.parts.get(key),
        }
    }

    /// The window of a key, if it is known. Without keys, the one window.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Part> {
        match &mut self.keyed {
            None => Some(&mut self.whole),
            Some(keyed) => keyed.parts.get_mut(key),
        }
    }

    /// Adds an element to the window of its key; returns whether an evaluation is due now.
    #[inline]
    pub(crate) fn push(
        &mut self,
        key: &Arc<str>,
        stream: Arc<str>,
        element: Arc<StreamElement>,
    ) -> Result<bool, Refusal> {
        match &mut self.keyed {
            None => self.whole.push(stream, element),
            Some(keyed) => keyed.push(self.shape, self.limits, key, stream, element),
        }
    }

    /// Closes the next turn of a key that has ended; returns whether there was one, which is to be
    /// evaluated.
    pub(crate) fn close_turn(&mut self, key: &str, now: Timestamp) -> bool {
        self.resizing(key, |part| part.close_turn(now))
    }

    /// Ends the current turn of a key's source that fell silent; returns whether an evaluation is due.
    pub(crate) fn end_silent_turn(&mut self, key: &str) -> bool {
        self.resizing(key, Part::end_silent_turn)
    }

    fn resizing(&mut self, key: &str, change: impl FnOnce(&mut Part) -> bool) -> bool {
        let Some(keyed) = &mut self.keyed else {
            return change(&mut self.whole);
        };
        let Some(part) = keyed.parts.get_mut(key) else {
            return false;
        };
        let before = part.size();
        let changed = change(part);
        let after = part.size();
        keyed.resize(before, after);
        changed
    }

    /// The keys; without keys, one that stands for all.
    pub(crate) fn keys(&self) -> Vec<Arc<str>> {
        match &self.keyed {
            None => vec!["".into()],
            Some(keyed) => keyed.by_use.values().cloned().collect(),
        }
    }

    /// Each window.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let keyed = self
            .keyed
            .iter_mut()
            .flat_map(|keyed| keyed.parts.values_mut());
        std::iter::once(&mut self.whole).chain(keyed)
    }

    fn all(&self) -> impl Iterator<Item = &Part> {
        let keyed = self.keyed.iter().flat_map(|keyed| keyed.parts.values());
        std::iter::once(&self.whole).chain(keyed)
    }

    /// The compiled statement of each key.
    pub(crate) fn queries(&self) -> impl Iterator<Item = &PlannedQuery> {
        self.all().filter_map(|part| part.query.as_deref())
    }

    /// Elements in all windows.
    pub(crate) fn len(&self) -> usize {
        self.all().map(|part| part.size().0).sum()
    }

    /// Counters of all windows, also of those that were dropped.
    pub(crate) fn counters(&self) -> WindowCounters {
        let mut sum = WindowCounters::default();
        self.all().for_each(|part| sum += part.counters());
        if let Some(keyed) = &self.keyed {
            sum += keyed.dropped;
        }
        sum
    }

    /// Counts an element that is too far ahead.
    pub(crate) fn count_early(&mut self) {
        self.whole.counters.early_dropped += 1;
    }

    /// Calls `fill`, and keeps the counters of before.
    pub(crate) fn uncounted(&mut self, fill: impl FnOnce(&mut Self)) {
        let before = self.counters();
        fill(self);
        self.all_mut()
            .for_each(|part| part.set_counters(WindowCounters::default()));
        if let Some(keyed) = &mut self.keyed {
            keyed.dropped = WindowCounters::default();
        }
        self.whole.set_counters(before);
    }

    /// Removes the elements of a stream.
    pub(crate) fn remove_stream(&mut self, stream: &str) {
        self.all_mut().for_each(|part| part.remove_stream(stream));
        self.recount();
    }

    /// Changes the shape of all elements.
    pub(crate) fn reshape(&mut self, from: &crate::StreamSchema, to: &crate::StreamSchema) {
        for part in self.all_mut() {
            part.window.reshape(from, to);
            if let Some(turns) = &mut part.turns
                && from.fields != to.fields
            {
                turns.change(|element| {
                    element.values = to.project(from, std::mem::take(&mut element.values));
                });
            }
        }
        self.recount();
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.whole.window.clear();
        self.whole.reset_turns(true);
        if let Some(keyed) = &mut self.keyed {
            for (_, part) in keyed.parts.drain() {
                keyed.dropped += part.counters();
            }
            keyed.by_use.clear();
            keyed.size = (0, 0);
        }
    }

    /// The first element of `stream` that a window needs.
    pub(crate) fn first_of(&self, stream: &str) -> Option<Position> {
        let firsts = self.all().filter_map(|part| part.first_of(stream));
        firsts.min_by_key(|position| position.sequence)
    }

    fn recount(&mut self) {
        let Some(keyed) = &mut self.keyed else { return };
        keyed.size = (0, 0);
        for part in keyed.parts.values() {
            let (elements, bytes) = part.size();
            keyed.size = (keyed.size.0 + elements, keyed.size.1 + bytes);
        }
    }
}

impl Keyed {
    fn push(
        &mut self,
        shape: WindowShape,
        limits: WindowLimits,
        key: &Arc<str>,
        stream: Arc<str>,
        element: Arc<StreamElement>,
    ) -> Result<bool, Refusal> {
        self.uses += 1;
        let made = &mut self.made;
        let part = self.parts.entry(key.clone()).or_insert_with(|| {
            *made += 1;
            Part::new(shape, limits, (*made % KEYS_NUMBERED) * NUMBERS_A_KEY)
        });
        self.by_use.remove(&part.used);
        part.used = self.uses;
        self.by_use.insert(part.used, key.clone());
        let before = part.size();
        let pushed = part.push(stream, element);
        let after = part.size();
        self.resize(before, after);
        while self.parts.len() > 1
            && (self.parts.len() > self.keys_max
                || self.size.0 > limits.elements
                || self.size.1 > limits.bytes)
        {
            self.drop_oldest();
        }
        pushed
    }

    fn resize(&mut self, before: (usize, usize), after: (usize, usize)) {
        self.size.0 = (self.size.0 + after.0).saturating_sub(before.0);
        self.size.1 = (self.size.1 + after.1).saturating_sub(before.1);
    }

    fn drop_oldest(&mut self) {
        let Some((_, key)) = self.by_use.pop_first() else {
            return;
        };
        if let Some(part) = self.parts.remove(&key) {
            let (elements, bytes) = part.size();
            self.size.0 = self.size.0.saturating_sub(elements);
            self.size.1 = self.size.1.saturating_sub(bytes);
            self.dropped += part.counters();
            self.dropped.keys_dropped += 1;
        }
    }
}
