//! The model: what the events of a run make of its streams, their copies and the reports about them.

use std::collections::{BTreeMap, BTreeSet};

use super::copy::Copy;
use super::stream::Stream;
use super::{Allows, At, Event, Reason, Violation, wrong};

/// The reports to a subscriber, and the product's counts of them.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) lost: u64,
    pub(super) counted: Option<u64>,
}

/// Judges a history; see the [module documentation](super).
#[derive(Debug, Default)]
pub struct Judge {
    pub(super) streams: Vec<Stream>,
    pub(super) copies: BTreeMap<(usize, usize), Copy>,
    pub(super) reports: Vec<Reports>,
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
}
