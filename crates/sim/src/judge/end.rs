//! The judgement at the end of a run, when all faults are over.

use std::collections::{BTreeSet, HashMap};

use super::copy::Copy;
use super::model::{Judge, Reports};
use super::{At, Counts, Reason, Violation, wrong};

impl Judge {
    /// Judges the end: all faults are over, and there was time to catch up.
    ///
    /// # Errors
    /// The broken promises, at most one for each subscriber and stream.
    pub fn finish(&self) -> Result<(), Vec<Violation>> {
        let origins = (0..self.streams.len()).map(|stream| self.finish_origin(stream));
        let copies = self
            .copies
            .iter()
            .map(|((subscriber, stream), copy)| self.finish_copy(*subscriber, *stream, copy));
        let reports = (0..self.reports.len()).map(|subscriber| self.finish_reports(subscriber));
        let all = origins.chain(copies).chain(reports);
        let violations: Vec<Violation> = all.filter_map(Result::err).collect();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(violations)
        }
    }

    fn finish_origin(&self, stream: usize) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let name = format!("stream {stream}");
        let Some(holds) = &it.holds else {
            return wrong(format!(
                "{name}: the run did not report the origin's elements"
            ));
        };
        let held = self.in_order(stream, &name, holds, false)?;
        let missing = it.accepted.iter().find(|at| {
            !held.contains(at)
                && !it.undone.contains(at)
                && !it.missing.contains(at)
                && at.number >= it.trimmed_before
        });
        if let Some(at) = missing {
            return wrong(format!(
                "{name}: {at:?} was accepted and the origin lost it"
            ));
        }
        let Some(counts) = it.counts else {
            return Ok(());
        };
        right_sum(&name, &counts, held.len() as u64, it.trimmed_before > 0)?;
        // The missing elements by the count, one by one.
        let epoch = it.epochs.last().copied().unwrap_or_default();
        let places = (counts.first..=counts.last).map(|number| it.place(epoch, number));
        let mut missing = places.filter(|at| !held.contains(at));
        match missing.find(|at| !it.is_lost(*at, Reason::Damaged)) {
            Some(at) => wrong(format!("{name}: {at:?} is counted as lost but was not")),
            None => Ok(()),
        }
    }

    fn finish_reports(&self, subscriber: usize) -> Result<(), Violation> {
        let Reports { lost, counted } = self.reports[subscriber];
        match counted {
            None => Ok(()),
            Some(counted) if counted == lost => Ok(()),
            Some(counted) => wrong(format!(
                "subscriber {subscriber}: {lost} numbers were reported as lost, {counted} are counted"
            )),
        }
    }

    /// An element that is damaged on one side and intact on the other, according to the last
    /// reports, and should have been repaired by the end.
    #[must_use]
    pub fn not_put_back(&self) -> Option<Violation> {
        let origins = (0..self.streams.len()).find_map(|stream| self.missing_at_origin(stream));
        let mut copies = self.copies.iter();
        origins.or_else(|| {
            copies.find_map(|((subscriber, stream), copy)| {
                let at = self.missing_there(*stream, copy)?;
                Some(Violation(format!(
                    "subscriber {subscriber}, stream {stream}: {at:?} is damaged and was not \
                     repaired, the origin has it"
                )))
            })
        })
    }

    fn missing_at_origin(&self, stream: usize) -> Option<Violation> {
        let it = &self.streams[stream];
        let epoch = it.epochs.last().copied()?;
        let origin: BTreeSet<At> = it.holds.iter().flatten().map(|(at, _)| *at).collect();
        let last = it.counts.map_or(0, |counts| counts.last);
        let wanted = |at: &At| {
            at.number >= it.trimmed_before
                && at.number <= last
                && it.continues(epoch, *at)
                && !origin.contains(at)
        };
        let copies = self.copies.iter().filter(|((_, of), _)| *of == stream);
        for ((subscriber, _), copy) in copies {
            let held = copy.holds.iter().flatten().map(|(at, _)| at);
            if let Some(at) = held.into_iter().find(|at| wanted(at)) {
                return Some(Violation(format!(
                    "stream {stream}: {at:?} is missing at the origin and was not put back, \
                     subscriber {subscriber} has it"
                )));
            }
        }
        None
    }

    /// The first of a run of damaged positions that the copy can request: it has the elements right
    /// before and after them, with just as many numbers in between.
    fn missing_there(&self, stream: usize, copy: &Copy) -> Option<At> {
        if copy.rolled || copy.damaged.is_empty() {
            return None;
        }
        let it = &self.streams[stream];
        let origin: BTreeSet<At> = it.holds.iter().flatten().map(|(at, _)| *at).collect();
        let held: BTreeSet<At> = copy.holds.iter().flatten().map(|(at, _)| *at).collect();
        let mut before: Option<At> = None;
        let mut run: Vec<At> = Vec::new();
        for at in &copy.stored {
            if !held.contains(at) {
                run.push(*at);
                continue;
            }
            let count = run.len() as u64;
            let fits = |before: At| {
                before.epoch == at.epoch && at.number.checked_sub(before.number) == Some(count + 1)
            };
            let missed = run.iter().find(|at| origin.contains(at)).copied();
            if before.is_some_and(fits) && missed.is_some() {
                return missed;
            }
            run.clear();
            before = Some(*at);
        }
        None
    }

    /// Checks that a store's elements are in order, unique, and offered. After a rollback earlier
    /// epochs may return, but within each the numbers rise.
    fn in_order(
        &self,
        stream: usize,
        name: &str,
        holds: &[(At, u64)],
        rolled: bool,
    ) -> Result<BTreeSet<At>, Violation> {
        let it = &self.streams[stream];
        let mut last = None;
        let mut highest: HashMap<u64, u64> = HashMap::new();
        for (at, content) in holds {
            let order = it.order(*at);
            let before = highest.insert(at.epoch, at.number);
            if before >= Some(at.number) || order.is_none() || order <= last && !rolled {
                return wrong(format!("{name}: {at:?} is held after {last:?}"));
            }
            last = order;
            let known = it.seen.get(at);
            if it.offered.get(content) != Some(at) || known.is_some_and(|it| it != content) {
                return wrong(format!(
                    "{name}: {at:?} holds {content}, known is {known:?}"
                ));
            }
        }
        Ok(holds.iter().map(|(at, _)| *at).collect())
    }

    fn finish_copy(&self, subscriber: usize, stream: usize, copy: &Copy) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let name = format!("subscriber {subscriber}, stream {stream}");
        let Some(holds) = &copy.holds else {
            return wrong(format!(
                "{name}: the run did not report the store's elements"
            ));
        };
        let held = self.in_order(stream, &name, holds, copy.rolled)?;
        let has = |at: &At| held.contains(at) || copy.damaged.contains(at);
        // All elements of the origin, accepted or not, and all that were accepted at any time.
        let theirs: BTreeSet<At> = it.holds.iter().flatten().map(|(at, _)| *at).collect();
        let mut torn = 0;
        for at in it.accepted.union(&theirs) {
            let excused = it.undone.contains(at)
                || copy.said.contains_key(at)
                || at.number < copy.granted_from;
            let missing = !has(at) && !excused;
            let requested = theirs.contains(at) && !copy.lost_next_to(&held, *at);
            let may_be_torn = copy.maybe_torn.contains(at) && !requested;
            torn += u64::from(missing && may_be_torn);
            if missing && (!may_be_torn || torn > copy.torn) {
                return wrong(format!(
                    "{name}: {at:?} is missing without a report of its loss (newest {:?})",
                    holds.last()
                ));
            }
        }
        if let Some(at) = copy.stored.iter().find(|at| !has(at)) {
            return wrong(format!(
                "{name}: {at:?} was stored and is missing at the end"
            ));
        }
        let mut said = copy.said.keys();
        // A power loss undoes rot that had not reached the disk.
        let came_back = |at: &At| it.put_back.contains(at) || it.damaged.contains(at);
        let back = said.find(|at| theirs.contains(at) && !came_back(at));
        if let Some(at) = back.filter(|_| !it.restored) {
            return wrong(format!(
                "{name}: {at:?} was reported as lost but the origin has it"
            ));
        }
        // Damage next to a lost number widens the gap. All its numbers are requested again, and the origin may have the
        // lost one back.
        let was_repaired = |at: &At| it.put_back.contains(at) && copy.ever_damaged.contains(at);
        let mut said = copy.said.keys();
        if let Some(at) = said.find(|at| held.contains(at) && !was_repaired(at)) {
            return wrong(format!("{name}: {at:?} was reported as lost but is there"));
        }
        let Some(counts) = copy.counts.filter(|_| !copy.rolled) else {
            return Ok(());
        };
        right_sum(&name, &counts, holds.len() as u64, false)?;
        let missing = copy.stored.iter().filter(|at| !held.contains(at)).count() as u64;
        if counts.missing != missing + copy.stored_again + copy.torn {
            return wrong(format!(
                "{name}: {} are counted as missing, {missing} are, {} that were stored again, {} torn",
                counts.missing, copy.stored_again, copy.torn
            ));
        }
        Ok(())
    }
}

/// Checks that the sum over the reasons is what is missing: trimmed before the first number, lost
/// in between.
fn right_sum(name: &str, counts: &Counts, held: u64, trimmed: bool) -> Result<(), Violation> {
    let between = (counts.last + 1).saturating_sub(counts.first);
    // Damage that was trimmed later is not missing any more.
    let known = counts.missing + counts.filled;
    let found = if trimmed {
        counts.corrupt >= known
    } else {
        counts.corrupt == known && counts.first <= 1
    };
    if counts.missing + held == between && found {
        return Ok(());
    }
    wrong(format!(
        "{name}: {held} are held, and the store counts {counts:?}"
    ))
}
