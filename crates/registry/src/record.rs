//! The journal's records: a version byte followed by a postcard body.
//!
//! An entity's terms are written once each, and its triples as indexes into that table.

use std::collections::HashMap;

use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::entity::{Entity, EntityKind};

/// First byte of every record.
const VERSION: u8 = 1;

/// One change in the registry's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An entity was published.
    Publish(Entity),
    /// The entity with this key was removed.
    Remove(String),
    /// Part of a snapshot: the entity exists and has not changed.
    Keep(Entity),
}

#[derive(Serialize, Deserialize)]
enum Body {
    Publish(Stored),
    Remove(String),
    Keep(Stored),
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
        let body = match self {
            Self::Publish(entity) => Body::Publish(store(entity)),
            Self::Remove(key) => Body::Remove(key.clone()),
            Self::Keep(entity) => Body::Keep(store(entity)),
        };
        let body = postcard::to_allocvec(&body).map_err(|error| error.to_string())?;
        let mut bytes = Vec::with_capacity(body.len() + 1);
        bytes.push(VERSION);
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (version, body) = bytes.split_first().ok_or("the record is empty")?;
        if *version != VERSION {
            return Err(format!(
                "unsupported version {version}; this program reads version {VERSION}"
            ));
        }
        let body: Body = postcard::from_bytes(body).map_err(|error| error.to_string())?;
        let record = match body {
            Body::Publish(stored) => Self::Publish(restore(stored)?),
            Body::Remove(key) => Self::Remove(key),
            Body::Keep(stored) => Self::Keep(restore(stored)?),
        };
        if let Self::Publish(entity) | Self::Keep(entity) = &record {
            entity.validate().map_err(|error| error.to_string())?;
        }
        Ok(record)
    }
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
