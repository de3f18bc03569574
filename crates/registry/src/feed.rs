//! The change feed: publications and removals by revision, filtered by the reader's access.
//!
//! The revision of a change is the position of its record in the journal, so it survives a restart.
//! The feed remembers the newest [`FEED_CAPACITY`] changes; a subscriber that asks for older ones
//! receives [`FeedItem::Resync`] and reads the state again. When a registry is opened, the feed is
//! filled from the journal: it has the changes after the newest snapshot that was written.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use chappe_identity::Principal;

use crate::entity::EntityKind;
use crate::rights::{OwnedRule, Right};
use crate::watch::Predicates;

/// Maximum number of remembered changes. At one change a second they cover nearly three hours of
/// absence, at about 200 bytes each.
pub const FEED_CAPACITY: usize = 10_000;

/// A change of an entity, as visible to the subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entity was published, changed, or became visible.
    Published {
        /// Its key.
        key: String,
        /// Its kind.
        kind: EntityKind,
        /// Whether the subscriber could not see it before.
        is_new: bool,
    },
    /// The entity was removed, or is no longer visible.
    Removed {
        /// Its key.
        key: String,
        /// Its kind.
        kind: EntityKind,
    },
}

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem {
    /// A change with its revision.
    Change {
        /// Position up to which the subscriber has read; subscribe from this plus one to continue
        /// after it. The changes of one batch have one position: before the last of them this is
        /// the position before, so a subscriber that continues there reads the batch again.
        revision: u64,
        /// The change.
        change: Change,
    },
    /// Changes before `revision` are no longer remembered (or were never made: the registry is
    /// older than the subscriber expects). Read the state again; the feed continues from here.
    Resync {
        /// First revision that follows.
        revision: u64,
    },
}

/// A remembered change, with the access rules that decide who may see it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) kind: EntityKind,
    /// The entity before, if it existed.
    pub(crate) before: Option<Side>,
    /// The entity after, if it exists.
    pub(crate) after: Option<Side>,
    /// The predicates of its triples before and after.
    pub(crate) predicates: Predicates,
    /// Only its rights changed, which concerns those who administer it and those who may see it only now, or
    /// no longer.
    pub(crate) is_of_rights: bool,
}

/// An entity before or after a change.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) rule: OwnedRule,
}

impl Side {
    fn is_seen_by(&self, principal: &Principal) -> bool {
        self.rule.permits(principal, Right::Read)
    }
}

/// A change as far as a subscriber may see it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) revision: u64,
    pub(crate) key: String,
    pub(crate) kind: EntityKind,
    /// Its name before, if the subscriber could see it then.
    pub(crate) name_before: Option<String>,
    /// Whether the subscriber can see it after the change.
    pub(crate) is_seen: bool,
    pub(crate) predicates: Predicates,
}

/// What a subscription reads next.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Seen(Seen),
    Resync(u64),
}

impl Entry {
    fn seen_by(&self, principal: &Principal, revision: u64) -> Option<Seen> {
        let seen = |side: &Option<Side>| {
            let side = side.as_ref().filter(|side| side.is_seen_by(principal));
            side.map(|side| side.name.clone())
        };
        let (name_before, is_seen) = (seen(&self.before), seen(&self.after).is_some());
        let administers = |side: &Option<Side>| {
            let mut side = side.iter();
            side.any(|side| side.rule.permits(principal, Right::Administer))
        };
        if self.is_of_rights
            && is_seen
            && name_before.is_some()
            && !administers(&self.before)
            && !administers(&self.after)
        {
            return None;
        }
        (is_seen || name_before.is_some()).then(|| Seen {
            revision,
            key: self.key.clone(),
            kind: self.kind,
            name_before,
            is_seen,
            predicates: self.predicates,
        })
    }
}

impl From<Item> for FeedItem {
    fn from(item: Item) -> Self {
        match item {
            Item::Resync(revision) => Self::Resync { revision },
            Item::Seen(seen) => {
                let (key, kind, revision) = (seen.key, seen.kind, seen.revision);
                let is_new = seen.name_before.is_none();
                let change = match seen.is_seen {
                    true => Change::Published { key, kind, is_new },
                    false => Change::Removed { key, kind },
                };
                Self::Change { revision, change }
            }
        }
    }
}

#[derive(Default)]
struct State {
    /// Oldest first, by increasing revision.
    entries: VecDeque<(u64, Entry)>,
    /// All changes from this revision on are remembered.
    complete_from: u64,
    last: u64,
    wakers: BTreeMap<u64, Waker>,
    subscriptions: u64,
    forgotten: u64,
}

/// The shared list of remembered changes.
#[derive(Clone, Default)]
pub(crate) struct Feed {
    state: Arc<Mutex<State>>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the feed after `revision`: earlier changes are known only as state.
    pub(crate) fn start_after(&self, revision: u64) {
        let mut state = self.lock();
        state.entries.clear();
        state.last = state.last.max(revision);
        state.complete_from = state.last + 1;
    }

    /// Forgets the changes up to `revision`, which is part of a snapshot: what they changed may be missing.
    pub(crate) fn forget_through(&self, revision: u64) {
        let mut state = self.lock();
        state.last = state.last.max(revision);
        state.entries.clear();
        state.complete_from = state.complete_from.max(revision + 1);
    }

    /// Adds the changes of `revision`; none if it changed nothing visible to any subscriber.
    pub(crate) fn push(&self, revision: u64, entries: Vec<Entry>) {
        let wakers = {
            let mut state = self.lock();
            state.last = state.last.max(revision);
            if entries.is_empty() {
                return;
            }
            for entry in entries {
                if state.entries.len() >= FEED_CAPACITY
                    && let Some((oldest, _)) = state.entries.pop_front()
                {
                    state.complete_from = oldest + 1;
                    state.forgotten += 1;
                }
                state.entries.push_back((revision, entry));
            }
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// The remembered changes of the entity `key`, oldest first, and the first revision of which all changes are
    /// remembered.
    pub(crate) fn of_key(&self, key: &str) -> (Vec<(u64, Entry)>, u64) {
        let state = self.lock();
        let entries = state.entries.iter().filter(|(_, entry)| entry.key == key);
        (entries.cloned().collect(), state.complete_from.max(1))
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.lock().forgotten
    }

    /// Wakes all subscribers that wait: a change may be due.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// A subscription that calls `before_reading` first: it makes changes that are due.
    pub(crate) fn subscribe(
        &self,
        from: u64,
        principal: Principal,
        before_reading: Arc<dyn Fn() + Send + Sync>,
    ) -> Subscription {
        let mut state = self.lock();
        state.subscriptions += 1;
        Subscription {
            feed: self.clone(),
            id: state.subscriptions,
            next: from,
            delivered: 0,
            principal,
            before_reading,
        }
    }
}

/// A reader of the change feed. It has no queue of its own: a slow reader costs nothing, and
/// receives [`FeedItem::Resync`] when the changes it has not read are no longer remembered.
pub struct Subscription {
    feed: Feed,
    id: u64,
    next: u64,
    /// How many changes of revision `next` were read already.
    delivered: usize,
    principal: Principal,
    before_reading: Arc<dyn Fn() + Send + Sync>,
}

impl Subscription {
    /// The next item, if one is available.
    pub fn try_next(&mut self) -> Option<FeedItem> {
        (self.before_reading)();
        let feed = self.feed.clone();
        let state = feed.lock();
        self.next_item(&state).map(FeedItem::from)
    }

    /// From now on reads as this principal.
    pub(crate) fn set_principal(&mut self, principal: Principal) {
        self.principal = principal;
    }

    /// Position up to which all changes are read.
    pub(crate) fn read_through(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Whether the last item was one of a batch of which more may follow.
    pub(crate) fn is_inside_batch(&self) -> bool {
        self.delivered > 0
    }

    fn next_item(&mut self, state: &State) -> Option<Item> {
        if self.next < state.complete_from || self.next > state.last.saturating_add(1) {
            self.next = state.last + 1;
            self.delivered = 0;
            return Some(Item::Resync(self.next));
        }
        let start = state
            .entries
            .partition_point(|(revision, _)| *revision < self.next);
        let start = (start + self.delivered).min(state.entries.len());
        let mut entries = state.entries.range(start..).peekable();
        while let Some((revision, entry)) = entries.next() {
            let revision = *revision;
            let is_last = entries.peek().is_none_or(|(next, _)| *next != revision);
            if is_last {
                (self.next, self.delivered) = (revision + 1, 0);
            } else if self.next == revision {
                self.delivered += 1;
            } else {
                (self.next, self.delivered) = (revision, 1);
            }
            let read = if is_last { revision } else { revision - 1 };
            if let Some(seen) = entry.seen_by(&self.principal, read) {
                return Some(Item::Seen(seen));
            }
        }
        self.next = self.next.max(state.last + 1);
        self.delivered = 0;
        None
    }

    /// The next item; if none is available, the task is woken by the next change.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<FeedItem> {
        self.poll_item(context).map(FeedItem::from)
    }

    pub(crate) fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Item> {
        (self.before_reading)();
        let feed = self.feed.clone();
        let mut state = feed.lock();
        match self.next_item(&state) {
            Some(item) => Poll::Ready(item),
            None => {
                let known = state.wakers.get(&self.id);
                if !known.is_some_and(|known| known.will_wake(context.waker())) {
                    state.wakers.insert(self.id, context.waker().clone());
                }
                drop(state);
                // A change that came due before the waker was known wakes it now.
                (self.before_reading)();
                Poll::Pending
            }
        }
    }

    /// Waits for the next item.
    pub async fn next(&mut self) -> FeedItem {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.lock().wakers.remove(&self.id);
    }
}
