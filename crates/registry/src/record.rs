//! The journal's records: a version byte followed by a postcard body.
//!
//! Version 1 has single changes, version 2 adds batches, and version 3 adds optional fields to
//! entities ([`crate::record_fields`]) and the changes of leases. A record carries the lowest version that describes it, so a
//! journal that uses nothing new can be read by older programs.
//!
//! An entity's terms are written once each, and its triples as indexes into that table.

use std::collections::HashMap;

use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::entity::{Entity, EntityKind};
use crate::journal::JournalError;
use crate::record_fields::{Field, read_fields, write_fields};
use crate::rights::Rights;

/// First byte of a record with one change.
const SINGLE: u8 = 1;
/// First byte of a record with a batch.
const BATCH: u8 = 2;
/// First byte of a record in which an entity has optional fields.
const FIELDS: u8 = 3;

/// Why a record cannot be read.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// A newer program wrote this part of it.
    Newer {
        what: String,
        found: u32,
        known: u32,
    },
    /// It is invalid, for this reason.
    Invalid(String),
}

impl From<String> for RecordError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl RecordError {
    /// The journal's error for the record at a position.
    pub(crate) fn at(self, position: u64) -> JournalError {
        match self {
            Self::Newer { what, found, known } => JournalError::NewerFormat {
                position,
                what,
                found,
                known,
            },
            Self::Invalid(reason) => JournalError::Unreadable { position, reason },
        }
    }
}

/// A step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all steps publish")]
pub(crate) enum Step {
    /// Publish this entity.
    Publish(Entity),
    /// Remove the entity with this key.
    Remove(String),
}

/// One change in the registry's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An entity was published.
    Publish(Entity),
    /// The entity with this key was removed.
    Remove(String),
    /// Part of a snapshot: the entity exists and has not changed.
    Keep(Entity),
    /// Several changes at once, none visible without the others.
    Batch(Vec<Step>),
    /// The leases of the entities with these keys were renewed; keys without a lease are ignored.
    Renew(Vec<String>),
    /// The lease of an entity is over. It removes the entity only if its lease was granted by the record
    /// at this position, and not again since.
    Expire { key: String, granted: u64 },
    /// Part of a snapshot, after the record that keeps the entity.
    Leased {
        key: String,
        /// Position of the record that granted or renewed the lease.
        granted: u64,
        /// Its least age in milliseconds.
        aged_ms: u64,
    },
    /// Time passed while the registry was open; see [`crate::lease_clock`].
    Tick {
        /// The position up to which the writer had read the journal when the time started.
        since: u64,
        /// Milliseconds.
        ms: u64,
    },
}

/// A record whose entities have the form `E`.
#[derive(Serialize, Deserialize)]
enum Body<E> {
    Publish(E),
    Remove(String),
    Keep(E),
    Batch(Vec<StoredStep<E>>),
    Renew(Vec<String>),
    Expire(String, u64),
    Leased(String, u64, u64),
    Tick(u64, u64),
}

#[derive(Serialize, Deserialize)]
enum StoredStep<E> {
    Publish(E),
    Remove(String),
}

/// An entity of version 3.
#[derive(Serialize, Deserialize)]
struct WithFields {
    entity: Stored,
    fields: Vec<Field>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    key: String,
    kind: EntityKind,
    name: String,
    types: Vec<String>,
    scopes: Vec<String>,
    owner: String,
    access: Access,
    terms: Vec<StoredTerm>,
    triples: Vec<[u32; 3]>,
}

#[derive(Serialize, Deserialize)]
enum StoredTerm {
    Iri(String),
    Blank(String),
    Text(String),
    Tagged(String, String),
    Typed(String, String),
}

impl Record {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut fields = Vec::new();
        for entity in self.published() {
            fields.push(write_fields(entity)?);
        }
        if fields.iter().all(Vec::is_empty) {
            return match self {
                Self::Batch(_) => framed(BATCH, &self.body(store)),
                Self::Publish(_) | Self::Remove(_) | Self::Keep(_) => {
                    framed(SINGLE, &self.body(store))
                }
                _ => framed(FIELDS, &self.body(store)),
            };
        }
        // Entities are stored in the order in which `published` names them.
        let mut fields = fields.into_iter();
        let body = self.body(|entity| WithFields {
            entity: store(entity),
            fields: fields.next().unwrap_or_default(),
        });
        framed(FIELDS, &body)
    }

    fn body<E>(&self, mut store: impl FnMut(&Entity) -> E) -> Body<E> {
        match self {
            Self::Publish(entity) => Body::Publish(store(entity)),
            Self::Remove(key) => Body::Remove(key.clone()),
            Self::Keep(entity) => Body::Keep(store(entity)),
            Self::Batch(steps) => Body::Batch(
                steps
                    .iter()
                    .map(|step| match step {
                        Step::Publish(entity) => StoredStep::Publish(store(entity)),
                        Step::Remove(key) => StoredStep::Remove(key.clone()),
                    })
                    .collect(),
            ),
            Self::Renew(keys) => Body::Renew(keys.clone()),
            Self::Expire { key, granted } => Body::Expire(key.clone(), *granted),
            Self::Leased {
                key,
                granted,
                aged_ms,
            } => Body::Leased(key.clone(), *granted, *aged_ms),
            Self::Tick { since, ms } => Body::Tick(*since, *ms),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let empty = || "the record is empty".to_owned();
        let (version, body) = bytes.split_first().ok_or_else(empty)?;
        let record = match *version {
            SINGLE | BATCH => Self::of_body(parsed(body)?, |stored| Ok(restore(stored)?))?,
            FIELDS => Self::of_body(parsed(body)?, |stored: WithFields| {
                let mut entity = restore(stored.entity)?;
                read_fields(&mut entity, stored.fields)?;
                Ok(entity)
            })?,
            0 => return Err("there is no version 0".to_owned().into()),
            newer => {
                return Err(RecordError::Newer {
                    what: "it".to_owned(),
                    found: u32::from(newer),
                    known: u32::from(FIELDS),
                });
            }
        };
        let least = match &record {
            Self::Publish(_) | Self::Remove(_) | Self::Keep(_) => SINGLE,
            Self::Batch(_) => BATCH,
            _ => FIELDS,
        };
        if *version < least {
            let reason = format!("a change of version {least} in a record of version {version}");
            return Err(reason.into());
        }
        for entity in record.published() {
            entity.validate().map_err(|error| error.to_string())?;
        }
        Ok(record)
    }

    fn of_body<E>(
        body: Body<E>,
        restore: impl Fn(E) -> Result<Entity, RecordError>,
    ) -> Result<Self, RecordError> {
        Ok(match body {
            Body::Publish(stored) => Self::Publish(restore(stored)?),
            Body::Remove(key) => Self::Remove(key),
            Body::Keep(stored) => Self::Keep(restore(stored)?),
            Body::Batch(steps) => {
                let steps = steps.into_iter().map(|step| {
                    Ok(match step {
                        StoredStep::Publish(stored) => Step::Publish(restore(stored)?),
                        StoredStep::Remove(key) => Step::Remove(key),
                    })
                });
                Self::Batch(steps.collect::<Result<_, RecordError>>()?)
            }
            Body::Renew(keys) => Self::Renew(keys),
            Body::Expire(key, granted) => Self::Expire { key, granted },
            Body::Leased(key, granted, aged_ms) => Self::Leased {
                key,
                granted,
                aged_ms,
            },
            Body::Tick(since, ms) => Self::Tick { since, ms },
        })
    }

    /// The entities that exist after it.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Entity> {
        let (one, steps) = match self {
            Self::Publish(entity) | Self::Keep(entity) => (Some(entity), &[][..]),
            Self::Batch(steps) => (None, steps.as_slice()),
            _ => (None, &[][..]),
        };
        let batch = steps.iter().filter_map(|step| match step {
            Step::Publish(entity) => Some(entity),
            Step::Remove(_) => None,
        });
        one.into_iter().chain(batch)
    }

    /// The keys of the entities that it publishes or removes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let (removed, steps) = match self {
            Self::Remove(key) | Self::Expire { key, .. } => (Some(key.as_str()), &[][..]),
            Self::Batch(steps) => (None, steps.as_slice()),
            _ => (None, &[][..]),
        };
        let steps = steps.iter().filter_map(|step| match step {
            Step::Remove(key) => Some(key.as_str()),
            Step::Publish(_) => None,
        });
        let published = self.published().map(|entity| entity.key.as_str());
        published.chain(removed).chain(steps)
    }

    /// What it does to the entity `key`: `None` if nothing, `Some(None)` if it removes it.
    pub(crate) fn effect_on(&self, key: &str) -> Option<Option<&Entity>> {
        match self {
            Self::Publish(entity) | Self::Keep(entity) => {
                (entity.key == key).then_some(Some(entity))
            }
            Self::Remove(removed) | Self::Expire { key: removed, .. } => {
                (removed == key).then_some(None)
            }
            Self::Renew(_) | Self::Leased { .. } | Self::Tick { .. } => None,
            Self::Batch(steps) => steps.iter().rev().find_map(|step| match step {
                Step::Publish(entity) => (entity.key == key).then_some(Some(entity)),
                Step::Remove(removed) => (removed == key).then_some(None),
            }),
        }
    }
}

fn framed<E: Serialize>(version: u8, body: &Body<E>) -> Result<Vec<u8>, String> {
    let body = postcard::to_allocvec(body).map_err(|error| error.to_string())?;
    let mut bytes = Vec::with_capacity(body.len() + 1);
    bytes.push(version);
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

fn parsed<'a, E: Deserialize<'a>>(body: &'a [u8]) -> Result<Body<E>, String> {
    postcard::from_bytes(body).map_err(|error| error.to_string())
}

fn store(entity: &Entity) -> Stored {
    let mut numbers: HashMap<Term, u32> = HashMap::new();
    let mut terms = Vec::new();
    let mut number = |term: Term| {
        *numbers.entry(term).or_insert_with_key(|term| {
            terms.push(store_term(term));
            u32::try_from(terms.len() - 1).unwrap_or(u32::MAX)
        })
    };
    let triples = entity
        .triples
        .iter()
        .map(|triple| {
            [
                number(triple.subject.clone().into()),
                number(triple.predicate.clone().into()),
                number(triple.object.clone()),
            ]
        })
        .collect();
    Stored {
        key: entity.key.clone(),
        kind: entity.kind,
        name: entity.name.clone(),
        types: entity.types.clone(),
        scopes: entity.scopes.clone(),
        owner: entity.owner.clone(),
        access: entity.access.clone(),
        terms,
        triples,
    }
}

fn store_term(term: &Term) -> StoredTerm {
    match term {
        Term::NamedNode(node) => StoredTerm::Iri(node.as_str().to_owned()),
        Term::BlankNode(node) => StoredTerm::Blank(node.as_str().to_owned()),
        Term::Literal(literal) => {
            let value = literal.value().to_owned();
            if let Some(language) = literal.language() {
                StoredTerm::Tagged(value, language.to_owned())
            } else if literal.datatype() == oxrdf::vocab::xsd::STRING {
                StoredTerm::Text(value)
            } else {
                StoredTerm::Typed(value, literal.datatype().as_str().to_owned())
            }
        }
    }
}

fn restore(stored: Stored) -> Result<Entity, String> {
    let terms = stored
        .terms
        .into_iter()
        .map(restore_term)
        .collect::<Result<Vec<_>, _>>()?;
    let term = |number: u32| {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        terms
            .get(index)
            .cloned()
            .ok_or_else(|| format!("term {number} is missing"))
    };
    let mut triples = Vec::with_capacity(stored.triples.len());
    for [subject, predicate, object] in stored.triples {
        let subject: NamedOrBlankNode = match term(subject)? {
            Term::NamedNode(node) => node.into(),
            Term::BlankNode(node) => node.into(),
            Term::Literal(_) => return Err("a subject is a literal".to_owned()),
        };
        let Term::NamedNode(predicate) = term(predicate)? else {
            return Err("a predicate is not an IRI".to_owned());
        };
        triples.push(Triple::new(subject, predicate, term(object)?));
    }
    Ok(Entity {
        key: stored.key,
        kind: stored.kind,
        name: stored.name,
        types: stored.types,
        scopes: stored.scopes,
        owner: stored.owner,
        access: stored.access,
        rights: Rights::default(),
        lease_s: None,
        triples,
    })
}

fn restore_term(term: StoredTerm) -> Result<Term, String> {
    let iri = |iri: String| NamedNode::new(iri).map_err(|error| error.to_string());
    Ok(match term {
        StoredTerm::Iri(text) => iri(text)?.into(),
        StoredTerm::Blank(label) => BlankNode::new(label)
            .map_err(|error| error.to_string())?
            .into(),
        StoredTerm::Text(value) => Literal::new_simple_literal(value).into(),
        StoredTerm::Tagged(value, language) => {
            Literal::new_language_tagged_literal(value, language)
                .map_err(|error| error.to_string())?
                .into()
        }
        StoredTerm::Typed(value, datatype) => {
            Literal::new_typed_literal(value, iri(datatype)?).into()
        }
    })
}
