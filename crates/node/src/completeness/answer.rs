//! The answer about one stream and one span of time.

use std::collections::BTreeMap;
use std::ops::Range;

use chappe_log::{Error, Stream};
use chappe_stream::Epoch;
use chappe_stream::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::absence::{Absences, absences};
use super::ledger::{Ledger, Loss, LossKind, NODE, SourceEntry, UNNAMED};
use crate::catalogue::Entry;
use crate::clock::now;

/// Losses and absences that an answer lists, the newest of each; the totals cover all.
const LISTED_MAX: usize = 1_000;

/// A span of source time.
pub(crate) type Span = Range<Timestamp>;

/// How complete a stream is in a span of source time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Completeness {
    /// The stream.
    pub(crate) stream: String,
    /// The start of the span (RFC 3339); null: from the first element ever.
    pub(crate) from: Option<String>,
    /// The end of the span, exclusive; null: up to now.
    pub(crate) to: Option<String>,
    /// Elements that are stored and can be read.
    pub(crate) stored: u64,
    /// Elements that will never come, by reason. `damaged`: their records are destroyed here.
    /// `process_ended`: acknowledged at level memory before the process ended. `unclean_end`,
    /// `restored_copy`: acknowledged below level power, or after a copy was made. `trimmed`,
    /// `corrupt_at_origin`, `too_large`, `skipped`: of a link. Others: they came and could not be stored.
    pub(crate) lost: BTreeMap<String, Count>,
    /// Elements that came and were not accepted, by reason: dead letters that were not sent again, and
    /// elements that do not fit the schema.
    pub(crate) refused: BTreeMap<String, Count>,
    /// Elements that were stored once and were removed by retention, a trim or the size limit.
    pub(crate) removed: Count,
    /// Of the removed ones, those that the size limit of the log removed since the node started,
    /// whatever their time.
    pub(crate) removed_by_size_limit: u64,
    /// Seconds for which the source was away, as far as is known.
    pub(crate) away_s: f64,
    /// From when on the presence of the source is on record (RFC 3339); null: it never was.
    pub(crate) away_known_since: Option<String>,
    /// Whether the numbers of elements are exact.
    pub(crate) exact: bool,
    /// Why they are not, one reason each.
    pub(crate) notes: Vec<String>,
    /// The losses and refusals, oldest first; the newest thousand.
    pub(crate) gaps: Vec<Gap>,
    /// The times in which the source was away, oldest first; the newest thousand.
    pub(crate) away: Vec<Away>,
}

/// A number of elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Count {
    /// Elements that are certainly of the span.
    pub(crate) elements: u64,
    /// The most that it can be: some elements may be of another time. Null: their number is unknown.
    pub(crate) at_most: Option<u64>,
}

/// Elements of a stream that are not stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Gap {
    /// `lost` or `refused`.
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    /// How many.
    pub(crate) elements: u64,
    /// Whether there may be more.
    pub(crate) is_lower_bound: bool,
    /// The first of their numbers, where they had numbers.
    pub(crate) first: Option<u64>,
    /// The number after their last one.
    pub(crate) next: Option<u64>,
    /// The lineage of these numbers.
    pub(crate) epoch: Option<String>,
    /// Whether these are numbers at the origin of a link, rather than here.
    pub(crate) is_of_origin: bool,
    /// Their source times are not before this (RFC 3339); null: unknown.
    pub(crate) from: Option<String>,
    /// Their source times are not after this; null: unknown.
    pub(crate) to: Option<String>,
    /// When the last of them was noticed; null for damage, which the log finds.
    pub(crate) noticed: Option<String>,
}

/// A time in which the source was away.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Away {
    /// `source`, or `node` while this node did not run.
    pub(crate) who: &'static str,
    /// The key of the source; null for the node.
    pub(crate) key: Option<String>,
    /// Why.
    pub(crate) cause: String,
    /// The start (RFC 3339).
    pub(crate) from: String,
    /// The end; null while it lasts.
    pub(crate) to: Option<String>,
    /// Seconds within the span.
    pub(crate) seconds: f64,
}

/// How a range of times lies to the span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Outside,
    Partly,
    Inside,
}

/// Elements of unknown exact times: those between two elements.
struct Missing {
    kind: LossKind,
    gap: Gap,
    times: (i64, i64),
}

impl Count {
    fn add(&mut self, elements: u64, is_lower_bound: bool, overlap: Overlap) {
        let at_most = self.at_most.filter(|_| !is_lower_bound);
        self.at_most = at_most.map(|at_most| at_most.saturating_add(elements));
        if overlap == Overlap::Inside {
            self.elements = self.elements.saturating_add(elements);
        }
    }

    /// Nothing, exactly.
    fn none() -> Self {
        Self {
            elements: 0,
            at_most: Some(0),
        }
    }

    fn is_exact(&self) -> bool {
        self.at_most == Some(self.elements)
    }
}

/// How complete a stream is within `span`; reads the disk, so it may take long.
///
/// # Errors
/// The disk failed.
pub(crate) fn completeness(
    entry: &Entry,
    ledger: &Ledger,
    span: Option<&Span>,
) -> Result<Completeness, Error> {
    let all = Timestamp(i64::MIN)..Timestamp(i64::MAX);
    let times = span.cloned().unwrap_or(all);
    let log = entry.log.log();
    let bound = |time: Timestamp, open: i64| (time.0 != open).then(|| time.to_string());
    let mut answer = Completeness {
        stream: entry.current_name(),
        from: bound(times.start, i64::MIN),
        to: bound(times.end, i64::MAX),
        stored: log.count_times(times.start.0, times.end.0)?,
        lost: BTreeMap::new(),
        refused: BTreeMap::new(),
        removed: Count::none(),
        removed_by_size_limit: log.removed_by_size_limit(),
        away_s: 0.0,
        away_known_since: None,
        exact: true,
        notes: Vec::new(),
        gaps: Vec::new(),
        away: Vec::new(),
    };
    answer.add_removed(log, &times);
    let recorded = ledger.losses_of(&entry.name)?;
    let mut missing = damaged(log);
    missing.extend(recorded_losses(log, &recorded.entries));
    missing.sort_by_key(|one| one.times);
    answer.add_missing(missing, &times);
    if recorded.is_cut {
        let oldest = recorded.entries.first().map(|(time, _)| Timestamp(*time));
        let since = oldest.map_or("their start".to_owned(), |time| time.to_string());
        answer.note(format!(
            "losses noticed before {since} may no longer be on record"
        ));
    }
    let sources = ledger.read_sources()?.entries;
    let sources: Vec<SourceEntry> = sources.into_iter().map(|(_, entry)| entry).collect();
    let absences = absences(&entry.name, &entry.source(), &sources);
    answer.add_absences(absences, &times);
    let mut counts = answer.lost.values().chain(answer.refused.values());
    answer.exact =
        answer.notes.is_empty() && answer.removed.is_exact() && counts.all(Count::is_exact);
    Ok(answer)
}

impl Completeness {
    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Elements before the first number kept.
    fn add_removed(&mut self, log: &Stream, times: &Span) {
        let removed = log.first().saturating_sub(1);
        if removed == 0 {
            return;
        }
        let kept_from = time_of(log, log.first());
        let range = (i64::MIN, kept_from.unwrap_or(i64::MAX));
        let overlap = overlap(range, times);
        if overlap != Overlap::Outside {
            self.removed.add(removed, false, overlap);
        }
        if overlap == Overlap::Partly {
            self.note(format!(
                "the source times of {removed} removed elements are not known"
            ));
        }
    }

    fn add_missing(&mut self, missing: Vec<Missing>, times: &Span) {
        for one in missing {
            let overlap = overlap(one.times, times);
            if overlap == Overlap::Outside {
                continue;
            }
            let (elements, is_lower_bound) = (one.gap.elements, one.gap.is_lower_bound);
            let counts = match one.kind {
                LossKind::Lost => &mut self.lost,
                LossKind::Refused | LossKind::Restored => &mut self.refused,
            };
            let count = counts
                .entry(one.gap.reason.clone())
                .or_insert_with(Count::none);
            count.add(elements, is_lower_bound, overlap);
            if overlap == Overlap::Partly {
                self.note("the source times of some lost elements are not known".to_owned());
            }
            if is_lower_bound {
                self.note(format!(
                    "the number of elements lost by {} is not known",
                    one.gap.reason
                ));
            }
            self.gaps.push(one.gap);
        }
        let surplus = self.gaps.len().saturating_sub(LISTED_MAX);
        self.gaps.drain(..surplus);
    }

    fn add_absences(&mut self, found: Absences, times: &Span) {
        let now = now();
        let end = times.end.0.min(now.0);
        self.away_known_since = found.known_since.map(time_or);
        for one in found.absences {
            let (from, to) = (
                one.from.max(times.start.0),
                one.to.unwrap_or(now.0).min(end),
            );
            if from >= to {
                continue;
            }
            let is_node = one.who == NODE;
            let seconds = to.saturating_sub(from) as f64 / 1e9;
            self.away_s += seconds;
            self.away.push(Away {
                who: if is_node { "node" } else { "source" },
                key: (!is_node).then_some(one.who),
                cause: one.cause,
                from: time_or(one.from),
                to: one.to.map(time_or),
                seconds,
            });
        }
        let surplus = self.away.len().saturating_sub(LISTED_MAX);
        self.away.drain(..surplus);
    }
}

/// What the log knows to be destroyed.
fn damaged(log: &Stream) -> Vec<Missing> {
    let ranges = log.gaps().into_iter().chain(log.given_up());
    let missing = ranges.map(|(first, last)| {
        let times = between(log, first - 1, last + 1, None);
        Missing {
            kind: LossKind::Lost,
            times,
            gap: Gap {
                kind: "lost",
                reason: "damaged".to_owned(),
                elements: last + 1 - first,
                is_lower_bound: false,
                first: Some(first),
                next: Some(last + 1),
                epoch: Some(Epoch(log.position_of(first).epoch).to_string()),
                is_of_origin: false,
                from: known(times.0),
                to: known(times.1),
                noticed: None,
            },
        }
    });
    missing.collect()
}

/// Ranges of numbers, by epoch and first number: the number after the last.
#[derive(Default)]
struct Ranges(BTreeMap<(u64, u64), u64>);

impl Ranges {
    /// Adds a range; returns how many of its numbers are new.
    fn add(&mut self, epoch: u64, first: u64, next: u64) -> u64 {
        let mut new = next.saturating_sub(first);
        let (mut low, mut high) = (first, next);
        while let Some((&(_, from), &to)) = self
            .0
            .range((epoch, 0)..=(epoch, high))
            .next_back()
            .filter(|(_, to)| **to >= low)
        {
            self.0.remove(&(epoch, from));
            new -= to.min(next).saturating_sub(from.max(first)).min(new);
            (low, high) = (low.min(from), high.max(to));
        }
        self.0.insert((epoch, low), high);
        new
    }
}

/// Elements without numbers that were stored after they had been refused: the reason, when they were refused, and how
/// many of them are left.
#[derive(Default)]
struct Restored(Vec<(String, (i64, i64), u64)>);

impl Restored {
    fn add(&mut self, loss: &Loss) {
        if let Some(times) = loss.times {
            self.0.push((loss.reason.clone(), times, loss.elements));
        }
    }

    /// How many of the refused elements were stored later.
    fn take(&mut self, refused: &Loss) -> u64 {
        let (from, to) = refused.noticed;
        let mut taken = 0;
        for (_, _, left) in self.0.iter_mut().filter(|(reason, times, _)| {
            *reason == refused.reason && times.0 <= to && times.1 >= from
        }) {
            let more = (*left).min(refused.elements - taken);
            *left -= more;
            taken += more;
        }
        taken
    }
}

/// What is on record, without what was refused first and stored later.
fn recorded_losses(log: &Stream, losses: &[(i64, Loss)]) -> Vec<Missing> {
    let (mut lost, mut refused) = (Ranges::default(), Ranges::default());
    let mut unnumbered = Restored::default();
    for (_, loss) in losses
        .iter()
        .filter(|(_, loss)| loss.kind == LossKind::Restored)
    {
        match loss.numbers {
            Some((epoch, first, next)) => _ = refused.add(epoch, first, next),
            None => unnumbered.add(loss),
        }
    }
    let recorded = losses.iter().filter_map(|(_, loss)| {
        let seen = match loss.kind {
            LossKind::Restored => return None,
            LossKind::Lost => &mut lost,
            LossKind::Refused => &mut refused,
        };
        // What a crash let come again is on record twice.
        let elements = match loss.numbers {
            Some((epoch, first, next)) => seen.add(epoch, first, next).min(loss.elements),
            None if loss.kind == LossKind::Refused => loss.elements - unnumbered.take(loss),
            None => loss.elements,
        };
        if elements == 0 && !loss.is_lower_bound {
            return None;
        }
        let times = match loss.times {
            Some(times) => times,
            None if loss.stream == UNNAMED => (i64::MIN, i64::MAX),
            None => between(log, loss.after, loss.until + 1, Some(loss.noticed.1)),
        };
        let numbers = loss.numbers;
        Some(Missing {
            kind: loss.kind,
            times,
            gap: Gap {
                kind: match loss.kind {
                    LossKind::Lost => "lost",
                    LossKind::Refused | LossKind::Restored => "refused",
                },
                reason: loss.reason.clone(),
                elements,
                is_lower_bound: loss.is_lower_bound || loss.stream == UNNAMED,
                first: numbers.map(|(_, first, _)| first),
                next: numbers.map(|(_, _, next)| next),
                epoch: numbers.map(|(epoch, _, _)| Epoch(epoch).to_string()),
                is_of_origin: loss.is_of_origin,
                from: known(times.0),
                to: known(times.1),
                noticed: Some(Timestamp(loss.noticed.1).to_string()),
            },
        })
    });
    recorded.collect()
}

/// The source times of the elements with the numbers `before` and `after`, between which others are
/// missing. While there is no element after, they are not later than `noticed`.
fn between(log: &Stream, before: u64, after: u64, noticed: Option<i64>) -> (i64, i64) {
    let is_first = before < log.first();
    let low = (!is_first).then(|| time_at(log, before)).flatten();
    let high = match after > log.last() {
        true => noticed,
        false => time_of(log, after),
    };
    let (low, high) = (low.unwrap_or(i64::MIN), high.unwrap_or(i64::MAX));
    // Source times may fall.
    (low.min(high), high.max(low))
}

/// The source time of the element with this number, if it can be read.
fn time_at(log: &Stream, number: u64) -> Option<i64> {
    let records = log.read(number, 1).ok()?;
    records.first().map(|record| record.time)
}

/// The source time of an element, or of the next one that can be read.
fn time_of(log: &Stream, number: u64) -> Option<i64> {
    let mut from = number;
    for _ in 0..3 {
        match log.read(from, 1) {
            Ok(records) => return records.first().map(|record| record.time),
            Err(Error::Gap { next, .. }) => from = next,
            Err(_) => return None,
        }
    }
    None
}

fn overlap((low, high): (i64, i64), span: &Span) -> Overlap {
    let is_whole = span.start.0 == i64::MIN && span.end.0 == i64::MAX;
    match () {
        () if is_whole => Overlap::Inside,
        () if high < span.start.0 || low >= span.end.0 => Overlap::Outside,
        () if low >= span.start.0 && (high < span.end.0 || span.end.0 == i64::MAX) => {
            Overlap::Inside
        }
        () if span.start.0 == i64::MIN && high < span.end.0 => Overlap::Inside,
        () => Overlap::Partly,
    }
}

fn known(time: i64) -> Option<String> {
    (time != i64::MIN && time != i64::MAX).then(|| Timestamp(time).to_string())
}

fn time_or(time: i64) -> String {
    Timestamp(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, to: i64) -> Span {
        Timestamp(from)..Timestamp(to)
    }

    #[test]
    fn a_range_of_times_is_inside_only_if_all_of_it_is() {
        let (min, max) = (i64::MIN, i64::MAX);
        for (range, within, wanted) in [
            ((10, 20), span(10, 21), Overlap::Inside),
            ((10, 20), span(10, 20), Overlap::Partly),
            ((10, 20), span(11, 30), Overlap::Partly),
            ((10, 20), span(21, 30), Overlap::Outside),
            ((10, 20), span(0, 10), Overlap::Outside),
            ((min, 20), span(min, 21), Overlap::Inside),
            ((min, 20), span(5, 21), Overlap::Partly),
            ((10, max), span(5, max), Overlap::Inside),
            ((10, max), span(5, 100), Overlap::Partly),
            ((min, max), span(min, max), Overlap::Inside),
            ((min, max), span(0, 1), Overlap::Partly),
        ] {
            assert_eq!(overlap(range, &within), wanted, "{range:?} {within:?}");
        }
    }

    #[test]
    fn numbers_of_overlapping_ranges_count_once() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(1, 10, 20), 10);
        assert_eq!(ranges.add(1, 30, 40), 10);
        assert_eq!(ranges.add(1, 15, 35), 10);
        assert_eq!(ranges.add(1, 5, 50), 15);
        assert_eq!(ranges.add(1, 5, 50), 0);
        assert_eq!(ranges.add(2, 5, 50), 45);
        assert_eq!(ranges.add(1, 50, 51), 1);
        assert_eq!(ranges.add(1, 49, 52), 1);
    }

    #[test]
    fn a_count_is_exact_only_without_doubt() {
        let mut count = Count::none();
        count.add(3, false, Overlap::Inside);
        assert!(count.is_exact());
        count.add(4, false, Overlap::Partly);
        assert_eq!((count.elements, count.at_most), (3, Some(7)));
        assert!(!count.is_exact());
        count.add(0, true, Overlap::Inside);
        assert_eq!((count.elements, count.at_most), (3, None));
    }
}
