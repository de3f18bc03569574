//! Entities from N-Quads and TriG, one after the other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::BufRead;

use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term, Triple};
use oxttl::nquads::LowLevelNQuadsParser;
use oxttl::trig::LowLevelTriGParser;
use oxttl::{NQuadsParser, TriGParser};

use super::export::{LABEL_PREFIX, NOBODY};
use super::{ImportError, MAX_STATEMENT_BYTES};
use crate::access::Access;
use crate::entity::{
    Entity, EntityKind, MAX_DOCUMENT_ENTITY_BYTES, MAX_TEXT_BYTES, MAX_TRIPLES, triple_bytes,
};
use crate::rights::{Holder, Right, Rights};
use crate::vocabulary;

/// Bytes read at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

enum Parser {
    NQuads(LowLevelNQuadsParser),
    TriG(LowLevelTriGParser),
}

/// Reads the entities of a file in order.
pub(super) struct QuadReader<R> {
    reader: R,
    parser: Parser,
    /// The line being read.
    line: u64,
    /// Bytes given to the parser since its last statement.
    unread_bytes: usize,
    is_at_end: bool,
    current: Option<Partial>,
    /// Hashes of the keys of all entities before.
    seen: HashSet<u64>,
    hasher: RandomState,
}

/// An entity of which statements may follow.
struct Partial {
    line: u64,
    key: NamedNode,
    kind: Option<EntityKind>,
    name: Option<String>,
    owner: Option<String>,
    access: Option<String>,
    readers: Vec<String>,
    types: Vec<String>,
    scopes: Vec<String>,
    rights: Rights,
    triples: Vec<Triple>,
    triple_bytes: usize,
}

/// An entity of a file. Without a statement about its owner it has none.
pub(super) struct Read {
    pub(super) line: u64,
    pub(super) entity: Entity,
    pub(super) has_owner: bool,
}

fn refused(line: u64, reason: impl Into<String>) -> ImportError {
    ImportError::Refused {
        line,
        reason: reason.into(),
    }
}

impl<R: BufRead> QuadReader<R> {
    pub(super) fn nquads(reader: R) -> Self {
        Self::new(reader, Parser::NQuads(NQuadsParser::new().low_level()))
    }

    pub(super) fn trig(reader: R) -> Self {
        Self::new(reader, Parser::TriG(TriGParser::new().low_level()))
    }

    fn new(reader: R, parser: Parser) -> Self {
        Self {
            reader,
            parser,
            line: 1,
            unread_bytes: 0,
            is_at_end: false,
            current: None,
            seen: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// The next entity.
    pub(super) fn read(&mut self) -> Result<Option<Read>, ImportError> {
        loop {
            let parsed = match &mut self.parser {
                Parser::NQuads(parser) => parser.parse_next(),
                Parser::TriG(parser) => parser.parse_next(),
            };
            match parsed {
                Some(Ok(quad)) => {
                    self.unread_bytes = 0;
                    if let Some(done) = self.accept(quad)? {
                        return Ok(Some(done));
                    }
                }
                Some(Err(error)) => {
                    let line = error.location().start.line + 1;
                    return Err(refused(line, error.message()));
                }
                None if self.is_at_end => {
                    let last = self.current.take();
                    return last.map(Partial::finish).transpose();
                }
                None => self.feed()?,
            }
        }
    }

    /// Gives the next line, or a part of a long one, to the parser.
    fn feed(&mut self) -> Result<(), ImportError> {
        let mut chunk = Vec::new();
        let mut limited = std::io::Read::take(&mut self.reader, CHUNK_BYTES);
        limited.read_until(b'\n', &mut chunk)?;
        if chunk.is_empty() {
            self.is_at_end = true;
            match &mut self.parser {
                Parser::NQuads(parser) => parser.end(),
                Parser::TriG(parser) => parser.end(),
            }
            return Ok(());
        }
        self.unread_bytes += chunk.len();
        if self.unread_bytes > MAX_STATEMENT_BYTES {
            let reason = format!("a statement is longer than {MAX_STATEMENT_BYTES} bytes");
            return Err(refused(self.line, reason));
        }
        match &mut self.parser {
            Parser::NQuads(parser) => parser.extend_from_slice(&chunk),
            Parser::TriG(parser) => parser.extend_from_slice(&chunk),
        }
        if chunk.ends_with(b"\n") {
            self.line += 1;
        }
        Ok(())
    }

    /// Adds a statement; returns the entity before, if the statement is about the next.
    fn accept(&mut self, quad: Quad) -> Result<Option<Read>, ImportError> {
        // The line after the statement has begun when the parser returns it.
        let line = self.line.saturating_sub(1).max(1);
        let key = match (&quad.graph_name, &quad.subject) {
            (GraphName::NamedNode(name), _) => name,
            (GraphName::DefaultGraph, NamedOrBlankNode::NamedNode(subject)) => subject,
            (GraphName::BlankNode(_), _) => {
                return Err(refused(line, "the name of a graph is a blank node"));
            }
            (GraphName::DefaultGraph, NamedOrBlankNode::BlankNode(_)) => {
                let reason =
                    "a statement about a blank node is in no graph: name the graph as the entity";
                return Err(refused(line, reason));
            }
        };
        let is_next = self.current.as_ref().is_none_or(|one| one.key != *key);
        let mut done = None;
        if is_next {
            if !self.seen.insert(self.hasher.hash_one(key.as_str())) {
                let reason = format!("the statements of {key} are not together");
                return Err(refused(line, reason));
            }
            let next = Partial::new(line, key.clone());
            done = self.current.replace(next);
        }
        if let Some(current) = &mut self.current {
            current.add(quad).map_err(|reason| refused(line, reason))?;
        }
        done.map(Partial::finish).transpose()
    }
}

impl Partial {
    fn new(line: u64, key: NamedNode) -> Self {
        Self {
            line,
            key,
            kind: None,
            name: None,
            owner: None,
            access: None,
            readers: Vec::new(),
            types: Vec::new(),
            scopes: Vec::new(),
            rights: Rights::default(),
            triples: Vec::new(),
            triple_bytes: 0,
        }
    }

    fn add(&mut self, quad: Quad) -> Result<(), String> {
        if quad.graph_name != GraphName::DefaultGraph {
            if self.triples.len() == MAX_TRIPLES {
                return Err(format!("{} has more than {MAX_TRIPLES} triples", self.key));
            }
            let triple = Triple::new(quad.subject, quad.predicate, quad.object);
            self.triple_bytes += triple_bytes(&triple);
            if self.triple_bytes > MAX_DOCUMENT_ENTITY_BYTES {
                let limit = MAX_DOCUMENT_ENTITY_BYTES;
                return Err(format!("{} has terms of more than {limit} bytes", self.key));
            }
            self.triples.push(triple);
            return Ok(());
        }
        let predicate = quad.predicate.as_ref();
        if predicate == vocabulary::RDF_TYPE {
            let mut kinds = EntityKind::ALL.into_iter();
            let kind =
                kinds.find(|kind| quad.object == Term::from(vocabulary::class(*kind).into_owned()));
            let kind = kind.ok_or_else(|| format!("{} is not the class of a kind", quad.object))?;
            return set(&mut self.kind, kind, "class");
        }
        let one = [
            (vocabulary::RDFS_LABEL, &mut self.name, "label"),
            (vocabulary::OWNER, &mut self.owner, "owner"),
            (vocabulary::ACCESS, &mut self.access, "access"),
        ];
        let many = [
            (vocabulary::READER, &mut self.readers),
            (vocabulary::TYPE, &mut self.types),
            (vocabulary::SCOPE, &mut self.scopes),
        ];
        for (known, field, name) in one {
            if predicate == known {
                return set(field, text(quad.object)?, name);
            }
        }
        for (known, list) in many {
            if predicate == known {
                if list.len() == crate::entity::MAX_LIST {
                    return Err(format!("{predicate} has too many values"));
                }
                list.push(text(quad.object)?);
                return Ok(());
            }
        }
        let mut rights = Right::ALL.into_iter();
        if let Some(right) = rights.find(|right| predicate == vocabulary::right(*right)) {
            return self.add_right(right, &text(quad.object)?);
        }
        Err(format!(
            "{predicate} is not a field of an entity: a statement of an entity is in the graph with its key"
        ))
    }

    fn add_right(&mut self, right: Right, holder: &str) -> Result<(), String> {
        let Rights {
            read,
            annotate,
            write,
            administer,
        } = &mut self.rights;
        let list = match right {
            Right::Read => read,
            Right::Annotate => annotate.get_or_insert_default(),
            Right::Write => write,
            Right::Administer => administer,
        };
        if right == Right::Annotate && holder == NOBODY {
            return Ok(());
        }
        if list.len() == crate::entity::MAX_LIST {
            return Err(format!("the right {right} has too many holders"));
        }
        let holder: Holder = holder
            .parse()
            .map_err(|error: crate::error::Error| error.to_string())?;
        list.push(holder);
        Ok(())
    }

    fn finish(self) -> Result<Read, ImportError> {
        let line = self.line;
        let access = match (self.access.as_deref(), self.readers) {
            (None | Some("public"), readers) if readers.is_empty() => Access::Public,
            (Some("owner"), readers) if readers.is_empty() => Access::Owner,
            (Some("readers"), readers) => Access::Readers(readers),
            (None | Some("public" | "owner"), _) => {
                return Err(refused(line, "readers without the access \"readers\""));
            }
            (Some(other), _) => {
                let reason = format!("the access {other:?} is not public, owner or readers");
                return Err(refused(line, reason));
            }
        };
        let key = self.key.into_string();
        let label = self.triples.iter().find_map(|triple| match &triple.object {
            Term::Literal(literal) if triple.predicate == vocabulary::RDFS_LABEL => {
                Some(literal.value().to_owned())
            }
            _ => None,
        });
        let mut name = self.name.or(label).unwrap_or_else(|| key.clone());
        let length = name.len().min(MAX_TEXT_BYTES);
        let length = (0..=length).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(length.unwrap_or(0));
        let mut triples = self.triples;
        restore_labels(&mut triples);
        let has_owner = self.owner.is_some();
        let entity = Entity {
            kind: self.kind.unwrap_or(EntityKind::Other),
            name,
            types: self.types,
            scopes: self.scopes,
            owner: self.owner.unwrap_or_default(),
            access,
            rights: self.rights,
            lease_s: None,
            triples,
            key,
        };
        entity
            .check_published()
            .map_err(|error| refused(line, format!("{}: {error}", entity.key)))?;
        Ok(Read {
            line,
            entity,
            has_owner,
        })
    }
}

fn set<T>(field: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("the entity has a second {name}")),
    }
}

fn text(object: Term) -> Result<String, String> {
    match object {
        Term::Literal(literal) => Ok(literal.destruct().0),
        other => Err(format!("{other} is not a literal")),
    }
}

/// The prefix that an export gives to the labels of one entity.
fn prefix_of(label: &str) -> Option<&str> {
    let digits = label.strip_prefix(LABEL_PREFIX)?;
    let end = digits.find('.')?;
    let is_number = end > 0 && digits[..end].bytes().all(|byte| byte.is_ascii_digit());
    let rest_starts_well = digits[end + 1..]
        .chars()
        .next()
        .is_some_and(|first| first.is_alphanumeric() || first == '_');
    (is_number && rest_starts_well).then(|| &label[..LABEL_PREFIX.len_utf8() + end + 1])
}

/// Gives blank nodes the labels from before an export, if all have the prefix of one entity.
fn restore_labels(triples: &mut [Triple]) {
    fn nodes(triple: &Triple) -> impl Iterator<Item = &BlankNode> {
        let subject = match &triple.subject {
            NamedOrBlankNode::BlankNode(node) => Some(node),
            NamedOrBlankNode::NamedNode(_) => None,
        };
        let object = match &triple.object {
            Term::BlankNode(node) => Some(node),
            _ => None,
        };
        subject.into_iter().chain(object)
    }
    let labels = triples.iter().flat_map(nodes);
    let mut prefixes = labels.map(|node| prefix_of(node.as_str()));
    let Some(Some(prefix)) = prefixes.next() else {
        return;
    };
    if prefixes.any(|other| other != Some(prefix)) {
        return;
    }
    let length = prefix.len();
    drop(prefixes);
    let restored = |node: &BlankNode| BlankNode::new_unchecked(&node.as_str()[length..]);
    for triple in triples {
        if let NamedOrBlankNode::BlankNode(node) = &mut triple.subject {
            *node = restored(node);
        }
        if let Term::BlankNode(node) = &mut triple.object {
            *node = restored(node);
        }
    }
}
