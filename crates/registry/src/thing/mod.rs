//! Thing Descriptions in the registry: the directory of things.
//!
//! A Thing Description is a JSON document; its entity, of the kind [`EntityKind::Thing`], has the
//! document's `id` as key. The entity keeps the document, with members that nobody here knows, in
//! normalized text (members sorted, no blanks), and its statements as triples of the W3C ontologies,
//! so that SPARQL finds things by title, type, affordance, form and unit. A document is kept with its
//! registration: when it was made and changed, and when it ends. Time is an argument, so who hosts
//! the registry removes what has ended ([`Registry::remove_expired_thing`]).
//!
//! Sources: Web of Things (WoT) Discovery, section 7.3, and Thing Description 1.1, both W3C
//! Recommendations of 5 December 2023; JSON Merge Patch (RFC 7396). No context is fetched; see
//! [`Fault`] and docs/reference/things.md for what is checked. Thing Models are refused.

mod fault;
mod integers;
mod names;
mod patch;
mod registration;
mod triples;
mod validation;

use chappe_identity::Principal;
use oxrdf::vocab::rdf;
use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use serde_json::{Value, json};

pub use fault::Fault;
pub use integers::long_integer;
pub use patch::{difference, merge};
pub use registration::{MAX_TTL_S, Registration};
pub use validation::MAX_DEPTH;

use crate::entity::{Entity, EntityKind};
use crate::error::Error;
use crate::limits::Room;
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::rights::Right;
use crate::state::State;
use crate::vocabulary::td;

/// Longest text of a document in bytes; reason: document and triples of an entity have 512 KiB.
pub const MAX_DOCUMENT_BYTES: usize = 128 * 1024;
/// Bytes of a part of a document's text; reason: the longest term of an entity has 16 KiB.
const PART_BYTES: usize = 15 * 1024;
/// Characters of a title that become the entity's name.
const NAME_CHARACTERS: usize = 200;
/// Namespace of the members of a sequence.
const MEMBER: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#_";

/// Who changes the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author<'a> {
    /// The name of the account, which owns what it registers.
    pub name: &'a str,
    /// In whose name it changes what exists: [`Right::Write`] decides.
    pub principal: &'a Principal,
}

/// Why the directory was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThingError {
    /// The document is no Thing Description.
    #[error("the Thing Description is not valid: {}", shown(.0))]
    Invalid(Vec<Fault>),
    /// The document is too long.
    #[error("the Thing Description has {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// Its normalized text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no thing with this id.
    #[error("there is no thing {0:?}")]
    Unknown(String),
    /// The id is the key of an entity of another kind.
    #[error("{key} is a {} of the registry, not a thing of the directory", .kind.as_str())]
    NotThing {
        /// The id.
        key: String,
        /// The kind of the entity.
        kind: EntityKind,
    },
    /// The registry refused the change.
    #[error(transparent)]
    Registry(#[from] Error),
}

fn shown(faults: &[Fault]) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}

/// A change of the directory in flight.
#[derive(Debug)]
#[must_use = "the change is acknowledged only when the publication resolves"]
pub struct Changed {
    /// Resolves once the change is durable and visible.
    pub publication: Publication,
    /// The patch from the document before; `None`: the thing is new, or was removed.
    pub patch: Option<Value>,
    /// Whether there was no such thing before.
    pub is_new: bool,
}

/// Checks a document that a client submits: a Thing Description that names its id.
///
/// # Errors
/// [`ThingError::Invalid`], [`ThingError::TooLong`].
pub fn check(document: &Value, now_ms: i64) -> Result<(), ThingError> {
    let bytes = document.to_string().len();
    if bytes > MAX_DOCUMENT_BYTES {
        let limit = MAX_DOCUMENT_BYTES;
        return Err(ThingError::TooLong { bytes, limit });
    }
    validation::validate(document, now_ms).map_err(ThingError::Invalid)
}

/// The triples of a document about `key`, without its types and its text; of a document that the
/// node makes itself.
#[must_use]
pub fn triples_of(key: &NamedNode, document: &Value) -> Vec<Triple> {
    triples::of(key, document)
}

/// The entity of a document that passed [`check`]; its registration is as the document says.
#[must_use]
pub fn to_entity(document: &Value, owner: &str) -> Option<Entity> {
    let key = document.get("id")?.as_str()?;
    let title = document.get("title")?.as_str()?;
    let name = title.chars().take(NAME_CHARACTERS).collect::<String>();
    let mut entity = Entity::new(key, EntityKind::Thing, name);
    owner.clone_into(&mut entity.owner);
    entity.types = triples::types(document);
    let key = NamedNode::new(key).ok()?;
    entity.triples = triples::of(&key, document);
    let text = BlankNode::new_unchecked("document");
    entity
        .triples
        .push(Triple::new(key, td::DOCUMENT, text.clone()));
    entity
        .triples
        .push(Triple::new(text.clone(), rdf::TYPE, rdf::SEQ));
    for (index, part) in parts(&document.to_string()).enumerate() {
        let member = NamedNode::new_unchecked(format!("{MEMBER}{}", index + 1));
        let part = Literal::new_simple_literal(part);
        entity.triples.push(Triple::new(text.clone(), member, part));
    }
    Some(entity)
}

/// The text in parts that are terms of the registry.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len().min(PART_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

/// The text of the document of an entity, if it is a thing of the directory.
#[must_use]
pub fn document_text(entity: &Entity) -> Option<String> {
    let of_entity = |triple: &&Triple| {
        let is_subject = matches!(&triple.subject,
            NamedOrBlankNode::NamedNode(node) if node.as_str() == entity.key);
        is_subject && triple.predicate.as_ref() == td::DOCUMENT
    };
    let document = entity.triples.iter().find(of_entity)?;
    let Term::BlankNode(node) = &document.object else {
        return None;
    };
    let is_of_node = |triple: &&Triple| matches!(&triple.subject, NamedOrBlankNode::BlankNode(subject) if subject == node);
    let mut parts = Vec::new();
    for triple in entity.triples.iter().filter(is_of_node) {
        let number = triple.predicate.as_str().strip_prefix(MEMBER);
        if let (Some(number), Term::Literal(part)) = (number, &triple.object) {
            parts.push((number.parse::<u32>().ok()?, part.value()));
        }
    }
    parts.sort_unstable_by_key(|(number, _)| *number);
    Some(parts.into_iter().map(|(_, part)| part).collect())
}

/// The document of an entity, if it is a thing of the directory.
#[must_use]
pub fn document(entity: &Entity) -> Option<Value> {
    serde_json::from_str(&document_text(entity)?).ok()
}

/// When the thing of an entity ends, in milliseconds since 1970.
#[must_use]
pub fn expiry_ms(entity: &Entity) -> Option<i64> {
    let triple = entity
        .triples
        .iter()
        .find(|triple| triple.predicate.as_ref() == td::EXPIRES)?;
    match &triple.object {
        Term::Literal(time) => crate::time::parse_date_time(time.value()),
        _ => None,
    }
}

/// Adds the registration and its context to a checked document.
fn enrich(document: &mut Value, created_ms: i64, now_ms: i64) {
    let wishes = document.get(registration::MEMBER).cloned();
    let registration = Registration::new(wishes.as_ref(), created_ms, now_ms);
    document[registration::MEMBER] = registration.to_json(wishes.as_ref());
    let context = &mut document["@context"];
    if validation::texts(context).any(|name| name == td::DISCOVERY_CONTEXT) {
        return;
    }
    match context {
        Value::Array(contexts) => contexts.push(json!(td::DISCOVERY_CONTEXT)),
        one => *one = json!([one.take(), td::DISCOVERY_CONTEXT]),
    }
}

/// The existing thing with this id, if the author may change it.
fn known(state: &State, key: &str, author: Author<'_>) -> Result<Option<Entity>, ThingError> {
    let visible = |entity: &Entity| entity.permits(author.principal, Right::Read);
    let Some(entity) = state.get(key).filter(visible) else {
        return Ok(None);
    };
    if entity.kind != EntityKind::Thing {
        let (key, kind) = (entity.key, entity.kind);
        return Err(ThingError::NotThing { key, kind });
    }
    if !entity.permits(author.principal, Right::Write) {
        let (key, owner) = (entity.key, entity.owner);
        return Err(Error::NotOwner { key, owner }.into());
    }
    Ok(Some(entity))
}

impl Registry {
    /// Registers a Thing Description, or replaces the one with its id.
    ///
    /// # Errors
    /// [`ThingError`]; nothing was changed.
    pub fn put_thing(
        &self,
        document: &Value,
        author: Author<'_>,
        room: &Room,
        now_ms: i64,
    ) -> Result<Changed, ThingError> {
        check(document, now_ms)?;
        let Some(key) = document.get("id").and_then(Value::as_str) else {
            return Err(ThingError::Invalid(vec![Fault {
                field: "(root)".to_owned(),
                description: "id is required".to_owned(),
            }]));
        };
        self.change_thing(key, author, room, now_ms, |_| Ok(document.clone()))
    }

    /// Applies a merge patch to the document of a thing, and starts its time to live anew.
    ///
    /// # Errors
    /// [`ThingError`]; nothing was changed.
    pub fn patch_thing(
        &self,
        key: &str,
        patch: &Value,
        author: Author<'_>,
        room: &Room,
        now_ms: i64,
    ) -> Result<Changed, ThingError> {
        self.change_thing(key, author, room, now_ms, |before| {
            let mut document = before
                .cloned()
                .ok_or_else(|| ThingError::Unknown(key.to_owned()))?;
            merge(&mut document, patch.clone());
            check(&document, now_ms)?;
            if document.get("id").and_then(Value::as_str) != Some(key) {
                return Err(ThingError::Invalid(vec![Fault {
                    field: "id".to_owned(),
                    description: format!("must remain {key:?}"),
                }]));
            }
            Ok(document)
        })
    }

    fn change_thing(
        &self,
        key: &str,
        author: Author<'_>,
        room: &Room,
        now_ms: i64,
        new_document: impl Fn(Option<&Value>) -> Result<Value, ThingError>,
    ) -> Result<Changed, ThingError> {
        let (publication, (patch, is_new)) = self.transact(room, |state| {
            let known = known(state, key, author)?;
            let before = known.as_ref().and_then(document);
            let mut after = new_document(before.as_ref())?;
            let created_ms = before.as_ref().and_then(Registration::of);
            let created_ms = created_ms.map_or(now_ms, |registration| registration.created_ms);
            enrich(&mut after, created_ms, now_ms);
            let entity = to_entity(&after, author.name);
            let mut entity = entity.ok_or_else(|| ThingError::Unknown(key.to_owned()))?;
            entity.lease_s = Registration::of(&after).and_then(Registration::lease_s);
            match &known {
                Some(known) => {
                    entity.owner.clone_from(&known.owner);
                    (entity.access, entity.rights) = (known.access.clone(), known.rights.clone());
                }
                None if state.rule_of(key).is_some() => {
                    return Err(Error::KeyTaken(key.to_owned()).into());
                }
                None => {}
            }
            let patch = before.as_ref().map(|before| difference(before, &after));
            Ok::<_, ThingError>((vec![Step::Publish(entity)], (patch, known.is_none())))
        })?;
        in_flight(publication, key).map(|publication| Changed {
            publication,
            patch,
            is_new,
        })
    }

    /// Removes a thing.
    ///
    /// # Errors
    /// [`ThingError::Unknown`], [`ThingError::NotThing`], the registry's errors.
    pub fn remove_thing(&self, key: &str, author: Author<'_>) -> Result<Changed, ThingError> {
        let (publication, ()) =
            self.transact(&Room::default(), |state| match known(state, key, author)? {
                Some(_) => Ok::<_, ThingError>((vec![Step::Remove(key.to_owned())], ())),
                None => Err(ThingError::Unknown(key.to_owned())),
            })?;
        in_flight(publication, key).map(|publication| Changed {
            publication,
            patch: None,
            is_new: false,
        })
    }

    /// Removes a thing if it has ended at `now_ms`; `None`: it has not, or is no more.
    ///
    /// # Errors
    /// The registry's errors.
    pub fn remove_expired_thing(
        &self,
        key: &str,
        now_ms: i64,
    ) -> Result<Option<Publication>, Error> {
        let (publication, ()) = self.transact(&Room::default(), |state| {
            let has_ended = |entity: &Entity| {
                entity.kind == EntityKind::Thing
                    && expiry_ms(entity).is_some_and(|expires_ms| expires_ms <= now_ms)
            };
            let ended = state.get(key).filter(has_ended);
            let steps = ended.map(|entity| Step::Remove(entity.key));
            Ok::<_, Error>((steps.into_iter().collect(), ()))
        })?;
        Ok(publication)
    }
}

/// The publication of a change, which always has one.
fn in_flight(publication: Option<Publication>, key: &str) -> Result<Publication, ThingError> {
    publication.ok_or_else(|| ThingError::Unknown(key.to_owned()))
}

#[cfg(test)]
mod tests;
