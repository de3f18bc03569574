//! Windows over one source of elements, by count or by time, on source time.
//!
//! The content of a window depends on the elements it has received, not on the order of their arrival:
//! a window by count holds the newest `n`, a window by time those less than the extent older than the
//! newest. *Newest* is by source time, then by arrival. The source's clock is the only clock: the window
//! of a silent source does not change.
//!
//! An element is *late* when its source time is before the newest one; [`LatePolicy`] decides whether it
//! is dropped. A source whose clock was set back would be late for as long as the step: after
//! [`WindowLimits::late_in_a_row`] dropped elements in a row, the window is reset to the source's new
//! time, and the reset is counted.
//!
//! `turns.rs` holds elements back until their turn of time closes, with windows on the node's clock
//! ([`WindowClock::Node`]) or with a time to wait for late elements ([`Timing::wait`]). `parts.rs`
//! keeps a window for each key.
//!
//! It deliberately does not know SQL, and evaluates nothing: it reports added and removed elements.

mod parts;
mod turns;

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::{Quality, StreamElement, StreamSchema, Timestamp, Value};
pub(crate) use parts::{Part, Parts, WindowShape};

/// How much a window or a slide spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A number of elements, at least one.
    Count(usize),
    /// A length of source time, more than zero.
    Time(Duration),
}

/// The treatment of late elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LatePolicy {
    /// Inserted in order if the window still reaches back to it, otherwise dropped and counted.
    #[default]
    Insert,
    /// Dropped and counted.
    Drop,
    /// As `Drop`, and reported, so that it can be stored elsewhere.
    DeadLetter,
}

/// The treatment of elements that are too far ahead of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyPolicy {
    /// Dropped and counted.
    #[default]
    Drop,
    /// As `Drop`, and reported, so that it can be stored elsewhere.
    DeadLetter,
}

/// The clock of a window and of its slide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowClock {
    /// The source times of its elements. The window of a silent source does not change.
    #[default]
    Source,
    /// The node's clock: an element has the time of its receipt, and each turn is evaluated when it ends,
    /// with or without elements.
    Node,
}

impl WindowClock {
    /// The time of an element on this clock.
    #[must_use]
    pub fn time_of(self, element: &StreamElement) -> Timestamp {
        match self {
            Self::Source => element.source_time,
            Self::Node => element.receive_time,
        }
    }
}

/// The use of time by a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The clock.
    pub clock: WindowClock,
    /// If set, or if the clock is the node's: a turn of time is evaluated as a whole, this long after its
    /// end. Otherwise it is evaluated at its first element.
    pub wait: Option<Duration>,
    /// How far a source time may be after the time of receipt.
    pub ahead: Duration,
    /// The treatment of elements that are further ahead.
    pub early: EarlyPolicy,
    /// Whether only the first of several elements of a stream with equal times is used.
    pub unique_times: bool,
}

/// Default of [`Timing::ahead`]. One minute: clocks that are set by hand are wrong by less.
pub const AHEAD: Duration = Duration::from_secs(60);

impl Default for Timing {
    fn default() -> Self {
        Self {
            clock: WindowClock::Source,
            wait: None,
            ahead: AHEAD,
            early: EarlyPolicy::Drop,
            unique_times: false,
        }
    }
}

impl Timing {
    /// Whether an element is too far ahead. A receipt without a time does not count.
    #[must_use]
    pub fn is_early(&self, element: &StreamElement) -> bool {
        self.clock == WindowClock::Source
            && element.source_time.0 > {
                let ahead = i64::try_from(self.ahead.as_nanos()).unwrap_or(i64::MAX);
                element.receive_time.0.saturating_add(ahead)
            }
    }
}

/// Why a window does not take an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is late.
    Late,
    /// Its source time is too far ahead.
    Early,
    /// The stream has another element of the same time.
    EqualTime,
    /// The window is at a limit, and all its other elements are newer.
    Limit,
}

impl Refusal {
    /// Its name in counters and dead letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Early => "early",
            Self::EqualTime => "equal_time",
            Self::Limit => "limit",
        }
    }
}

/// Most elements of a window. 100,000: eleven minutes at 150 elements a second, some 30 MB of small ones.
pub const WINDOW_ELEMENTS_MAX: usize = 100_000;

/// Bounds of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// Most elements, of all keys together: [`WINDOW_ELEMENTS_MAX`].
    pub elements: usize,
    /// Most bytes, by [`StreamElement::size_bytes`]. 32 MiB: an hour of a 500 Hz waveform is 15 MB.
    pub bytes: usize,
    /// Dropped late elements in a row after which the window is reset. 64: more than a network reorders,
    /// and few enough for a slow sensor to recover within about a minute.
    pub late_in_a_row: u32,
}

impl Default for WindowLimits {
    fn default() -> Self {
        Self {
            elements: WINDOW_ELEMENTS_MAX,
            bytes: 32 << 20,
            late_in_a_row: 64,
        }
    }
}

/// Counters of a window since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowCounters {
    /// Elements that entered the window.
    pub accepted: u64,
    /// Late elements that entered the window (also in `accepted`).
    pub late_inserted: u64,
    /// Late elements dropped.
    pub late_dropped: u64,
    /// Elements evicted or refused because of [`WindowLimits::elements`].
    pub over_elements: u64,
    /// Elements evicted or refused because of [`WindowLimits::bytes`].
    pub over_bytes: u64,
    /// Resets because the source's clock was set back.
    pub resets: u64,
    /// Elements dropped because their source time was too far ahead.
    pub early_dropped: u64,
    /// Elements dropped because the stream had another of the same time.
    pub equal_times: u64,
    /// Keys whose windows were dropped at a limit, least recently used first.
    pub keys_dropped: u64,
    /// Turns of the node's clock that were not evaluated because too many had passed.
    pub turns_skipped: u64,
}

impl WindowCounters {
    /// The elements that were not used, or left the window early, by reason: they were late, too far ahead, or of the
    /// time of another element of their stream; the window reached a limit of elements or bytes. Of `window_keys` and
    /// `turns_skipped`, keys and slides are counted.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("late", self.late_dropped),
            ("early", self.early_dropped),
            ("equal_time", self.equal_times),
            ("window_elements", self.over_elements),
            ("window_bytes", self.over_bytes),
            ("window_keys", self.keys_dropped),
            ("turns_skipped", self.turns_skipped),
        ]
    }
}

impl AddAssign for WindowCounters {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.late_inserted += other.late_inserted;
        self.late_dropped += other.late_dropped;
        self.over_elements += other.over_elements;
        self.over_bytes += other.over_bytes;
        self.resets += other.resets;
        self.early_dropped += other.early_dropped;
        self.equal_times += other.equal_times;
        self.keys_dropped += other.keys_dropped;
        self.turns_skipped += other.turns_skipped;
    }
}

/// An element in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// The number of its arrival in this window, rising.
    pub number: u64,
    /// Its stream.
    pub stream: Arc<str>,
    /// The element.
    pub element: Arc<StreamElement>,
}

/// The change of a window since the last one was taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WindowChange {
    /// Elements that entered and are still present, by arrival.
    pub added: Vec<Arrival>,
    /// Numbers of elements that have left since, ascending.
    pub removed: Vec<u64>,
}

/// Added elements that are remembered before the removed ones among them are dropped.
const FRESH_MIN: usize = 64;

/// A window over one source.
#[derive(Debug, Clone)]
pub struct Window {
    extent: Extent,
    late: LatePolicy,
    limits: WindowLimits,
    clock: WindowClock,
    has_unique_times: bool,
    held: BTreeMap<(Timestamp, u64), Held>,
    bytes: usize,
    newest: Option<Timestamp>,
    next: u64,
    /// The first number of arrival after the last call.
    seen: u64,
    removed: Vec<u64>,
    /// The positions of elements added since the last call; some may be removed again.
    fresh: Vec<(Timestamp, u64)>,
    late_in_a_row: u32,
    counters: WindowCounters,
    /// The count of questionable and of bad elements.
    doubtful: [usize; 2],
}

#[derive(Debug, Clone)]
struct Held {
    arrival: Arrival,
    bytes: usize,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub fn new(extent: Extent, late: LatePolicy, limits: WindowLimits) -> Self {
        Self {
            extent,
            late,
            limits,
            clock: WindowClock::Source,
            has_unique_times: false,
            held: BTreeMap::new(),
            bytes: 0,
            newest: None,
            next: 0,
            seen: 0,
            removed: Vec::new(),
            fresh: Vec::new(),
            late_in_a_row: 0,
            counters: WindowCounters::default(),
            doubtful: [0; 2],
        }
    }

    /// The window with this use of time, except what [`Timing::wait`] and [`Timing::ahead`] say: they
    /// concern elements before they reach a window.
    #[must_use]
    pub fn timed(mut self, timing: &Timing) -> Self {
        self.clock = timing.clock;
        self.has_unique_times = timing.unique_times;
        self
    }

    /// An empty window whose arrivals are numbered from `first`.
    pub(crate) fn numbered_from(mut self, first: u64) -> Self {
        (self.next, self.seen) = (first, first);
        self
    }

    /// Adds an element of `stream`.
    ///
    /// # Errors
    /// Why it did not enter the window.
    pub fn push(&mut self, stream: Arc<str>, element: Arc<StreamElement>) -> Result<(), Refusal> {
        let time = self.clock.time_of(&element);
        if self.has_unique_times && self.has(time, &stream) {
            self.counters.equal_times += 1;
            return Err(Refusal::EqualTime);
        }
        let late = self.newest.is_some_and(|newest| time < newest);
        if late && !self.reaches(time) {
            self.counters.late_dropped += 1;
            self.late_in_a_row += 1;
            if self.late_in_a_row < self.limits.late_in_a_row {
                return Err(Refusal::Late);
            }
            self.counters.late_dropped -= 1;
            self.counters.resets += 1;
            self.clear();
        }
        self.late_in_a_row = 0;
        let number = self.next;
        self.next += 1;
        let bytes = element.size_bytes();
        self.newest = self.newest.max(Some(time));
        self.bytes += bytes;
        count(&mut self.doubtful, element.quality, 1);
        let arrival = Arrival {
            number,
            stream,
            element,
        };
        self.held.insert((time, number), Held { arrival, bytes });
        self.shrink();
        self.remember_fresh((time, number));
        let stays = self.held.contains_key(&(time, number));
        self.counters.accepted += u64::from(stays);
        self.counters.late_inserted += u64::from(stays && late && self.newest != Some(time));
        if stays { Ok(()) } else { Err(Refusal::Limit) }
    }

    /// Whether it has an element of `stream` with this time.
    pub(crate) fn has(&self, time: Timestamp, stream: &str) -> bool {
        let mut equal = self.held.range((time, 0)..=(time, u64::MAX));
        equal.any(|(_, held)| &*held.arrival.stream == stream)
    }

    /// Makes `time` the newest, as an element of this time would.
    pub(crate) fn advance(&mut self, time: Timestamp) {
        self.newest = self.newest.max(Some(time));
        self.shrink();
    }

    /// The change since the last call.
    pub fn take_change(&mut self) -> WindowChange {
        let mut change = WindowChange::default();
        self.take_change_into(&mut change);
        change
    }

    /// As [`Self::take_change`], into an existing value.
    pub fn take_change_into(&mut self, change: &mut WindowChange) {
        let seen = std::mem::replace(&mut self.seen, self.next);
        change.removed.clear();
        change.removed.append(&mut self.removed);
        change.removed.retain(|number| *number < seen);
        change.removed.sort_unstable();
        change.added.clear();
        let held = &self.held;
        let arrivals = self.fresh.drain(..).filter_map(|at| held.get(&at));
        change
            .added
            .extend(arrivals.map(|held| held.arrival.clone()));
        change.added.sort_unstable_by_key(|arrival| arrival.number);
    }

    /// Makes the next [`Self::take_change`] report all held elements as added, for a newly prepared query.
    pub fn report_all(&mut self) {
        self.seen = 0;
        self.removed.clear();
        self.fresh.clear();
        self.fresh.extend(self.held.keys());
    }

    /// If there is no call for long, removed elements are forgotten when they are as many as the
    /// held ones.
    fn remember_fresh(&mut self, at: (Timestamp, u64)) {
        self.fresh.push(at);
        if self.fresh.len() > 2 * self.held.len() + FRESH_MIN {
            let held = &self.held;
            self.fresh.retain(|at| held.contains_key(at));
        }
    }

    /// Removes all elements, and forgets the source's time.
    pub fn clear(&mut self) {
        let numbers = std::mem::take(&mut self.held).into_keys();
        self.removed.extend(numbers.map(|(_, number)| number));
        self.bytes = 0;
        self.doubtful = [0; 2];
        self.newest = None;
        self.late_in_a_row = 0;
    }

    /// Removes the elements of `stream`.
    pub fn remove_stream(&mut self, stream: &str) {
        let (seen, removed, bytes) = (self.seen, &mut self.removed, &mut self.bytes);
        let doubtful = &mut self.doubtful;
        self.held.retain(|(_, number), held| {
            let stays = &*held.arrival.stream != stream;
            if !stays {
                *bytes -= held.bytes;
                count(doubtful, held.arrival.element.quality, -1);
                if *number < seen {
                    removed.push(*number);
                }
            }
            stays
        });
        if self.held.is_empty() {
            self.clear();
        }
    }

    /// Converts its elements from one schema to another.
    pub fn reshape(&mut self, from: &StreamSchema, to: &StreamSchema) {
        if from.fields == to.fields {
            return;
        }
        for held in self.held.values_mut() {
            let element = Arc::make_mut(&mut held.arrival.element);
            element.values = to.project(from, std::mem::take(&mut element.values));
        }
    }

    /// The worst quality of its elements.
    #[must_use]
    pub fn quality(&self) -> Quality {
        match self.doubtful {
            [_, bad] if bad > 0 => Quality::Bad,
            [questionable, _] if questionable > 0 => Quality::Questionable,
            _ => Quality::Good,
        }
    }

    /// The elements by source time, then arrival.
    pub fn elements(&self) -> impl Iterator<Item = &Arrival> {
        self.held.values().map(|held| &held.arrival)
    }

    /// The number of its elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The bytes of its elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest source time seen.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> WindowCounters {
        self.counters
    }

    pub(crate) fn set_counters(&mut self, counters: WindowCounters) {
        self.counters = counters;
    }

    /// Whether a late element of `time` would enter the window.
    pub(crate) fn reaches(&self, time: Timestamp) -> bool {
        if self.late != LatePolicy::Insert {
            return false;
        }
        match self.extent {
            Extent::Count(count) => {
                let oldest = self.held.first_key_value().map(|((time, _), _)| *time);
                self.held.len() < count || oldest.is_none_or(|oldest| time >= oldest)
            }
            Extent::Time(_) => self.start().is_none_or(|start| time > start),
        }
    }

    /// The time that a time window begins after.
    fn start(&self) -> Option<Timestamp> {
        let Extent::Time(length) = self.extent else {
            return None;
        };
        let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        self.newest
            .map(|newest| Timestamp(newest.0.saturating_sub(length)))
    }

    fn shrink(&mut self) {
        let start = self.start();
        while let Some((&(time, _), _)) = self.held.first_key_value() {
            let outside = match self.extent {
                Extent::Count(count) => self.held.len() > count,
                Extent::Time(_) => start.is_some_and(|start| time <= start),
            };
            if outside {
                self.put_out_oldest();
            } else if self.held.len() > self.limits.elements {
                self.counters.over_elements += 1;
                self.put_out_oldest();
            } else if self.bytes > self.limits.bytes {
                self.counters.over_bytes += 1;
                self.put_out_oldest();
            } else {
                break;
            }
        }
    }

    fn put_out_oldest(&mut self) {
        if let Some(((_, number), held)) = self.held.pop_first() {
            self.bytes -= held.bytes;
            count(&mut self.doubtful, held.arrival.element.quality, -1);
            if number < self.seen {
                self.removed.push(number);
            }
        }
    }
}

fn count(doubtful: &mut [usize; 2], quality: Quality, by: isize) {
    let [questionable, bad] = doubtful;
    match quality {
        Quality::Good => {}
        Quality::Questionable => *questionable = questionable.saturating_add_signed(by),
        Quality::Bad => *bad = bad.saturating_add_signed(by),
    }
}

impl StreamElement {
    /// Approximate memory use in bytes, for limits.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, String::len);
        let values: usize = self.values.iter().map(value_bytes).sum();
        size_of::<Self>() + key + values
    }
}

pub(crate) fn value_bytes(value: &Value) -> usize {
    let beyond = match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => samples.values.len() * size_of::<f64>(),
        _ => 0,
    };
    size_of::<Value>() + beyond
}

/// When a window is evaluated: after a number of elements, or once in each turn of source time.
///
/// A slide by elements is first due at the first element, unless [`Self::first_at`] says at which.
///
/// Turns begin at whole multiples of the slide, so elements that arrive slightly more or less often than
/// the slide do not make it skip every other turn.
#[derive(Debug, Clone)]
pub struct Slide {
    extent: Extent,
    first: usize,
    pending: usize,
    last: Option<Timestamp>,
}

impl Slide {
    /// A slide that is due at the first element.
    #[must_use]
    pub fn new(extent: Extent) -> Self {
        Self {
            extent,
            first: 1,
            pending: 0,
            last: None,
        }
    }

    /// The slide, if it is by elements, first due at the element of this number.
    #[must_use]
    pub fn first_at(mut self, first: usize) -> Self {
        self.first = first;
        self
    }

    /// Counts an element that entered the window, with the window's newest time; returns whether an
    /// evaluation is due.
    pub fn is_due(&mut self, newest: Timestamp) -> bool {
        self.pending = self.pending.saturating_add(1);
        let due = match self.extent {
            Extent::Count(count) => {
                let needed = self.last.map_or(self.first, |_| count);
                self.pending >= needed
            }
            Extent::Time(length) => {
                let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX).max(1);
                let turn = |time: Timestamp| time.0.div_euclid(length);
                // An earlier turn than that of the last look means that the window was reset.
                self.last.is_none_or(|last| turn(newest) != turn(last))
            }
        };
        if due {
            self.mark_evaluated(newest);
        }
        due
    }

    /// The window was evaluated at `newest`.
    pub fn mark_evaluated(&mut self, newest: Timestamp) {
        self.pending = 0;
        self.last = Some(newest);
    }

    /// Whether elements entered since the last evaluation.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The extent.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }
}
