//! What the registry says about the streams of a device, a wrapper, a link, a sensor or a client. Virtual sensors find
//! streams by it: by device, type and scope, and by the unit and the observed property of a field.

use std::collections::HashSet;

use chappe_registry::oxrdf::vocab::xsd;
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::vocabulary::{self as v, td};
use chappe_registry::{Entity, EntityKind};
use chappe_stream::StreamSchema;

use crate::catalogue;
use crate::devices::DEVICE_KEYS;
use crate::things::device as things;

/// The producer of streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Producer<'a> {
    /// Its key in the registry.
    pub(crate) key: &'a str,
    /// Its types, which its streams share.
    pub(crate) types: &'a [String],
    /// Its scopes, which its streams share.
    pub(crate) scopes: &'a [String],
    /// It is a device, the platform of the sensors that its streams are.
    pub(crate) is_platform: bool,
}

impl<'a> Producer<'a> {
    /// A producer without types and scopes.
    pub(crate) fn new(key: &'a str) -> Self {
        Self {
            key,
            types: &[],
            scopes: &[],
            is_platform: false,
        }
    }

    /// The entity of one of its streams.
    pub(crate) fn stream(
        &self,
        name: &str,
        schema: &StreamSchema,
        description: Option<&str>,
    ) -> Entity {
        let key = catalogue::key(name);
        let mut entity = Entity::new(key.clone(), EntityKind::Stream, name);
        entity.types = self.types.to_vec();
        entity.scopes = self.scopes.to_vec();
        let mut say = Statements::about(&key);
        say.link(v::PRODUCED_BY, self.key);
        if let Some(text) = description {
            say.text(v::RDFS_COMMENT, text);
        }
        if self.key.starts_with(DEVICE_KEYS) {
            say.affordance(name);
        }
        for (index, field) in schema.fields.iter().enumerate() {
            let node = BlankNode::new_unchecked(format!("f{index}"));
            say.object(v::FIELD, node.clone().into());
            let mut of_field = |predicate: NamedNodeRef<'_>, object: Term| {
                say.triples
                    .push(Triple::new(node.clone(), predicate.into_owned(), object));
            };
            of_field(v::FIELD_NAME, literal(&field.name));
            let word = serde_json::to_value(field.field_type).unwrap_or_default();
            of_field(v::FIELD_TYPE, literal(word.as_str().unwrap_or_default()));
            if let Some(unit) = &field.unit {
                of_field(v::UNIT, literal(unit));
                if let Some(unit) = v::qudt::unit(unit) {
                    of_field(v::HAS_UNIT, unit.into());
                }
            }
            if let Some(text) = &field.description {
                of_field(v::RDFS_COMMENT, literal(text));
            }
            if let Some(property) = &field.observed_property {
                let property = match NamedNode::new(property.as_str()) {
                    Ok(property) => property,
                    Err(_) => continue,
                };
                of_field(v::OBSERVED_PROPERTY, property.clone().into());
                say.object(v::OBSERVES, property.into());
                // What observes a property is a sensor of whatever produces the stream.
                say.object(v::RDF_TYPE, v::SENSOR.into_owned().into());
                if self.is_platform {
                    say.link(v::IS_HOSTED_BY, self.key);
                }
            }
        }
        entity.triples = say.triples;
        entity
    }
}

fn literal(text: &str) -> Term {
    Literal::new_simple_literal(text).into()
}

/// The triples of one subject.
pub(crate) struct Statements {
    subject: NamedNode,
    triples: Vec<Triple>,
    /// The same triples: a device may have a thousand streams.
    known: HashSet<Triple>,
}

impl Statements {
    pub(crate) fn about(key: &str) -> Self {
        // Keys are checked where they are created, and again by the registry.
        Self {
            subject: NamedNode::new_unchecked(key),
            triples: Vec::new(),
            known: HashSet::new(),
        }
    }

    fn object(&mut self, predicate: NamedNodeRef<'_>, object: Term) {
        let triple = Triple::new(self.subject.clone(), predicate.into_owned(), object);
        if self.known.insert(triple.clone()) {
            self.triples.push(triple);
        }
    }

    pub(crate) fn text(&mut self, predicate: NamedNodeRef<'_>, text: &str) {
        self.object(predicate, literal(text));
    }

    pub(crate) fn link(&mut self, predicate: NamedNodeRef<'_>, key: &str) {
        self.object(predicate, NamedNode::new_unchecked(key).into());
    }

    /// The stream of a device is a property and an event of a thing, with the forms of its Thing Description.
    fn affordance(&mut self, name: &str) {
        self.link(v::RDF_TYPE, td::PROPERTY.as_str());
        self.link(v::RDF_TYPE, td::EVENT.as_str());
        self.text(td::NAME, name);
        let targets = [things::reading(name), things::following(name)];
        for (index, target) in targets.into_iter().enumerate() {
            let form = BlankNode::new_unchecked(format!("form{index}"));
            self.object(td::HAS_FORM, form.clone().into());
            let target = Literal::new_typed_literal(format!("/{target}"), xsd::ANY_URI);
            self.triples.push(Triple::new(form, td::TARGET, target));
        }
    }

    pub(crate) fn into_triples(self) -> Vec<Triple> {
        self.triples
    }
}
