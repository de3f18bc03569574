//! Streams that clients define and write over HTTP.
//!
//! Their source in the registry is [`SOURCE`], and the owner of their entity is the principal that
//! defined them, so that it outlives a restart of the node.

mod producers;

use chappe_log::Level;
use chappe_registry::oxrdf::{NamedOrBlankNode, Term};
use chappe_registry::{Entity, Principal, vocabulary};
use chappe_stream::{Field, StreamSchema};

use crate::catalogue::{self, Entry};
use crate::producer::Producer;
use crate::shared::Shared;

pub(crate) use producers::{Producers, SOURCE, Turn};

/// The entity of a stream that `owner` defined.
pub(crate) fn entity(
    name: &str,
    schema: &StreamSchema,
    title: Option<&str>,
    owner: &str,
) -> Entity {
    let mut entity = Producer::new(SOURCE).stream(name, schema, title);
    entity.owner = owner.to_owned();
    entity
}

/// Registers the streams that clients defined in earlier runs.
pub(crate) async fn register(app: &Shared) {
    let entries = app.catalogue.entries();
    let written = entries.iter().filter(|entry| entry.source() == SOURCE);
    let entities = written.map(|entry| {
        let known = app.registry.get(&entry.key(), &Principal::Operator);
        let owner = Principal::Operator.to_string();
        known.unwrap_or_else(|| entity(&entry.name, &entry.log.schema(), None, &owner))
    });
    app.registrar.publish(entities.collect()).await;
}

/// The title of a stream.
pub(crate) fn title(app: &Shared, stream: &str) -> Option<String> {
    let key = catalogue::key(stream);
    let entity = app.registry.get(&key, &Principal::Operator)?;
    entity.triples.iter().find_map(|triple| {
        let is_own =
            matches!(&triple.subject, NamedOrBlankNode::NamedNode(it) if it.as_str() == key);
        match &triple.object {
            Term::Literal(text) if is_own && triple.predicate == vocabulary::RDFS_COMMENT => {
                Some(text.value().to_owned())
            }
            _ => None,
        }
    })
}

/// The definition of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    pub(crate) schema: StreamSchema,
    pub(crate) title: Option<String>,
    /// The level; `None`: the configured default, and any for an existing stream.
    pub(crate) level: Option<Level>,
}

impl Definition {
    /// How an existing stream differs from this definition, one difference each.
    pub(crate) fn differences(&self, app: &Shared, entry: &Entry) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, here: String, wanted: String| {
            if here != wanted {
                differences.push(format!("{what} is {here}, not {wanted}"));
            }
        };
        let level = entry.log.log().level();
        compare(
            "level",
            format!("{level:?}").to_lowercase(),
            format!("{:?}", self.level.unwrap_or(level)).to_lowercase(),
        );
        compare(
            "title",
            or_none(&title(app, &entry.name)),
            or_none(&self.title),
        );
        let (here, wanted) = (entry.log.schema(), &self.schema);
        compare("key", or_none(&here.key), or_none(&wanted.key));
        let names = |schema: &StreamSchema| {
            let names = schema.fields.iter().map(|field| field.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        compare("the list of fields", names(&here), names(wanted));
        for field in &wanted.fields {
            if let Some(same) = here.fields.iter().find(|it| it.name == field.name) {
                field_differences(same, field, &mut compare);
            }
        }
        differences
    }
}

fn field_differences(here: &Field, wanted: &Field, compare: &mut impl FnMut(&str, String, String)) {
    let name = &wanted.name;
    let types = (here.field_type, wanted.field_type);
    compare(
        &format!("the type of field {name}"),
        format!("{:?}", types.0).to_lowercase(),
        format!("{:?}", types.1).to_lowercase(),
    );
    for (member, here, wanted) in [
        ("unit", &here.unit, &wanted.unit),
        (
            "observed_property",
            &here.observed_property,
            &wanted.observed_property,
        ),
        ("description", &here.description, &wanted.description),
    ] {
        compare(
            &format!("the {member} of field {name}"),
            or_none(here),
            or_none(wanted),
        );
    }
}

fn or_none(text: &Option<String>) -> String {
    text.as_ref()
        .map_or_else(|| "absent".to_owned(), |text| format!("{text:?}"))
}
