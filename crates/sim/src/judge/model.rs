//! The model: the elements of a run, their copies, and the reports about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Allows, At, Counts, Event, Reason, Violation};

/// A stream in the model.
#[derive(Debug, Default)]
struct Stream {
    /// Epochs in the order of their start.
    epochs: Vec<u64>,
    /// The lineage of each epoch: it and its predecessors, oldest first, each with its first
    /// number. A restored old state begins a branch of its own.
    lineages: HashMap<u64, Vec<(u64, u64)>>,
    /// The position of each content.
    offered: HashMap<u64, At>,
    /// The contents that a position had before it was safe, newest last.
    drafts: HashMap<At, u64>,
    /// The content of each position that a subscriber or the origin has seen.
    seen: BTreeMap<At, u64>,
    accepted: BTreeSet<At>,
    /// Lost without a report per number: an old state was restored.
    undone: BTreeSet<At>,
    /// Lost at some time, to be reported.
    damaged: BTreeSet<At>,
    /// Of these, positions that were not repaired.
    missing: BTreeSet<At>,
    put_back: BTreeSet<At>,
    counts: Option<Counts>,
    trimmed_before: u64,
    /// An old state was restored: its elements may have been lost in between.
    restored: bool,
    holds: Option<Vec<(At, u64)>>,
}

impl Stream {
    /// The index of a position in the order of the stream; none for an unknown epoch.
    fn order(&self, at: At) -> Option<(usize, u64)> {
        let epoch = self.epochs.iter().position(|epoch| *epoch == at.epoch)?;
        Some((epoch, at.number))
    }

    /// Whether an epoch contains or follows a position.
    fn continues(&self, epoch: u64, at: At) -> bool {
        let lineage = self.lineages.get(&epoch).map_or(&[][..], Vec::as_slice);
        let Some(place) = lineage.iter().position(|(it, _)| *it == at.epoch) else {
            return false;
        };
        let end = lineage.get(place + 1).map_or(u64::MAX, |(_, first)| *first);
        at.number >= lineage[place].1 && at.number < end
    }

    /// Whether the origin ever continued without a position that it had.
    fn continued_without(&self, at: At) -> bool {
        let since = self.epochs.iter().skip_while(|epoch| **epoch != at.epoch);
        since.skip(1).any(|epoch| !self.continues(*epoch, at))
    }

    /// The position of a number in the newest lineage that has an epoch: a run of lost numbers is
    /// reported with one epoch, and may reach into others.
    fn place(&self, epoch: u64, number: u64) -> At {
        let has = |it: &&Vec<(u64, u64)>| it.iter().any(|(one, _)| *one == epoch);
        let lineages = self
            .epochs
            .iter()
            .rev()
            .filter_map(|it| self.lineages.get(it));
        let of = lineages
            .filter(has)
            .find_map(|lineage| lineage.iter().rev().find(|(_, first)| *first <= number));
        let epoch = of.map_or(epoch, |(epoch, _)| *epoch);
        At { epoch, number }
    }

    fn is_lost(&self, at: At, reason: Reason) -> bool {
        match reason {
            Reason::Trimmed => at.number < self.trimmed_before,
            // Numbers that were never accepted may be torn by a power loss; reporting them is
            // correct.
            Reason::Damaged => {
                let torn = self.drafts.contains_key(&at) && !self.accepted.contains(&at);
                torn || self.damaged.contains(&at)
            }
        }
    }

    /// Whether the origin has lost all numbers after `reached`, up to a position. They are
    /// acknowledged as soon as they are reported: nobody can store them.
    fn only_lost_between(&self, reached: Option<(usize, u64)>, at: At) -> bool {
        let before = reached.map(|(epoch, number)| At {
            epoch: self.epochs[epoch],
            number,
        });
        let begin = self.lineages.get(&at.epoch).and_then(|it| it.last());
        let first = match before {
            Some(before) if self.continues(at.epoch, before) => before.number + 1,
            Some(_) => begin.map_or(1, |(_, first)| *first),
            None => 1,
        };
        (first..=at.number).all(|number| {
            let place = self.place(at.epoch, number);
            self.is_lost(place, Reason::Trimmed) || self.is_lost(place, Reason::Damaged)
        })
    }

    /// Checks that a position has one content.
    fn see(&mut self, stream: usize, at: At, content: u64) -> Result<(), Violation> {
        if self.offered.get(&content) != Some(&at) {
            return wrong(format!(
                "stream {stream}: {at:?} holds {content}, which was offered at {:?}",
                self.offered.get(&content)
            ));
        }
        match self.seen.insert(at, content) {
            Some(before) if before != content => wrong(format!(
                "stream {stream}: {at:?} has the contents {before} and {content}"
            )),
            _ => Ok(()),
        }
    }
}

/// The copy of a stream at a subscriber.
#[derive(Debug, Default)]
struct Copy {
    /// Safe positions in the order of storing, and the same as a set.
    stored: Vec<At>,
    has: BTreeSet<At>,
    /// The furthest position that was ever safe or reported as lost.
    reached: Option<(usize, u64)>,
    said: BTreeMap<At, Reason>,
    /// Lost in the copy, and not repaired.
    damaged: BTreeSet<At>,
    /// Lost in the copy at some time.
    ever_damaged: BTreeSet<At>,
    /// How often a damaged element was stored again, after its successors.
    stored_again: u64,
    /// Passed to the store since it was opened, and not safe yet.
    storing: BTreeSet<At>,
    /// Unsafe when the power failed, before the found elements: possibly torn.
    maybe_torn: BTreeSet<At>,
    /// Numbers that the store has reported as torn and that were not repaired since.
    torn: u64,
    counts: Option<Counts>,
    /// Earlier numbers were not granted.
    granted_from: u64,
    /// A rollback was reported, and nothing was stored since.
    warned: bool,
    /// A rollback was reported at some time, or the copy itself was rolled back.
    rolled: bool,
    holds: Option<Vec<(At, u64)>>,
}

impl Copy {
    /// Whether the gap around a missing element has a number that was reported as lost: the copy does not know
    /// which of the gap's numbers are damaged, and requests none.
    fn lost_next_to(&self, held: &BTreeSet<At>, at: At) -> bool {
        let place = |number| At { number, ..at };
        let in_gap = |number: &u64| !held.contains(&place(*number));
        let below = (1..at.number).rev().take_while(in_gap);
        let last = held.range(at..).next().filter(|it| it.epoch == at.epoch);
        let above = at.number + 1..last.map_or(at.number + 1, |it| it.number);
        below
            .chain(above)
            .any(|number| self.said.contains_key(&place(number)))
    }
}

/// The reports to a subscriber, and the product's counts of them.
#[derive(Debug, Default)]
struct Reports {
    lost: u64,
    counted: Option<u64>,
}

/// Judges a history; see the [module documentation](super).
#[derive(Debug, Default)]
pub struct Judge {
    streams: Vec<Stream>,
    copies: BTreeMap<(usize, usize), Copy>,
    reports: Vec<Reports>,
}

fn wrong<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

impl Judge {
    /// A judge of `streams` streams, each of which all subscribers read.
    #[must_use]
    pub fn new(streams: usize, subscribers: usize) -> Self {
        let pairs = (0..subscribers).flat_map(|it| (0..streams).map(move |stream| (it, stream)));
        Self {
            streams: (0..streams).map(|_| Stream::default()).collect(),
            copies: pairs.map(|pair| (pair, Copy::default())).collect(),
            reports: (0..subscribers).map(|_| Reports::default()).collect(),
        }
    }

    /// Elements accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.streams.iter().map(|it| it.accepted.len() as u64).sum()
    }

    /// Numbers reported to subscribers as lost so far.
    #[must_use]
    pub fn reported_lost(&self) -> u64 {
        self.copies
            .values()
            .map(|copy| copy.said.len() as u64)
            .sum()
    }

    /// Handles the next event.
    ///
    /// # Errors
    /// A broken promise.
    ///
    /// # Panics
    /// If the event has a stream or subscriber beyond the judge's counts.
    pub fn observe(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Offered {
                stream,
                at,
                content,
            } => {
                let it = &mut self.streams[stream];
                it.drafts.insert(at, content);
                if it.offered.insert(content, at).is_some() {
                    return wrong(format!("the run offers content {content} twice"));
                }
                Ok(())
            }
            Event::Accepted { stream, at } => self.accept(stream, at),
            Event::Began {
                stream,
                epochs,
                last,
                allows,
            } => self.began(stream, &epochs, last, allows),
            Event::Derived {
                stream,
                at,
                content,
                there,
            } => {
                let it = &self.streams[stream];
                if it.offered.get(&content) != Some(&at) {
                    return wrong(format!(
                        "stream {stream}: derived from {content}, not at {at:?}"
                    ));
                }
                // Stored before a crash, which kept it from being acknowledged, and trimmed since.
                let trimmed = at.number < it.trimmed_before;
                if !there && !trimmed && !it.accepted.contains(&at) {
                    return wrong(format!(
                        "stream {stream}: the record derived from {at:?} exists without it"
                    ));
                }
                Ok(())
            }
            Event::Trimmed { stream, before } => {
                let it = &mut self.streams[stream];
                it.trimmed_before = it.trimmed_before.max(before);
                Ok(())
            }
            Event::Keeps { stream, first } => {
                let before = self.streams[stream].trimmed_before.max(1);
                if first <= before {
                    return Ok(());
                }
                wrong(format!(
                    "stream {stream}: the origin has nothing before {first}, and let go of what is \
                     before {before}"
                ))
            }
            Event::Damaged { stream, at } => {
                let it = &mut self.streams[stream];
                it.damaged.insert(at);
                it.missing.insert(at);
                Ok(())
            }
            Event::Granted {
                subscriber,
                stream,
                from,
            } => {
                let first = self.oldest(stream);
                let copy = self.copy(subscriber, stream);
                copy.granted_from = copy.granted_from.max(from);
                match first.filter(|first| *first < from) {
                    Some(first) => wrong(format!(
                        "subscriber {subscriber}, stream {stream}: granted from {from} on, the \
                         origin has {first}"
                    )),
                    None => Ok(()),
                }
            }
            Event::Storing {
                subscriber,
                stream,
                at,
            } => {
                self.copy(subscriber, stream).storing.insert(at);
                Ok(())
            }
            Event::Stored {
                subscriber,
                stream,
                at,
                content,
            } => self.stored(subscriber, stream, at, content),
            Event::Reopened {
                subscriber,
                stream,
                newest,
                passed,
                allows,
                torn,
            } => {
                let order = |at: Option<At>| at.and_then(|at| self.streams[stream].order(at));
                let end = std::cmp::max_by_key(passed, newest, |at| order(*at));
                self.torn(subscriber, stream, end, torn)?;
                self.reopened(subscriber, stream, newest, end, allows)
            }
            Event::DamagedThere {
                subscriber,
                stream,
                at,
            } => {
                let copy = self.copy(subscriber, stream);
                copy.damaged.insert(at);
                copy.ever_damaged.insert(at);
                Ok(())
            }
            Event::PutBack {
                stream,
                at,
                content,
            } => {
                let it = &mut self.streams[stream];
                it.missing.remove(&at);
                it.put_back.insert(at);
                it.see(stream, at, content)
            }
            Event::PutBackThere {
                subscriber,
                stream,
                at,
                content,
            } => {
                let copy = self.copy(subscriber, stream);
                if !copy.damaged.remove(&at) && copy.maybe_torn.remove(&at) {
                    copy.torn = copy.torn.saturating_sub(1);
                }
                self.streams[stream].see(stream, at, content)
            }
            Event::Acknowledged {
                subscriber,
                stream,
                at,
            } => self.acknowledged(subscriber, stream, at),
            Event::LossReported {
                subscriber,
                stream,
                epoch,
                from,
                next,
                reason,
            } => self.lost(subscriber, stream, epoch, from..next, reason),
            Event::RollbackReported { subscriber, stream } => self.rolled_back(subscriber, stream),
            Event::LostTotal { subscriber, count } => {
                self.reports[subscriber].counted = Some(count);
                Ok(())
            }
            Event::Counted { stream, counts } => {
                self.streams[stream].counts = Some(counts);
                Ok(())
            }
            Event::CountedThere {
                subscriber,
                stream,
                counts,
            } => {
                self.copy(subscriber, stream).counts = Some(counts);
                Ok(())
            }
            Event::OriginHolds { stream, elements } => {
                self.streams[stream].holds = Some(elements);
                Ok(())
            }
            Event::SubscriberHolds {
                subscriber,
                stream,
                elements,
            } => {
                self.copy(subscriber, stream).holds = Some(elements);
                Ok(())
            }
        }
    }

    /// The oldest number that the origin must have.
    fn oldest(&self, stream: usize) -> Option<u64> {
        let it = &self.streams[stream];
        let there = it.accepted.iter().filter(|at| {
            !it.undone.contains(at) && !it.damaged.contains(at) && at.number >= it.trimmed_before
        });
        there.map(|at| at.number).min()
    }

    fn copy(&mut self, subscriber: usize, stream: usize) -> &mut Copy {
        self.copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams")
    }

    fn accept(&mut self, stream: usize, at: At) -> Result<(), Violation> {
        let it = &mut self.streams[stream];
        let Some(content) = it.drafts.get(&at).copied() else {
            return wrong(format!(
                "stream {stream}: {at:?} was accepted and never offered"
            ));
        };
        it.see(stream, at, content)?;
        if it.order(at).is_none() {
            return wrong(format!(
                "stream {stream}: {at:?} is in an epoch that never began"
            ));
        }
        if !it.accepted.insert(at) {
            return wrong(format!("stream {stream}: {at:?} was accepted twice"));
        }
        Ok(())
    }

    fn began(
        &mut self,
        stream: usize,
        epochs: &[(u64, u64)],
        last: u64,
        allows: Allows,
    ) -> Result<(), Violation> {
        let it = &mut self.streams[stream];
        let Some((epoch, _)) = epochs.last().copied() else {
            return wrong(format!("stream {stream}: begins without an epoch"));
        };
        let new = it.epochs.last() != Some(&epoch);
        if new && it.epochs.contains(&epoch) {
            return wrong(format!("stream {stream}: epoch {epoch} comes back"));
        }
        if new {
            // Epochs that the origin has forgotten precede the oldest that it remembers.
            let oldest = it.lineages.get(&epochs[0].0);
            let forgotten = oldest.map_or(&[][..], |known| &known[..known.len() - 1]);
            let lineage = forgotten.iter().chain(epochs).copied().collect();
            it.lineages.insert(epoch, lineage);
            it.epochs.push(epoch);
        }
        let there = |at: &At| at.number <= last && it.continues(epoch, *at);
        let beyond: BTreeSet<At> = it.seen.keys().filter(|at| !there(at)).copied().collect();
        let lost = beyond.iter().find(|at| {
            let excused = it.undone.contains(at) || it.damaged.contains(at);
            it.accepted.contains(at) && allows == Allows::Nothing && !excused
        });
        if let Some(at) = lost {
            return wrong(format!(
                "stream {stream}: {at:?} was accepted and is missing after a restart (last {last})"
            ));
        }
        if let Some(at) = beyond.iter().find(|at| at.epoch == epoch) {
            return wrong(format!(
                "stream {stream}: {at:?} was seen, the origin goes on after {last} in the same epoch"
            ));
        }
        if allows == Allows::Loss {
            it.restored = true;
            // The old state may have damage that was repaired since.
            it.missing.clone_from(&it.damaged);
        }
        // Elements of the restored state exist again.
        it.undone = beyond;
        Ok(())
    }

    fn stored(
        &mut self,
        subscriber: usize,
        stream: usize,
        at: At,
        content: u64,
    ) -> Result<(), Violation> {
        let it = &mut self.streams[stream];
        let name = format!("subscriber {subscriber}, stream {stream}");
        it.see(stream, at, content)
            .map_err(|violation| Violation(format!("subscriber {subscriber}: {violation}")))?;
        let Some(order) = it.order(at) else {
            return wrong(format!("{name}: {at:?} is in an epoch that never began"));
        };
        let it = &self.streams[stream];
        let copy = self
            .copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams");
        if copy.has.contains(&at) {
            return wrong(format!("{name}: {at:?} was stored twice"));
        }
        if let Some(last) = copy.stored.last().filter(|_| !copy.warned) {
            if it.order(*last) >= Some(order) {
                return wrong(format!("{name}: {at:?} was stored after {last:?}"));
            }
            if last.epoch != at.epoch && !it.continues(at.epoch, *last) {
                return wrong(format!(
                    "{name}: {at:?} follows {last:?}, which its epoch does not follow, and \
                     no rollback was reported"
                ));
            }
        }
        if copy.said.remove(&at).is_some() && !it.restored {
            return wrong(format!("{name}: {at:?} was reported as lost and arrives"));
        }
        copy.warned = false;
        copy.storing.remove(&at);
        copy.stored.push(at);
        copy.has.insert(at);
        copy.reached = copy.reached.max(Some(order));
        Ok(())
    }

    /// Elements that were unsafe when the power failed, before the newest found one.
    fn torn(
        &mut self,
        subscriber: usize,
        stream: usize,
        end: Option<At>,
        torn: u64,
    ) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let copy = self
            .copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams");
        let storing = std::mem::take(&mut copy.storing);
        // The store does not know everything that it has synced: rot there may be reported as torn.
        if torn > (storing.len() + copy.damaged.len()) as u64 {
            return wrong(format!(
                "subscriber {subscriber}, stream {stream}: {torn} numbers are reported as torn, {} \
                 were on their way and {} damaged",
                storing.len(),
                copy.damaged.len()
            ));
        }
        let torn = torn.min(storing.len() as u64);
        if torn > 0 {
            let last = end.and_then(|at| it.order(at));
            let before = storing.into_iter().filter(|at| it.order(*at) < last);
            copy.maybe_torn.extend(before);
            copy.torn += torn;
        }
        Ok(())
    }

    fn reopened(
        &mut self,
        subscriber: usize,
        stream: usize,
        newest: Option<At>,
        end: Option<At>,
        allows: Allows,
    ) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let copy = self
            .copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams");
        let keep = match newest {
            None => 0,
            Some(newest) => match copy.stored.iter().rposition(|at| *at == newest) {
                Some(place) => place + 1,
                // Safe before it was reported.
                None if !copy.rolled => copy
                    .stored
                    .iter()
                    .position(|at| it.order(*at) > it.order(newest))
                    .unwrap_or(copy.stored.len()),
                None => copy.stored.len(),
            },
        };
        // Damage before the end is requested again; the elements after the end are sent again
        // anyway.
        let end = end.and_then(|at| it.order(at));
        let before_end = copy.stored[keep..].iter();
        let keep = keep + before_end.take_while(|at| it.order(**at) <= end).count();
        let missing = copy.stored.split_off(keep);
        copy.has = copy.stored.iter().copied().collect();
        if let Some(newest) = newest.filter(|at| !copy.has.contains(at)) {
            copy.stored.push(newest);
            copy.has.insert(newest);
        }
        // A report of a loss lasts once the position after it is safe. An earlier one is forgotten: the numbers are
        // reported again, or their elements come if the origin has them again.
        copy.said.retain(|at, _| it.order(*at) <= end);
        if allows == Allows::Loss {
            copy.warned = true;
            copy.rolled = true;
            copy.damaged.clone_from(&copy.ever_damaged);
            return Ok(());
        }
        copy.stored_again += missing.len() as u64;
        match missing.iter().find(|at| !copy.damaged.contains(at)) {
            Some(at) => wrong(format!(
                "subscriber {subscriber}, stream {stream}: {at:?} was stored and is missing after a \
                 restart (newest {newest:?})"
            )),
            None => Ok(()),
        }
    }

    fn acknowledged(&mut self, subscriber: usize, stream: usize, at: At) -> Result<(), Violation> {
        let reached = self.copy(subscriber, stream).reached;
        let it = &self.streams[stream];
        let order = it.order(at);
        if order.is_some() && (order <= reached || it.only_lost_between(reached, at)) {
            return Ok(());
        }
        wrong(format!(
            "subscriber {subscriber}, stream {stream}: {at:?} was acknowledged, safe is only \
             {reached:?} (epoch by order, number)"
        ))
    }

    fn lost(
        &mut self,
        subscriber: usize,
        stream: usize,
        epoch: u64,
        numbers: std::ops::Range<u64>,
        reason: Reason,
    ) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let name = format!("subscriber {subscriber}, stream {stream}");
        self.reports[subscriber].lost += numbers.end.saturating_sub(numbers.start);
        let copy = self
            .copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams");
        for number in numbers {
            let at = it.place(epoch, number);
            if !it.is_lost(at, reason) {
                return wrong(format!(
                    "{name}: {at:?} is reported as lost ({reason:?}), but it is not"
                ));
            }
            let last = copy.stored.last().and_then(|last| it.order(*last));
            if copy.has.contains(&at) || !copy.warned && last >= it.order(at) {
                return wrong(format!(
                    "{name}: {at:?} is reported as lost after it was passed"
                ));
            }
            copy.said.insert(at, reason);
            copy.reached = copy.reached.max(it.order(at));
        }
        Ok(())
    }

    fn rolled_back(&mut self, subscriber: usize, stream: usize) -> Result<(), Violation> {
        let it = &self.streams[stream];
        let copy = self
            .copies
            .get_mut(&(subscriber, stream))
            .expect("the judge was made for all subscribers and streams");
        copy.warned = true;
        copy.rolled = true;
        match copy.stored.last() {
            Some(last) if !it.continued_without(*last) => wrong(format!(
                "subscriber {subscriber}, stream {stream}: a rollback was reported, but the origin has \
                 {last:?}"
            )),
            _ => Ok(()),
        }
    }

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
