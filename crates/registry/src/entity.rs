//! The entity: intrinsic fields and the triples it brings.
//!
//! An entity is validated once, when it is published; entities in the registry are valid.
//! Validation concerns form and size, never meaning.

use oxrdf::{NamedNode, NamedOrBlankNode, Term, Triple};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::error::Error;
use crate::rights::{Holder, Rights, readers};
use crate::vocabulary::{self, wsdl};

/// Maximum length of a key, name, type, scope, owner or reader in bytes. UDDI allows names of 255
/// characters; the rest is room for IRIs.
pub const MAX_TEXT_BYTES: usize = 1024;
/// Maximum number of types, of scopes and of readers of one entity; WS-Discovery peers send a
/// handful.
pub const MAX_LIST: usize = 256;
/// Maximum number of triples of one entity. The published study of a semantic registry had 138.
pub const MAX_TRIPLES: usize = 10_000;
/// Maximum length of an IRI or literal in a triple, in bytes. It also bounds how far one step of an
/// expression in a query can multiply a text.
pub const MAX_TERM_BYTES: usize = 16 * 1024;
/// Maximum length of a lease in seconds, ten years; longer ones need none.
pub const MAX_LEASE_S: u32 = 10 * 366 * 86_400;
/// Maximum size of all terms of one entity in bytes, so that its journal record stays small.
pub const MAX_ENTITY_BYTES: usize = 512 * 1024;
/// Maximum size of all terms of a document, its bytes included; they repeat the IRIs of its parts, which its
/// record does not.
pub const MAX_DOCUMENT_ENTITY_BYTES: usize = 3 * 1024 * 1024;

/// The kind of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EntityKind {
    /// A node of this system.
    Node,
    /// A device (a DPWS hosting service).
    Device,
    /// A service of a device, or any other service.
    Service,
    /// A stream of elements.
    Stream,
    /// A virtual sensor.
    VirtualSensor,
    /// Anything else: a place, a procedure.
    Other,
    /// A piece of metadata about something else; see [`crate::metadata`].
    Metadata,
    /// A Thing Description that somebody registered in the directory of things.
    Thing,
    /// A WSDL document or a schema, with its bytes; see [`crate::wsdl`].
    Document,
}

impl EntityKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Node,
        Self::Device,
        Self::Service,
        Self::Stream,
        Self::VirtualSensor,
        Self::Other,
        Self::Metadata,
        Self::Thing,
        Self::Document,
    ];

    /// The name in the REST interface and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Device => "device",
            Self::Service => "service",
            Self::Stream => "stream",
            Self::VirtualSensor => "virtual-sensor",
            Self::Other => "other",
            Self::Metadata => "metadata",
            Self::Thing => "thing",
            Self::Document => "document",
        }
    }

    /// The kind with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// A registered thing.
///
/// Equality compares the triples in order; the registry returns them in the order given, without
/// duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Absolute IRI that identifies it; publishing the same key again replaces the entity.
    pub key: String,
    /// Its kind.
    pub kind: EntityKind,
    /// Name for people; a search matches its prefix, ignoring case.
    pub name: String,
    /// Types as `{namespace}local`.
    pub types: Vec<String>,
    /// Scopes as URIs.
    pub scopes: Vec<String>,
    /// Name of the principal that owns it.
    pub owner: String,
    /// The rule that decides who may see it.
    pub access: Access,
    /// Further rights of others.
    pub rights: Rights,
    /// Seconds after which it is removed unless its lease is renewed; without, it stays.
    pub lease_s: Option<u32>,
    /// Metadata: triples about the entity, or about anything else.
    pub triples: Vec<Triple>,
}

impl Entity {
    /// A public entity, owned by `node`, with only a key, a kind and a name.
    #[must_use]
    pub fn new(key: impl Into<String>, kind: EntityKind, name: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            kind,
            name: name.into(),
            types: Vec::new(),
            scopes: Vec::new(),
            owner: "node".to_owned(),
            access: Access::Public,
            rights: Rights::default(),
            lease_s: None,
            triples: Vec::new(),
        }
    }

    /// The bytes that the entity counts for in a [`crate::Room`]: its texts, and for itself and each of its
    /// triples what the indexes take besides.
    #[must_use]
    pub fn counted_bytes(&self) -> usize {
        /// Of an entity without triples.
        const ENTITY_BYTES: usize = 512;
        /// Of a triple with two terms of its own, in three indexes.
        const TRIPLE_BYTES: usize = 128;
        /// Of a triple in the three indexes of a further principal.
        const COPY_BYTES: usize = 64;
        /// Of a piece of metadata in the lists of its set of indexes.
        const PIECE_BYTES: usize = 512;
        // Indexes of what is not public: see `groups`.
        let copies = match &self.access {
            Access::Public => 0,
            Access::Owner | Access::Readers(_) => {
                let readers = readers(&self.owner, &self.access, &self.rights);
                match readers.contains(&Holder::Everybody) {
                    true => 0,
                    false => readers.len(),
                }
            }
        };
        // Statements of rights are in the indexes of the operator and of each administrator.
        let stated = self.rights.iter().map(|(_, holder)| {
            let (Holder::Account(name) | Holder::Group(name)) = holder else {
                return TRIPLE_BYTES;
            };
            TRIPLE_BYTES + COPY_BYTES * (1 + self.rights.administer.len()) + name.len()
        });
        let piece_bytes = match self.kind {
            EntityKind::Metadata => (1 + copies) * PIECE_BYTES,
            _ => 0,
        };
        let entity_bytes = ENTITY_BYTES + 4 * copies * COPY_BYTES;
        let triple_bytes = TRIPLE_BYTES + copies * COPY_BYTES;
        let readers = match &self.access {
            Access::Readers(readers) => readers.as_slice(),
            Access::Public | Access::Owner => &[],
        };
        let lists = [self.types.as_slice(), &self.scopes, readers];
        let lists = lists
            .into_iter()
            .flatten()
            .map(|text| text.len() + triple_bytes);
        let triples = self.triples.iter().map(|triple| {
            let subject = match &triple.subject {
                NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
                NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
            };
            let object = match &triple.object {
                Term::NamedNode(node) => node.as_str().len(),
                Term::BlankNode(node) => node.as_str().len(),
                Term::Literal(literal) => literal.value().len() + literal.datatype().as_str().len(),
            };
            subject + triple.predicate.as_str().len() + object + triple_bytes
        });
        let own = self.key.len() + self.name.len() + self.owner.len() + stated.sum::<usize>();
        entity_bytes + piece_bytes + own + lists.sum::<usize>() + triples.sum::<usize>()
    }

    /// Checks form and sizes.
    ///
    /// # Errors
    /// [`Error::InvalidEntity`] with the field and the reason.
    pub fn validate(&self) -> Result<(), Error> {
        text("key", &self.key)?;
        if NamedNode::new(self.key.as_str()).is_err() {
            return Err(invalid("key", "is not an absolute IRI"));
        }
        text("name", &self.name)?;
        text("owner", &self.owner)?;
        list("types", &self.types)?;
        list("scopes", &self.scopes)?;
        if let Access::Readers(readers) = &self.access {
            list("readers", readers)?;
        }
        self.rights.validate()?;
        if self
            .lease_s
            .is_some_and(|lease_s| !(1..=MAX_LEASE_S).contains(&lease_s))
        {
            return Err(invalid(
                "lease",
                format!("is not 1 to {MAX_LEASE_S} seconds"),
            ));
        }
        if self.triples.len() > MAX_TRIPLES {
            return Err(invalid("triples", format!("are more than {MAX_TRIPLES}")));
        }
        let mut bytes = 0_usize;
        for triple in &self.triples {
            self.check_reserved(triple)?;
            let subject = match &triple.subject {
                NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
                NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
            };
            let object = term_bytes(&triple.object);
            let predicate = triple.predicate.as_str().len();
            if subject.max(object).max(predicate) > MAX_TERM_BYTES {
                let reason = format!("have a term longer than {MAX_TERM_BYTES} bytes");
                return Err(invalid("triples", reason));
            }
            bytes = bytes.saturating_add(subject + object + predicate);
            let of_documents = triple.predicate.as_str().starts_with(wsdl::NAMESPACE);
            if of_documents && self.kind != EntityKind::Document {
                let predicate = triple.predicate.as_str();
                return Err(invalid(
                    "triples",
                    format!("have {predicate}, which only a document has"),
                ));
            }
        }
        let limit = match self.kind {
            EntityKind::Document => MAX_DOCUMENT_ENTITY_BYTES,
            _ => MAX_ENTITY_BYTES,
        };
        if bytes > limit {
            return Err(invalid("triples", format!("are longer than {limit} bytes")));
        }
        Ok(())
    }

    /// Checks what is published: [`Self::validate`], and that no triple states a field of an entity. Journals may have
    /// such triples.
    ///
    /// # Errors
    /// [`Error::InvalidEntity`] with the field and the reason.
    pub(crate) fn check_published(&self) -> Result<(), Error> {
        self.validate()?;
        let mut stated = self.triples.iter().map(|triple| triple.predicate.as_ref());
        match stated.find(|predicate| vocabulary::FIELDS.contains(predicate)) {
            None => Ok(()),
            Some(predicate) => {
                let reason =
                    format!("have the property {predicate}, which the registry itself states");
                Err(invalid("triples", reason))
            }
        }
    }

    /// A piece of metadata alone says what it is about and who wrote it, and only of itself.
    fn check_reserved(&self, triple: &Triple) -> Result<(), Error> {
        let predicate = triple.predicate.as_ref();
        if !vocabulary::RESERVED.contains(&predicate) {
            return Ok(());
        }
        let is_own = matches!(&triple.subject, NamedOrBlankNode::NamedNode(node)
            if node.as_str() == self.key);
        if self.kind != EntityKind::Metadata || !is_own {
            let reason = format!("have the property {predicate}, which only metadata has");
            return Err(invalid("triples", reason));
        }
        let names_owner = matches!(&triple.object, Term::Literal(author)
            if author.value() == self.owner);
        if predicate == vocabulary::AUTHOR && !names_owner {
            let reason = format!("name an author other than {:?}", self.owner);
            return Err(invalid("triples", reason));
        }
        Ok(())
    }
}

pub(crate) fn term_bytes(term: &Term) -> usize {
    match term {
        Term::NamedNode(node) => node.as_str().len(),
        Term::BlankNode(node) => node.as_str().len(),
        Term::Literal(literal) => {
            literal.value().len()
                + literal
                    .language()
                    .map_or(literal.datatype().as_str().len(), str::len)
        }
    }
}

pub(crate) fn triple_bytes(triple: &Triple) -> usize {
    let subject = match &triple.subject {
        NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
        NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
    };
    subject + triple.predicate.as_str().len() + term_bytes(&triple.object)
}

fn list(field: &'static str, items: &[String]) -> Result<(), Error> {
    if items.len() > MAX_LIST {
        return Err(invalid(field, format!("are more than {MAX_LIST}")));
    }
    items.iter().try_for_each(|item| text(field, item))
}

pub(crate) fn text(field: &'static str, value: &str) -> Result<(), Error> {
    if value.len() > MAX_TEXT_BYTES {
        return Err(invalid(
            field,
            format!("is longer than {MAX_TEXT_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn invalid(field: &'static str, reason: impl Into<String>) -> Error {
    Error::InvalidEntity {
        field,
        reason: reason.into(),
    }
}
