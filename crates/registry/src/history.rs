//! The history of an entity: its versions as the change feed remembers them and the journal stores them.
//!
//! The feed knows the newest changes ([`crate::FEED_CAPACITY`]) with the rules under which they happened; the journal
//! has what was published, as long as no snapshot has replaced it. A version is shown as the reader could see it at
//! that time: a version that was hidden is neither shown nor compared with. The history says where it begins, and
//! whether older changes may be gone. Who made a change is not recorded here.

use chappe_identity::Principal;
use oxrdf::Triple;

use crate::entity::Entity;
use crate::error::Error;
use crate::feed::Entry;
use crate::journal::Journal;
use crate::record::{Record, Step};
use crate::registry::Registry;
use crate::rights::Right;
use crate::vocabulary::wsdl;

/// Maximum number of versions of one page; reason: for each a record of the journal is read, up to
/// [`crate::MAX_BATCH_BYTES`].
pub const MAX_VERSIONS: usize = 100;
/// Maximum number of triples shown that a version added, and that it removed.
pub const MAX_SHOWN_TRIPLES: usize = 50;

/// A page of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The newest first.
    pub versions: Vec<Version>,
    /// The revision before which the next page starts, if there is one.
    pub next: Option<u64>,
    /// The first revision of which all changes are known.
    pub begins_at: u64,
    /// When that was, in nanoseconds since 1970, if the journal knows.
    pub begins_ns: Option<i64>,
    /// Whether changes before it are no longer remembered.
    pub is_cut: bool,
}

/// What happened to an entity, as far as the reader could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChange {
    /// It was published, or became visible.
    Appeared,
    /// It was changed.
    Changed,
    /// Only its rights changed.
    RightsChanged,
    /// It was removed, or is no longer visible.
    Disappeared,
}

impl VersionChange {
    /// Its name in the REST interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Changed => "changed",
            Self::RightsChanged => "rights",
            Self::Disappeared => "disappeared",
        }
    }
}

/// One change of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Position of the change in the journal.
    pub revision: u64,
    /// When it was made, in nanoseconds since 1970, if the journal knows.
    pub time_ns: Option<i64>,
    /// What happened.
    pub change: VersionChange,
    /// The name after it, or before it if the entity disappeared.
    pub name: String,
    /// What differs from the version before; `None` unless the journal has both.
    pub differences: Option<Differences>,
}

/// What differs between two versions, except rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Which of name, kind, types, scopes, owner and lease differ.
    pub fields: Vec<&'static str>,
    /// Triples that were added, up to [`MAX_SHOWN_TRIPLES`].
    pub added: Vec<Triple>,
    /// How many there are.
    pub added_count: usize,
    /// Triples that were removed, up to [`MAX_SHOWN_TRIPLES`].
    pub removed: Vec<Triple>,
    /// How many there are.
    pub removed_count: usize,
}

/// The changes of one revision.
struct Revision {
    revision: u64,
    first: Entry,
    last: Entry,
}

impl Revision {
    /// The changes of an entity, one for each revision, oldest first.
    fn all(entries: Vec<(u64, Entry)>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (revision, entry) in entries {
            match all.last_mut().filter(|last| last.revision == revision) {
                Some(same) => same.last = entry,
                None => all.push(Self {
                    revision,
                    first: entry.clone(),
                    last: entry,
                }),
            }
        }
        all
    }

    /// What the principal could see of it, with the name.
    fn seen_by(&self, principal: &Principal) -> Option<(VersionChange, String)> {
        let (before, after) = (self.first.before.as_ref(), self.last.after.as_ref());
        let sees = |right| move |side: &&crate::feed::Side| side.rule.permits(principal, right);
        let seen = [before, after].map(|side| side.filter(sees(Right::Read)));
        let change = match seen {
            [None, None] => return None,
            [None, Some(_)] => VersionChange::Appeared,
            [Some(_), None] => VersionChange::Disappeared,
            [Some(_), Some(_)] if self.last.is_of_rights && self.first.is_of_rights => {
                let mut sides = [before, after].into_iter().flatten();
                if !sides.any(|side| sees(Right::Administer)(&side)) {
                    return None;
                }
                VersionChange::RightsChanged
            }
            [Some(_), Some(_)] => VersionChange::Changed,
        };
        let name = seen[1].or(seen[0]).map(|side| side.name.clone());
        Some((change, name.unwrap_or_default()))
    }
}

impl Registry {
    /// The history of the entity `key` before a revision, the newest first, as far as `principal` could see its
    /// versions; `None` if it can see neither the entity nor any of its versions. Reads the journal, which may wait.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn history(
        &self,
        key: &str,
        principal: &Principal,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Option<History>, Error> {
        let limit = limit.clamp(1, MAX_VERSIONS);
        let is_visible = self.get(key, principal).is_some();
        let (entries, begins_at) = self.remembered(key);
        let revisions = Revision::all(entries);
        let seen = revisions
            .iter()
            .enumerate()
            .filter_map(|(index, revision)| {
                let (change, name) = revision.seen_by(principal)?;
                Some((index, change, name))
            });
        let seen: Vec<_> = seen.collect();
        if !is_visible && seen.is_empty() {
            return Ok(None);
        }
        let is_asked = |index: usize| {
            let revision = revisions.get(index).map(|it| it.revision);
            before.is_none_or(|before| revision.is_some_and(|revision| revision < before))
        };
        let mut asked = seen
            .into_iter()
            .rev()
            .filter(|(index, ..)| is_asked(*index));
        let mut versions = Vec::new();
        for (index, change, name) in asked.by_ref().take(limit) {
            let (Some(this), earlier) = (revisions.get(index), index.checked_sub(1)) else {
                continue;
            };
            let (time_ns, stored) = self.stored(this.revision, key)?;
            let differences = match change {
                VersionChange::Changed => {
                    let earlier = earlier.and_then(|index| revisions.get(index));
                    let earlier = match earlier {
                        Some(earlier) => self.stored(earlier.revision, key)?.1,
                        None => None,
                    };
                    Some(earlier.zip(stored)).flatten()
                }
                _ => None,
            };
            versions.push(Version {
                revision: this.revision,
                time_ns,
                change,
                name,
                differences: differences.map(|(old, new)| Differences::between(&old, &new)),
            });
        }
        let has_more = asked.next().is_some();
        let next = versions.last().filter(|_| has_more);
        Ok(Some(History {
            next: next.map(|version| version.revision),
            versions,
            begins_at,
            begins_ns: self.stored(begins_at, key)?.0,
            is_cut: begins_at > 1,
        }))
    }

    /// The time of a record and the entity as it published it, if the journal has it.
    fn stored(&self, revision: u64, key: &str) -> Result<(Option<i64>, Option<Entity>), Error> {
        let journal: &dyn Journal = self.journal();
        let stamped = match journal.stamped(revision) {
            Ok(Some(stamped)) => stamped,
            Ok(None) => return Ok((None, None)),
            // A snapshot has replaced it.
            Err(_) if revision < journal.snapshot() => return Ok((None, None)),
            Err(error) => return Err(error.into()),
        };
        let record = Record::decode(&stamped.record).map_err(|error| error.at(revision))?;
        Ok((stamped.time_ns, published(record, key)))
    }
}

/// The last entity `key` that a record publishes.
fn published(record: Record, key: &str) -> Option<Entity> {
    match record {
        Record::Publish(entity) => Some(entity).filter(|entity| entity.key == key),
        Record::Batch(steps) => steps.into_iter().rev().find_map(|step| match step {
            Step::Publish(entity) if entity.key == key => Some(entity),
            _ => None,
        }),
        _ => None,
    }
}

impl Differences {
    fn between(old: &Entity, new: &Entity) -> Self {
        let fields = [
            ("name", old.name != new.name),
            ("kind", old.kind != new.kind),
            ("types", old.types != new.types),
            ("scopes", old.scopes != new.scopes),
            ("owner", old.owner != new.owner),
            ("lease", old.lease_s != new.lease_s),
        ];
        let fields = fields.into_iter().filter(|(_, differs)| *differs);
        let (added, added_count) = missing(&old.triples, &new.triples);
        let (removed, removed_count) = missing(&new.triples, &old.triples);
        Self {
            fields: fields.map(|(name, _)| name).collect(),
            added,
            added_count,
            removed,
            removed_count,
        }
    }
}

/// The first of the triples of `in_these` that are not in `from`, and how many there are. The bytes of a document
/// are counted and not shown.
fn missing(from: &[Triple], in_these: &[Triple]) -> (Vec<Triple>, usize) {
    let known: std::collections::HashSet<&Triple> = from.iter().collect();
    let missing = in_these.iter().filter(|triple| !known.contains(triple));
    let count = missing.clone().count();
    let shown = missing.filter(|triple| triple.predicate != wsdl::CONTENT);
    (shown.take(MAX_SHOWN_TRIPLES).cloned().collect(), count)
}
