//! The streams that a source of a virtual sensor is bound to, and why.
//!
//! The registry finds the streams that match a source. The binding selects among them, keeps a stream
//! while it matches, unbinds it when it no longer does, and binds the replacement. This is pure logic: it
//! sees neither registry nor clock, and the same candidates give the same binding in any order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{StreamSchema, Timestamp};

/// The selection among the matching streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindingPolicy {
    /// One: the one already bound, else the earliest registered, then by name.
    #[default]
    One,
    /// All of them: their union, distinguished by the column `stream`.
    All,
}

/// A stream that matches a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub stream: String,
    /// The key of the device that produces it, if one does.
    pub device: Option<String>,
    /// Its position in the order of registration, such as the registry's revision.
    pub registered: u64,
    /// The reason why it matches, as text: `observes urn:..., type ...`.
    pub why: String,
    /// The schema of its elements.
    pub schema: StreamSchema,
}

/// A bound stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The stream.
    pub candidate: Candidate,
    /// The time of binding.
    pub since: Timestamp,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingChangeKind {
    /// The stream was bound.
    Bound,
    /// The stream was unbound.
    Unbound,
}

/// A change of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingChange {
    /// The time.
    pub at: Timestamp,
    /// The kind.
    pub kind: BindingChangeKind,
    /// The source's alias.
    pub alias: String,
    /// The stream.
    pub candidate: Candidate,
    /// The reason, as text.
    pub reason: String,
}

/// Bounds of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingLimits {
    /// Maximum number of streams bound at once under [`BindingPolicy::All`]. 1,000: those of a ward
    /// or a hall.
    pub streams: usize,
    /// Number of remembered changes. 100: a day of a device that appears and leaves every half
    /// hour.
    pub history: usize,
}

impl Default for BindingLimits {
    fn default() -> Self {
        Self {
            streams: 1_000,
            history: 100,
        }
    }
}

/// The binding of one source.
#[derive(Debug, Clone)]
pub struct Binding {
    alias: String,
    policy: BindingPolicy,
    limits: BindingLimits,
    bound: BTreeMap<String, Bound>,
    history: VecDeque<BindingChange>,
    /// Matching streams at the last update, bound or not.
    matching: usize,
    left_out_total: u64,
}

impl Binding {
    /// A source without a stream.
    #[must_use]
    pub fn new(alias: impl Into<String>, policy: BindingPolicy, limits: BindingLimits) -> Self {
        Self {
            alias: alias.into(),
            policy,
            limits,
            bound: BTreeMap::new(),
            history: VecDeque::new(),
            matching: 0,
            left_out_total: 0,
        }
    }

    /// Applies the streams that match now; returns the changes, unbinding first.
    ///
    /// A bound stream whose schema or device changed is unbound and bound again. Of two candidates
    /// with the same stream, the one registered earlier counts.
    pub fn update(&mut self, now: Timestamp, candidates: &[Candidate]) -> Vec<BindingChange> {
        let chosen = self.choose(candidates);
        let mut changes = Vec::new();
        let unbound: Vec<String> = self
            .bound
            .iter()
            .filter(|(stream, bound)| !chosen.get(*stream).is_some_and(|c| same(c, bound)))
            .map(|(stream, _)| stream.clone())
            .collect();
        let matching: BTreeSet<&str> = match unbound.is_empty() {
            true => BTreeSet::new(),
            false => candidates.iter().map(|c| &*c.stream).collect(),
        };
        for stream in unbound {
            let Some(bound) = self.bound.remove(&stream) else {
                continue;
            };
            let reason = match chosen.get(&stream) {
                Some(_) => "its fields or its device changed".to_owned(),
                None if matching.contains(&*stream) => {
                    format!("the source takes no more than {}", self.limits.streams)
                }
                None => match &bound.candidate.device {
                    Some(device) => {
                        format!("it was removed, or no longer matches; its device: {device}")
                    }
                    None => "it was removed, or no longer matches".to_owned(),
                },
            };
            changes.push(self.change(now, BindingChangeKind::Unbound, bound.candidate, reason));
        }
        for (stream, candidate) in chosen {
            if self.bound.contains_key(&stream) {
                continue;
            }
            let replaces = changes
                .iter()
                .find(|change| change.candidate.stream != stream)
                .filter(|_| self.policy == BindingPolicy::One);
            let reason = match replaces {
                Some(old) => format!("{}; replaces {}", candidate.why, old.candidate.stream),
                None => candidate.why.clone(),
            };
            let candidate = candidate.clone();
            let bound = Bound {
                candidate: candidate.clone(),
                since: now,
            };
            self.bound.insert(stream, bound);
            changes.push(self.change(now, BindingChangeKind::Bound, candidate, reason));
        }
        changes
    }

    /// The bound streams, by name.
    pub fn bound(&self) -> impl Iterator<Item = &Bound> {
        self.bound.values()
    }

    /// Whether a stream is bound.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        !self.bound.is_empty()
    }

    /// The latest changes, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &BindingChange> {
        self.history.iter()
    }

    /// The source's alias.
    #[must_use]
    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// The number of streams that matched at the last update.
    #[must_use]
    pub fn matching(&self) -> usize {
        self.matching
    }

    /// The number of times that a matching stream was left out because of [`BindingLimits::streams`].
    #[must_use]
    pub fn left_out_total(&self) -> u64 {
        self.left_out_total
    }

    /// The reason why no stream is bound, as text; `None` when one is.
    #[must_use]
    pub fn unbound_reason(&self) -> Option<String> {
        if self.is_bound() {
            return None;
        }
        match self.history.back() {
            None => Some("no stream has matched so far".into()),
            Some(last) => Some(format!(
                "no stream matches; the last one, {}: {}",
                last.candidate.stream, last.reason
            )),
        }
    }

    fn choose<'c>(&mut self, candidates: &'c [Candidate]) -> BTreeMap<String, &'c Candidate> {
        let mut by_stream: BTreeMap<&str, &Candidate> = BTreeMap::new();
        for candidate in candidates {
            let known = by_stream.entry(&candidate.stream).or_insert(candidate);
            if rank(candidate) < rank(known) {
                *known = candidate;
            }
        }
        self.matching = by_stream.len();
        let mut order: Vec<&Candidate> = by_stream.into_values().collect();
        // Bound streams come first, so that none is unbound for a new one.
        order.sort_by_key(|c| (!self.bound.contains_key(&c.stream), rank(c)));
        let most = match self.policy {
            BindingPolicy::One => 1,
            BindingPolicy::All => self.limits.streams,
        };
        if self.policy == BindingPolicy::All {
            self.left_out_total += order.len().saturating_sub(most) as u64;
        }
        order
            .into_iter()
            .take(most)
            .map(|candidate| (candidate.stream.clone(), candidate))
            .collect()
    }

    fn change(
        &mut self,
        at: Timestamp,
        kind: BindingChangeKind,
        candidate: Candidate,
        reason: String,
    ) -> BindingChange {
        let change = BindingChange {
            at,
            kind,
            alias: self.alias.clone(),
            candidate,
            reason,
        };
        while self.history.len() >= self.limits.history.max(1) {
            self.history.pop_front();
        }
        self.history.push_back(change.clone());
        change
    }
}

/// Total, so that the choice does not depend on the order in which candidates are named.
fn rank(candidate: &Candidate) -> (u64, &str, Option<&str>, &str) {
    let device = candidate.device.as_deref();
    (
        candidate.registered,
        &candidate.stream,
        device,
        &candidate.why,
    )
}

fn same(candidate: &Candidate, bound: &Bound) -> bool {
    candidate.schema == bound.candidate.schema && candidate.device == bound.candidate.device
}
