//! A stream in the model: its elements at the origin.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{At, Counts, Reason, Violation, wrong};

/// A stream in the model.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Epochs in the order of their start.
    pub(super) epochs: Vec<u64>,
    /// The lineage of each epoch: it and its predecessors, oldest first, each with its first
    /// number. A restored old state begins a branch of its own.
    pub(super) lineages: HashMap<u64, Vec<(u64, u64)>>,
    /// The position of each content.
    pub(super) offered: HashMap<u64, At>,
    /// The contents that a position had before it was safe, newest last.
    pub(super) drafts: HashMap<At, u64>,
    /// The content of each position that a subscriber or the origin has seen.
    pub(super) seen: BTreeMap<At, u64>,
    pub(super) accepted: BTreeSet<At>,
    /// Lost without a report per number: an old state was restored.
    pub(super) undone: BTreeSet<At>,
    /// Lost at some time, to be reported.
    pub(super) damaged: BTreeSet<At>,
    /// Of these, positions that were not repaired.
    pub(super) missing: BTreeSet<At>,
    pub(super) put_back: BTreeSet<At>,
    pub(super) counts: Option<Counts>,
    pub(super) trimmed_before: u64,
    /// An old state was restored: its elements may have been lost in between.
    pub(super) restored: bool,
    pub(super) holds: Option<Vec<(At, u64)>>,
}

impl Stream {
    /// The index of a position in the order of the stream; none for an unknown epoch.
    pub(super) fn order(&self, at: At) -> Option<(usize, u64)> {
        let epoch = self.epochs.iter().position(|epoch| *epoch == at.epoch)?;
        Some((epoch, at.number))
    }

    /// Whether an epoch contains or follows a position.
    pub(super) fn continues(&self, epoch: u64, at: At) -> bool {
        let lineage = self.lineages.get(&epoch).map_or(&[][..], Vec::as_slice);
        let Some(place) = lineage.iter().position(|(it, _)| *it == at.epoch) else {
            return false;
        };
        let end = lineage.get(place + 1).map_or(u64::MAX, |(_, first)| *first);
        at.number >= lineage[place].1 && at.number < end
    }

    /// Whether the origin ever continued without a position that it had.
    pub(super) fn continued_without(&self, at: At) -> bool {
        let since = self.epochs.iter().skip_while(|epoch| **epoch != at.epoch);
        since.skip(1).any(|epoch| !self.continues(*epoch, at))
    }

    /// The position of a number in the newest lineage that has an epoch: a run of lost numbers is
    /// reported with one epoch, and may reach into others.
    pub(super) fn place(&self, epoch: u64, number: u64) -> At {
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

    pub(super) fn is_lost(&self, at: At, reason: Reason) -> bool {
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
    pub(super) fn only_lost_between(&self, reached: Option<(usize, u64)>, at: At) -> bool {
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
    pub(super) fn see(&mut self, stream: usize, at: At, content: u64) -> Result<(), Violation> {
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
