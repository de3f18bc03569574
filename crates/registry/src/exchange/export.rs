//! Writes what a principal may see.

use std::io::Write;

use chappe_identity::Principal;
use oxrdf::{
    BlankNode, GraphNameRef, LiteralRef, NamedNodeRef, NamedOrBlankNodeRef, QuadRef, TermRef,
};
use oxttl::nquads::WriterNQuadsSerializer;
use oxttl::trig::WriterTriGSerializer;
use oxttl::{NQuadsSerializer, TriGSerializer};

use super::{ExportError, Format, uddi};
use crate::access::Access;
use crate::entity::Entity;
use crate::registry::Registry;
use crate::rights::Right;
use crate::state::State;
use crate::vocabulary;

/// Entities between two reports of progress.
const PROGRESS_EVERY: u64 = 1_000;

impl Registry {
    /// Writes all entities that `principal` may see; returns their number. `progress` is called with the
    /// number of entities written so far. Changes during the export are not part of it.
    ///
    /// # Errors
    /// The writer's error.
    pub fn export(
        &self,
        principal: &Principal,
        format: Format,
        to: impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, ExportError> {
        let state = self.snapshot();
        match format {
            Format::NQuads => {
                let mut quads = NQuadsSerializer::new().for_writer(to);
                let count = export_quads(&state, principal, &mut quads, &mut progress)?;
                quads.finish().flush()?;
                Ok(count)
            }
            Format::TriG => {
                let mut serializer = TriGSerializer::new();
                for (prefix, namespace) in PREFIXES {
                    if let Ok(known) = serializer.clone().with_prefix(prefix, namespace) {
                        serializer = known;
                    }
                }
                let mut quads = serializer.for_writer(to);
                let count = export_quads(&state, principal, &mut quads, &mut progress)?;
                quads.finish()?.flush()?;
                Ok(count)
            }
            Format::UddiXml => uddi::export(&state, principal, to, &mut progress),
        }
    }
}

const PREFIXES: [(&str, &str); 4] = [
    ("chappe", vocabulary::CHAPPE),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("sosa", vocabulary::SOSA),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// A writer of statements.
trait Quads {
    fn write(&mut self, quad: QuadRef<'_>) -> std::io::Result<()>;
}

impl<W: Write> Quads for WriterNQuadsSerializer<W> {
    fn write(&mut self, quad: QuadRef<'_>) -> std::io::Result<()> {
        self.serialize_quad(quad)
    }
}

impl<W: Write> Quads for WriterTriGSerializer<W> {
    fn write(&mut self, quad: QuadRef<'_>) -> std::io::Result<()> {
        self.serialize_quad(quad)
    }
}

fn export_quads(
    state: &State,
    principal: &Principal,
    to: &mut impl Quads,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let mut count = 0;
    for entity in state.entities() {
        if !entity.permits(principal, Right::Read) {
            continue;
        }
        let has_rights = entity.permits(principal, Right::Administer);
        write_entity(&entity, count, has_rights, to)?;
        count += 1;
        if count.is_multiple_of(PROGRESS_EVERY) {
            progress(count);
        }
    }
    progress(count);
    Ok(count)
}

/// The words of an access rule, and its readers.
fn access_of(access: &Access) -> (&'static str, &[String]) {
    match access {
        Access::Public => ("public", &[]),
        Access::Owner => ("owner", &[]),
        Access::Readers(readers) => ("readers", readers),
    }
}

/// Writes the fields in the default graph, and the triples in the entity's graph.
/// Who may read or change it is for those who may change its rights.
fn write_entity(
    entity: &Entity,
    number: u64,
    has_rights: bool,
    to: &mut impl Quads,
) -> std::io::Result<()> {
    let key = NamedNodeRef::new_unchecked(&entity.key);
    let mut field = |predicate: NamedNodeRef<'_>, object: TermRef<'_>| {
        to.write(QuadRef::new(
            key,
            predicate,
            object,
            GraphNameRef::DefaultGraph,
        ))
    };
    fn text(text: &str) -> TermRef<'_> {
        LiteralRef::new_simple_literal(text).into()
    }
    field(vocabulary::RDF_TYPE, vocabulary::class(entity.kind).into())?;
    field(vocabulary::RDFS_LABEL, text(entity.name.as_str()))?;
    field(vocabulary::OWNER, text(entity.owner.as_str()))?;
    if has_rights {
        let (access, readers) = access_of(&entity.access);
        field(vocabulary::ACCESS, text(access))?;
        for reader in readers {
            field(vocabulary::READER, text(reader.as_str()))?;
        }
        for (right, holder) in entity.rights.iter() {
            field(vocabulary::right(right), text(&holder.to_string()))?;
        }
        if entity.rights.annotate.as_deref() == Some(&[]) {
            field(vocabulary::MAY_ANNOTATE, text(NOBODY))?;
        }
    }
    let lists = [
        (vocabulary::TYPE, entity.types.as_slice()),
        (vocabulary::SCOPE, entity.scopes.as_slice()),
    ];
    for (predicate, list) in lists {
        for item in list {
            field(predicate, text(item.as_str()))?;
        }
    }
    // A file has one scope for the labels of blank nodes; here each entity has its own.
    let label = |node: &BlankNode| {
        BlankNode::new_unchecked(format!("{LABEL_PREFIX}{number}.{}", node.as_str()))
    };
    for triple in &entity.triples {
        let (subject_node, object_node);
        let subject: NamedOrBlankNodeRef<'_> = match triple.subject.as_ref() {
            NamedOrBlankNodeRef::NamedNode(node) => node.into(),
            NamedOrBlankNodeRef::BlankNode(node) => {
                subject_node = label(&node.into_owned());
                subject_node.as_ref().into()
            }
        };
        let object: TermRef<'_> = match triple.object.as_ref() {
            TermRef::BlankNode(node) => {
                object_node = label(&node.into_owned());
                object_node.as_ref().into()
            }
            other => other,
        };
        to.write(QuadRef::new(subject, &triple.predicate, object, key))?;
    }
    Ok(())
}

/// It is stated that nobody may annotate an entity.
pub(super) const NOBODY: &str = "nobody";

/// The label of a blank node of entity 7 in a file starts with `e7.`.
pub(super) const LABEL_PREFIX: char = 'e';
