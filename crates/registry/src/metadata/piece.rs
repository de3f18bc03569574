//! A piece of metadata, and the entity that holds it.

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, NamedNodeRef, NamedOrBlankNode, Term, Triple};

use super::error::Error;
use crate::access::Access;
use crate::entity::{Entity, EntityKind, MAX_TERM_BYTES, MAX_TRIPLES};
use crate::piece_keys;
use crate::rdf_document::triples_from_document;
use crate::results::ResultFormat;
use crate::rights::Rights;
use crate::time::timestamp;
use crate::turtle::triples_from_turtle;
use crate::vocabulary;

/// Maximum length of the key of a subject in bytes, as of every key.
const MAX_IRI_BYTES: usize = crate::entity::MAX_TEXT_BYTES;
/// Characters of a value in the name of its entity.
const NAME_CHARACTERS: usize = 60;

/// The refusal of a graph.
fn of_graph(error: crate::error::Error) -> Error {
    match error {
        crate::error::Error::InvalidEntity { reason, .. } => Error::invalid("graph", reason),
        other => other.into(),
    }
}

/// The value of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Plain text.
    Text(String),
    /// A URI.
    Uri(String),
    /// A literal of a datatype.
    Typed {
        /// The lexical form.
        value: String,
        /// The IRI of the datatype.
        datatype: String,
    },
    /// An RDF graph. Its triples are those of the piece's named graph.
    Graph(Vec<Triple>),
}

impl Value {
    /// Reads a graph from Turtle, of which N-Triples is a subset. Relative IRIs are resolved
    /// against `base`, usually the subject; nothing is fetched.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the position of the first fault, or the limit that was exceeded.
    pub fn from_turtle(base: &str, text: &str) -> Result<Self, Error> {
        let triples = triples_from_turtle(base, text).map_err(of_graph)?;
        Ok(Self::Graph(triples))
    }

    /// The graph of a document in RDF/XML, as [`Value::from_turtle`] reads one in Turtle.
    ///
    /// # Errors
    /// As [`Value::from_turtle`]; a document type declaration is refused.
    pub fn from_rdf_xml(base: &str, text: &str) -> Result<Self, Error> {
        let triples = triples_from_document(ResultFormat::RdfXml, base, text.as_bytes());
        Ok(Self::Graph(triples.map_err(of_graph)?))
    }

    /// The term by which pieces with this value are found; `None` for a graph.
    pub(crate) fn term(&self) -> Result<Option<Term>, Error> {
        Ok(Some(match self {
            Self::Text(text) => Literal::new_simple_literal(text.as_str()).into(),
            Self::Uri(uri) => iri("value", uri)?.into(),
            Self::Typed { value, datatype } => {
                Literal::new_typed_literal(value.as_str(), iri("datatype", datatype)?).into()
            }
            Self::Graph(_) => return Ok(None),
        }))
    }

    fn of_term(term: &Term) -> Option<Self> {
        Some(match term {
            Term::NamedNode(node) => Self::Uri(node.as_str().to_owned()),
            Term::Literal(literal) if literal.datatype() == xsd::STRING => {
                Self::Text(literal.value().to_owned())
            }
            Term::Literal(literal) => Self::Typed {
                value: literal.value().to_owned(),
                datatype: literal.datatype().as_str().to_owned(),
            },
            Term::BlankNode(_) => return None,
        })
    }

    /// A short text for people.
    fn label(&self) -> String {
        match self {
            Self::Text(text) | Self::Uri(text) | Self::Typed { value: text, .. } => {
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                words.chars().take(NAME_CHARACTERS).collect()
            }
            Self::Graph(triples) => format!("graph of {} triples", triples.len()),
        }
    }
}

/// A piece of metadata about an entity, or about a part of a WSDL document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its own key, an IRI.
    pub key: String,
    /// The key of the entity that it is about.
    pub subject: String,
    /// The type of its statement, an IRI.
    pub piece_type: String,
    /// The value.
    pub value: Value,
    /// The account that wrote it.
    pub author: String,
    /// When it was attached or last updated, in milliseconds since 1970.
    pub date_ms: i64,
    /// Who may read it.
    pub access: Access,
    /// Further rights of others.
    pub rights: Rights,
    /// Seconds after which it is removed unless its lease is renewed; without, it stays.
    pub lease_s: Option<u32>,
}

impl Piece {
    /// The date as `xsd:dateTime` in UTC with milliseconds.
    #[must_use]
    pub fn date(&self) -> String {
        timestamp(self.date_ms)
    }

    /// The entity of this piece.
    pub(crate) fn to_entity(&self) -> Result<Entity, Error> {
        let own = iri("key", &self.key)?;
        let subject = iri("subject", &self.subject)?;
        let piece_type = iri("type", &self.piece_type)?;
        let mut entity = Entity::new(self.key.as_str(), EntityKind::Metadata, self.value.label());
        entity.owner.clone_from(&self.author);
        entity.access = self.access.clone();
        entity.rights = self.rights.clone();
        entity.lease_s = self.lease_s;
        let mut say = |predicate: NamedNodeRef<'_>, object: Term| {
            let triple = Triple::new(own.clone(), predicate.into_owned(), object);
            entity.triples.push(triple);
        };
        let date = Literal::new_typed_literal(self.date(), xsd::DATE_TIME);
        say(vocabulary::ABOUT, subject.into());
        say(vocabulary::METADATA_TYPE, piece_type.into());
        say(
            vocabulary::AUTHOR,
            Literal::new_simple_literal(self.author.as_str()).into(),
        );
        say(vocabulary::METADATA_DATE, date.into());
        match (&self.value, self.value.term()?) {
            (_, Some(value)) => say(vocabulary::METADATA_VALUE, value),
            (Value::Graph(triples), None) => {
                check_graph(&own, triples)?;
                entity.triples.extend(triples.iter().cloned());
            }
            (_, None) => {}
        }
        Ok(entity)
    }

    /// The piece that an entity holds, if it is one.
    pub(crate) fn from_entity(entity: Entity) -> Option<Self> {
        if entity.kind != EntityKind::Metadata {
            return None;
        }
        let (mut subject, mut piece_type, mut value, mut date_ms) = (None, None, None, None);
        let mut graph = Vec::new();
        for triple in entity.triples {
            let predicate = triple.predicate.as_ref();
            if !is_of(&triple, &entity.key) {
                graph.push(triple);
            } else if predicate == vocabulary::ABOUT {
                subject = iri_of(&triple.object);
            } else if predicate == vocabulary::METADATA_TYPE {
                piece_type = iri_of(&triple.object);
            } else if predicate == vocabulary::METADATA_VALUE {
                value = Value::of_term(&triple.object);
            } else if predicate == vocabulary::METADATA_DATE {
                date_ms = match &triple.object {
                    Term::Literal(literal) => piece_keys::date_of(literal.value()),
                    _ => None,
                };
            }
        }
        Some(Self {
            subject: subject?,
            piece_type: piece_type?,
            value: value.unwrap_or(Value::Graph(graph)),
            date_ms: date_ms?,
            key: entity.key,
            author: entity.owner,
            access: entity.access,
            rights: entity.rights,
            lease_s: entity.lease_s,
        })
    }
}

fn is_of(triple: &Triple, key: &str) -> bool {
    matches!(&triple.subject, NamedOrBlankNode::NamedNode(node) if node.as_str() == key)
}

fn iri_of(term: &Term) -> Option<String> {
    match term {
        Term::NamedNode(node) => Some(node.as_str().to_owned()),
        _ => None,
    }
}

/// A graph says nothing about its own piece: that would look like the piece's own properties.
fn check_graph(own: &NamedNode, triples: &[Triple]) -> Result<(), Error> {
    const OWN_TRIPLES: usize = 4;
    if triples.is_empty() {
        return Err(Error::invalid("graph", "has no triple"));
    }
    if triples.len() + OWN_TRIPLES > MAX_TRIPLES {
        let reason = format!("has more than {} triples", MAX_TRIPLES - OWN_TRIPLES);
        return Err(Error::invalid("graph", reason));
    }
    if triples.iter().any(|triple| is_of(triple, own.as_str())) {
        let reason = "describes its own piece; attach another piece about this one";
        return Err(Error::invalid("graph", reason));
    }
    Ok(())
}

/// Reads an absolute IRI.
pub(crate) fn iri(field: &'static str, text: &str) -> Result<NamedNode, Error> {
    let limit = match field {
        "value" => MAX_TERM_BYTES,
        _ => MAX_IRI_BYTES,
    };
    if text.len() > limit {
        return Err(Error::invalid(
            field,
            format!("is longer than {limit} bytes"),
        ));
    }
    NamedNode::new(text).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        Error::invalid(field, format!("{shown:?} is not an absolute IRI"))
    })
}
