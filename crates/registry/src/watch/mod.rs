//! Subscriptions to an entity, a search or a query, as a machine without input and output.
//!
//! A [`Watch`] reads the change feed and says what was added, changed and removed, as far as its
//! subscriber may see it at that moment: the caller passes the principal at each step. It has no queue
//! that grows with the changes. A subscriber that is too slow, was away for too long, or whose rights
//! changed gets [`WatchEvent::Resync`] and then the whole present state, up to [`WatchEvent::Synced`]:
//! nothing is ever left out silently.
//!
//! A [`Mark`] says how far the subscriber has read. It survives a restart of the registry.
//!
//! The answer of a query is computed again only after a change of triples with predicates that the
//! query reads, and only when the caller says so ([`WatchStep::Evaluate`]): time and threads are its own.
//! Rows are compared without the labels of blank nodes, which differ from answer to answer.
//!
//! ```
//! use chappe_identity::Principal;
//! use chappe_registry::{
//!     Entity, EntityKind, MemoryJournal, Registry, Search, WatchEvent, WatchStart, WatchStep, WatchSubject,
//! };
//!
//! let registry = Registry::open(MemoryJournal::new())?;
//! let devices = Search { kind: Some(EntityKind::Device), ..Search::default() };
//! let anyone = Principal::Anonymous;
//! let subject = WatchSubject::Search(Box::new(devices));
//! let mut watch = registry.watch(subject, WatchStart::Now, &anyone).unwrap();
//! registry.publish(Entity::new("urn:uuid:1", EntityKind::Device, "Heart monitor"))?.wait()?;
//! let Some(WatchStep::Event(item)) = watch.try_step(&anyone) else { panic!() };
//! assert!(matches!(item.event, WatchEvent::Added { key, .. } if key == "urn:uuid:1"));
//! # Ok::<(), chappe_registry::Error>(())
//! ```

mod interest;
mod mark;
mod rows;

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::task::{Context, Poll, Waker};

use chappe_identity::Principal;

use crate::entity::EntityKind;
use crate::feed::{Item, Seen, Subscription};
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::partition::fold;
use crate::registry::Registry;
use crate::results::SparqlAnswer;
use crate::search::Search;
use crate::sparql::SparqlRequest;

use interest::Interest;
pub(crate) use interest::Predicates;
pub use mark::Mark;
use rows::Rows;

/// Entities of a search whose keys a subscription remembers, by 8 bytes each. With more, an event
/// `Removed` may name an entity that did not match before.
pub const MAX_KNOWN: usize = 65_536;
/// Entities read at a time while the present state is listed.
const LISTED_AT_ONCE: usize = 256;

/// What a subscriber asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchSubject {
    /// The entity with this key, whether or not it exists.
    Entity(String),
    /// The entities that match; the limit and the position in the order do not count.
    Search(Box<Search>),
    /// The rows of a SELECT query, or the answer of an ASK query.
    Query(String),
}

/// Where a subscription starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the changes from now on.
    Now,
    /// With the present state.
    Present,
    /// After what a former subscription delivered.
    After(Mark),
}

/// Why the present state follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncReason {
    /// The subscriber asked for it.
    Requested,
    /// The changes since its last event are no longer remembered.
    TooOld,
    /// The subscriber now sees other entities.
    Rights,
    /// The answer of the query changed while the subscriber was away.
    Answer,
}

impl ResyncReason {
    /// Its name in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::TooOld => "too-old",
            Self::Rights => "rights-changed",
            Self::Answer => "answer-changed",
        }
    }
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The subscriber forgets what it has: the present state follows, up to [`WatchEvent::Synced`].
    Resync(ResyncReason),
    /// All of the present state was delivered.
    Synced,
    /// An entity is new, or became visible, or matches now.
    Added {
        /// Its key.
        key: String,
        /// Its kind.
        kind: EntityKind,
        /// Its name.
        name: String,
    },
    /// An entity changed.
    Changed {
        /// Its key.
        key: String,
        /// Its kind.
        kind: EntityKind,
        /// Its name.
        name: String,
    },
    /// An entity was removed, or is no longer visible, or no longer matches.
    Removed {
        /// Its key.
        key: String,
        /// Its kind.
        kind: EntityKind,
        /// Its last name that the subscriber could see.
        name: String,
    },
    /// A row that the answer did not have before: an answer with this row alone.
    RowAdded(SparqlAnswer),
    /// A row that the answer no longer has.
    RowRemoved(SparqlAnswer),
    /// The answer of an ASK query.
    Answer(bool),
}

/// An event with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchItem {
    /// What happened.
    pub event: WatchEvent,
    /// Position of the change in the journal; while the present state is delivered, the position at its
    /// start.
    pub position: u64,
    /// From where to resume after this event; absent within a group that is delivered again as a whole.
    pub mark: Option<Mark>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStep {
    /// Deliver this.
    Event(WatchItem),
    /// Call [`Watch::evaluate`] when there is time for it.
    Evaluate,
}

/// A subscription; see the documentation of the module.
pub struct Watch {
    registry: Registry,
    subject: WatchSubject,
    principal: Principal,
    feed: Subscription,
    /// Hashes of the keys that the subscriber has; `None` if they are too many or unknown.
    known: Option<HashSet<u64>>,
    /// Whether it resumed, and the keys are still unknown.
    has_resumed: bool,
    listing: Option<Listing>,
    queue: VecDeque<WatchItem>,
    query: Option<Query>,
}

/// The present state on its way to the subscriber.
struct Listing {
    position: u64,
    /// Name and key of the last entity read.
    after: Option<(String, String)>,
    known: Option<HashSet<u64>>,
}

/// What a subscription to a query knows.
struct Query {
    text: String,
    interest: Interest,
    is_due: bool,
    /// Why the whole answer is delivered.
    resync: Option<ResyncReason>,
    /// The rows that the subscriber has, by their hash, if it resumes.
    resumed: Option<u64>,
    rows: Rows,
    /// See [`Watch::inferring`].
    inferred_by: Option<Vec<String>>,
}

impl Registry {
    /// Subscribes to what `subject` describes.
    ///
    /// # Errors
    /// The query cannot be parsed, or is not supported.
    pub fn watch(
        &self,
        subject: WatchSubject,
        start: WatchStart,
        principal: &Principal,
    ) -> Result<Watch, SparqlError> {
        let query = match &subject {
            WatchSubject::Query(text) => Some(Query {
                text: text.clone(),
                interest: Interest::of(&crate::sparql::parsed(text)?),
                is_due: true,
                resync: None,
                resumed: None,
                rows: Rows::default(),
                inferred_by: None,
            }),
            _ => None,
        };
        let revision = self.revision();
        let from = match start {
            WatchStart::After(mark) => mark.position,
            WatchStart::Now | WatchStart::Present => revision,
        };
        let mut watch = Watch {
            registry: self.clone(),
            principal: principal.clone(),
            feed: self.subscribe(from.saturating_add(1), principal.clone()),
            known: None,
            has_resumed: matches!(start, WatchStart::After(_)) && query.is_none(),
            listing: None,
            queue: VecDeque::new(),
            subject,
            query,
        };
        match start {
            WatchStart::Now => watch.known = watch.present_keys(),
            WatchStart::Present => watch.resync(ResyncReason::Requested),
            WatchStart::After(mark) => match &mut watch.query {
                Some(query) => query.resumed = Some(mark.check.unwrap_or_default()),
                // With other rights it may lack entities that did not change.
                None if mark.check.is_some_and(|check| check != hash_of(principal)) => {
                    watch.resync(ResyncReason::Rights);
                }
                None => {}
            },
        }
        Ok(watch)
    }
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Watch {
    /// Follows subclasses and subproperties in a query, as [`SparqlRequest::inferred_by`] does. Every change may
    /// then concern the query. A search is widened before ([`Registry::widened`]).
    #[must_use]
    pub fn inferring(mut self, authors: Vec<String>) -> Self {
        if let Some(query) = &mut self.query {
            query.interest = Interest::all();
            query.inferred_by = Some(authors);
        }
        self
    }

    /// From where to resume now, if everything before was delivered.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        if self.listing.is_some() || !self.queue.is_empty() {
            return None;
        }
        let position = self.feed.read_through();
        let Some(query) = &self.query else {
            return Some(self.mark_at(position));
        };
        let check = Some(query.rows.hash());
        (!query.is_due).then_some(Mark { position, check })
    }

    /// What to do next, if anything, for a subscriber that is this principal now.
    pub fn try_step(&mut self, principal: &Principal) -> Option<WatchStep> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll_step(&mut context, principal) {
            Poll::Ready(step) => Some(step),
            Poll::Pending => None,
        }
    }

    /// Waits for what to do next.
    pub async fn step(&mut self, principal: &Principal) -> WatchStep {
        poll_fn(|context| self.poll_step(context, principal)).await
    }

    /// What to do next; if nothing, the task is woken by the next change.
    pub fn poll_step(
        &mut self,
        context: &mut Context<'_>,
        principal: &Principal,
    ) -> Poll<WatchStep> {
        if *principal != self.principal {
            self.principal = principal.clone();
            self.feed.set_principal(principal.clone());
            self.resync(ResyncReason::Rights);
        }
        loop {
            // The rest of a batch may not concern the subscriber: then this event is the last of it.
            let may_be_last =
                self.query.is_none() && self.queue.len() == 1 && self.feed.is_inside_batch();
            if !may_be_last && let Some(item) = self.queue.pop_front() {
                return Poll::Ready(WatchStep::Event(item));
            }
            if self.listing.is_some() {
                self.list();
                continue;
            }
            match self.feed.poll_item(context) {
                Poll::Ready(Item::Resync(_)) => self.resync(ResyncReason::TooOld),
                Poll::Ready(Item::Seen(seen)) => {
                    self.see(seen);
                    if self.query.is_none() {
                        self.mark_last();
                    }
                }
                Poll::Pending if may_be_last => self.mark_last(),
                Poll::Pending if self.query.as_ref().is_some_and(|query| query.is_due) => {
                    return Poll::Ready(WatchStep::Evaluate);
                }
                Poll::Pending => {
                    self.learn_keys();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Computes the answer of a query again; the next steps deliver what changed. Blocks the calling
    /// thread.
    ///
    /// # Errors
    /// The query fails, or its answer exceeds a limit.
    pub fn evaluate(
        &mut self,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<(), SparqlError> {
        let position = self.feed.read_through();
        let Some(query) = &mut self.query else {
            return Ok(());
        };
        let request = SparqlRequest {
            inferred_by: query.inferred_by.clone(),
            ..query.text.as_str().into()
        };
        let answer = self
            .registry
            .answer(&request, &self.principal, limits, interrupt);
        let (answer, _) = answer?;
        let rows = Rows::of(answer)?;
        query.is_due = false;
        let mut resync = query.resync.take();
        if let Some(resumed) = query.resumed.take()
            && resumed != rows.hash()
        {
            resync.get_or_insert(ResyncReason::Answer);
        }
        let mark = Mark {
            position,
            check: Some(rows.hash()),
        };
        let first = query.rows.is_new();
        let events = match resync {
            Some(reason) => {
                let start = [WatchEvent::Resync(reason)];
                let all = rows.events_since(&Rows::default());
                start
                    .into_iter()
                    .chain(all)
                    .chain([WatchEvent::Synced])
                    .collect()
            }
            // The subscriber has these rows, or did not ask for them.
            None if first => Vec::new(),
            None => rows.events_since(&query.rows),
        };
        query.rows = rows;
        let last = events.len().saturating_sub(1);
        for (index, event) in events.into_iter().enumerate() {
            self.queue.push_back(WatchItem {
                event,
                position,
                mark: (index == last).then_some(mark),
            });
        }
        Ok(())
    }

    /// Delivers the present state.
    fn resync(&mut self, reason: ResyncReason) {
        self.queue.clear();
        if let Some(query) = &mut self.query {
            query.is_due = true;
            // In the other cases the rows that the subscriber has are known, and are compared.
            if reason == ResyncReason::Requested {
                query.resync = Some(reason);
            }
            return;
        }
        let position = self.feed.read_through();
        self.known = None;
        self.listing = Some(Listing {
            position,
            after: None,
            known: Some(HashSet::new()),
        });
        self.push(position, WatchEvent::Resync(reason), false);
    }

    fn mark_at(&self, position: u64) -> Mark {
        let check = Some(hash_of(&self.principal));
        Mark { position, check }
    }

    /// After the last event everything up to here was read: a batch whose events are all delivered does not
    /// come again.
    fn mark_last(&mut self) {
        if self.feed.is_inside_batch() {
            return;
        }
        let mark = self.mark_at(self.feed.read_through());
        let last = self.queue.back_mut();
        if let Some(of_last) = last.and_then(|last| last.mark.as_mut()) {
            *of_last = mark;
        }
    }

    fn push(&mut self, position: u64, event: WatchEvent, is_marked: bool) {
        let mark = is_marked.then(|| self.mark_at(position));
        self.queue.push_back(WatchItem {
            event,
            position,
            mark,
        });
    }

    /// Reads the next part of the present state.
    fn list(&mut self) {
        let Some(mut listing) = self.listing.take() else {
            return;
        };
        let position = listing.position;
        let (entities, is_last) = match &self.subject {
            WatchSubject::Entity(key) => {
                let entity = self.registry.get(key, &self.principal);
                (entity.into_iter().collect(), true)
            }
            WatchSubject::Search(search) => {
                let search = Search {
                    after: listing.after.take(),
                    limit: Some(LISTED_AT_ONCE),
                    ..Search::clone(search)
                };
                let found = self.registry.search(&search, &self.principal);
                (found.entities, !found.truncated)
            }
            WatchSubject::Query(_) => (Vec::new(), true),
        };
        let last = entities.last();
        listing.after = last.map(|last| (last.name.clone(), last.key.clone()));
        for entity in entities {
            remember(&mut listing.known, &entity.key);
            let (key, kind, name) = (entity.key, entity.kind, entity.name);
            self.push(position, WatchEvent::Added { key, kind, name }, false);
        }
        if is_last || listing.after.is_none() {
            self.known = listing.known;
            self.push(position, WatchEvent::Synced, true);
        } else {
            self.listing = Some(listing);
        }
    }

    /// The hashes of the keys that match now.
    fn present_keys(&self) -> Option<HashSet<u64>> {
        let keys = match &self.subject {
            WatchSubject::Entity(key) => {
                let entity = self.registry.get(key, &self.principal);
                entity.into_iter().map(|entity| entity.key).collect()
            }
            WatchSubject::Search(search) => {
                let search = Search {
                    after: None,
                    limit: None,
                    ..Search::clone(search)
                };
                self.registry.search_keys(&search, &self.principal)
            }
            WatchSubject::Query(_) => Vec::new(),
        };
        let is_known = keys.len() <= MAX_KNOWN;
        is_known.then(|| keys.iter().map(hash_of).collect())
    }

    /// Once a subscriber that resumed has all changes, it has what matches now. A change that comes meanwhile is read
    /// first.
    fn learn_keys(&mut self) {
        let position = self.feed.read_through();
        if !self.has_resumed || self.registry.revision() != position {
            return;
        }
        let keys = self.present_keys();
        if self.registry.revision() == position {
            (self.known, self.has_resumed) = (keys, false);
        }
    }

    /// Whether an entity of this name may have matched.
    fn may_match(&self, name: &str) -> bool {
        let prefix = match &self.subject {
            WatchSubject::Search(search) => search.name_prefix.as_deref(),
            _ => None,
        };
        prefix.is_none_or(|prefix| fold(name).starts_with(&fold(prefix)))
    }

    /// Says what a change means for the subscriber.
    fn see(&mut self, seen: Seen) {
        let state = self.registry.snapshot();
        let is_match = match (&self.subject, &mut self.query) {
            (WatchSubject::Query(_), query) => {
                if let Some(query) = query
                    && query.interest.includes(seen.predicates)
                {
                    query.is_due = true;
                }
                return;
            }
            (WatchSubject::Entity(key), _) if *key != seen.key => return,
            (WatchSubject::Entity(_), _) => true,
            (WatchSubject::Search(search), _) => {
                crate::search::matches(&state, search, &self.principal, &seen.key)
            }
        };
        // Later changes may have followed: what counts is what the subscriber may see now.
        let now = is_match.then(|| self.registry.get(&seen.key, &self.principal));
        let name_before = seen.name_before.as_deref();
        let matched_before = name_before.is_some_and(|name| self.may_match(name));
        let event = match now.flatten() {
            Some(entity) => {
                let is_new = match &self.known {
                    Some(known) => !known.contains(&hash_of(&entity.key)),
                    None => !matched_before,
                };
                remember(&mut self.known, &entity.key);
                let (key, kind, name) = (entity.key, entity.kind, entity.name);
                match is_new {
                    true => WatchEvent::Added { key, kind, name },
                    false => WatchEvent::Changed { key, kind, name },
                }
            }
            None => {
                let had = match &mut self.known {
                    Some(known) => known.remove(&hash_of(&seen.key)),
                    None => matched_before,
                };
                if !had {
                    return;
                }
                let (key, kind) = (seen.key, seen.kind);
                let name = seen.name_before.unwrap_or_default();
                WatchEvent::Removed { key, kind, name }
            }
        };
        self.push(seen.revision, event, true);
    }
}

/// Remembers a key, or stops to remember any if they are too many.
fn remember(known: &mut Option<HashSet<u64>>, key: &str) {
    if let Some(keys) = known {
        keys.insert(hash_of(key));
        if keys.len() > MAX_KNOWN {
            *known = None;
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("subject", &self.subject)
            .field("mark", &self.mark())
            .finish_non_exhaustive()
    }
}
