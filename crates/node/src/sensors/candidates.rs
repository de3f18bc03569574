//! Candidates for a source: the registered streams that match its query, or the stored stream that it names.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chappe_registry::metadata::{self, Criterion, Metadata, Value};
use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Entity, EntityKind, Interrupt, Principal, Search, SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_stream::{Candidate, MetadataQuery, MetadataValue, Selection, StreamQuery};

use crate::catalogue::{AUDIT, key, stream_name};
use crate::registrar::NODE_OWNER;
use crate::shared::App;

/// Rows of a source's SPARQL query; reason: as many as the log can have streams.
const SPARQL_ROWS_MAX: usize = chappe_log::MAX_STREAMS;
/// Time limit of a source's SPARQL query.
const SPARQL_TIME: Duration = Duration::from_secs(1);

/// The streams that match `selection` now, except `own`, the sensor's output. `named` is the stream that the
/// selection names.
///
/// # Errors
/// The SPARQL query failed.
pub(super) fn candidates(
    app: &App,
    selection: &Selection,
    named: Option<&str>,
    own: &str,
) -> Result<Vec<Candidate>, String> {
    let found = match (selection, named) {
        (Selection::Query(query), _) => search(app, query)?,
        (_, None) => Vec::new(),
        // As long as it is stored: a device that has left, or is not found yet, is silent.
        (_, Some(name)) => {
            let entry = app.catalogue.get(name);
            let readable = entry.filter(|entry| entry.name != AUDIT);
            readable.iter().map(|entry| entry.key()).collect()
        }
    };
    let mut candidates = Vec::new();
    for key in found {
        let Some(entry) = stream_name(&key).and_then(|name| app.catalogue.get(name)) else {
            continue;
        };
        let schema = entry.log.schema();
        let why = match selection {
            Selection::Stream(_) => "the sensor names it".to_owned(),
            Selection::Command(name) => format!("it has the calls of the command {name:?}"),
            Selection::Wrapper(_) => "the sensor's wrapper writes it".to_owned(),
            Selection::Query(query) => {
                if entry.name == own || query.value_field(&schema).is_err() {
                    continue;
                }
                why(query)
            }
        };
        candidates.push(Candidate {
            stream: entry.name.clone(),
            device: Some(entry.source()).filter(|source| !source.is_empty()),
            registered: app.registrar.registered_at(&key),
            why,
            schema,
        });
    }
    Ok(candidates)
}

/// The keys of the streams that a query selects, found by the registry's indexes.
fn search(app: &App, query: &StreamQuery) -> Result<Vec<String>, String> {
    let named = match &query.sparql {
        Some(sparql) => Some(streams_by_sparql(app, sparql, &query.by)?),
        None => None,
    };
    // A type is named in full or by its local part.
    let is_full = |name: &String| name.contains('}');
    let search = Search {
        name_prefix: query.name_prefix.clone(),
        kind: Some(EntityKind::Stream),
        entity_type: query.entity_type.clone().filter(is_full),
        local_type: query.entity_type.clone().filter(|name| !is_full(name)),
        scope: query.scope.clone(),
        observed_property: query.observed_property.clone(),
        ..Search::default()
    };
    let mut keys = app.registry.search_keys(&search, &Principal::Operator);
    if let Some(named) = named {
        keys.retain(|key| named.contains(key));
    }
    for piece in &query.metadata {
        let annotated = Annotated::find(app, piece)?;
        let mut kept = Vec::new();
        for key in keys {
            if annotated.has(&key)? || annotated.has_device_of(app, &key)? {
                kept.push(key);
            }
        }
        keys = kept;
    }
    Ok(keys)
}

/// Most pieces whose subjects are read at once; of more, each stream is looked up instead.
const SUBJECTS_MAX: usize = 10_000;

/// The entities that have a piece of metadata which a source asks for.
struct Annotated {
    metadata: Metadata,
    asked: Criterion,
    /// All of them, if they are few.
    subjects: Option<HashSet<String>>,
}

impl Annotated {
    fn find(app: &App, query: &MetadataQuery) -> Result<Self, String> {
        let value = query.value.as_ref().map(|value| match value {
            MetadataValue::Text(text) => Value::Text(text.clone()),
            MetadataValue::Uri(uri) => Value::Uri(uri.clone()),
        });
        let asked = Criterion {
            piece_type: Some(query.piece_type.clone()),
            value,
            authors: query.by.clone(),
            ..Criterion::default()
        };
        let metadata = app.registry.metadata(&Principal::Operator);
        let count = metadata.count(&asked).map_err(|error| error.to_string())?;
        let mut found = Self {
            metadata,
            asked,
            subjects: None,
        };
        if count <= SUBJECTS_MAX {
            found.subjects = Some(found.read().map_err(|error| error.to_string())?);
        }
        Ok(found)
    }

    fn read(&self) -> Result<HashSet<String>, metadata::Error> {
        let (mut subjects, mut after) = (HashSet::new(), None);
        loop {
            let asked = std::slice::from_ref(&self.asked);
            let page = self
                .metadata
                .entities(asked, after.as_deref(), metadata::MAX_PAGE)?;
            subjects.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(subjects);
            }
        }
    }

    fn has(&self, key: &str) -> Result<bool, String> {
        match &self.subjects {
            Some(subjects) => Ok(subjects.contains(key)),
            None => {
                let asked = std::slice::from_ref(&self.asked);
                let has = self.metadata.has(key, asked);
                has.map_err(|error| error.to_string())
            }
        }
    }

    /// Whether the device of a stream has it.
    fn has_device_of(&self, app: &App, key: &str) -> Result<bool, String> {
        let entry = stream_name(key).and_then(|name| app.catalogue.get(name));
        let source = entry.map(|entry| entry.source());
        let announced = || stream_name(key).and_then(|name| app.devices.announced_with(name));
        match source.filter(|source| !source.is_empty()) {
            Some(device) if self.has(&device)? => Ok(true),
            Some(_) => announced().map_or(Ok(false), |device| self.has(&device)),
            None => Ok(false),
        }
    }
}

fn streams_by_sparql(app: &App, sparql: &str, by: &[String]) -> Result<HashSet<String>, String> {
    let deadline = Instant::now() + SPARQL_TIME;
    let interrupt = Interrupt::when(move || Instant::now() >= deadline);
    let limits = SparqlLimits {
        rows: SPARQL_ROWS_MAX,
        ..SparqlLimits::default()
    };
    // A stranger's triples bind no sensor that does not name that author.
    let own = app.registrar.node_owner();
    let mut authors = vec![NODE_OWNER.to_owned(), own.to_owned()];
    authors.extend(by.iter().cloned());
    let answer = app
        .registry
        .sparql_of(sparql, &Principal::Operator, &authors, &limits, &interrupt)
        .map_err(|error| error.to_string())?;
    let SparqlAnswer::Solutions { variables, rows } = answer else {
        return Err("the SPARQL query of a source must be a SELECT".to_owned());
    };
    let column = variables.iter().position(|name| name.as_str() == "stream");
    let column = column.ok_or("the SELECT has no variable ?stream")?;
    let keys = rows
        .into_iter()
        .filter_map(|row| match row.into_iter().nth(column) {
            Some(Some(Term::NamedNode(node))) => Some(node.into_string()),
            _ => None,
        });
    Ok(keys.collect())
}

/// The reasons why a stream matches.
fn why(query: &StreamQuery) -> String {
    let parts = [
        ("observes", &query.observed_property),
        ("in", &query.unit),
        ("has type", &query.entity_type),
        ("is in scope", &query.scope),
        ("has the name prefix", &query.name_prefix),
    ];
    let mut words: Vec<String> = parts
        .iter()
        .filter_map(|(verb, value)| Some(format!("{verb} {}", value.as_ref()?)))
        .collect();
    if query.sparql.is_some() {
        words.push("is selected by the SPARQL query".to_owned());
    }
    for piece in &query.metadata {
        let (what, by) = (&piece.piece_type, piece.by.join(" or "));
        words.push(format!("has the metadata {what} of {by}"));
    }
    words.join(", ")
}

/// A selection, for display.
pub(super) fn described(selection: &Selection) -> String {
    match selection {
        Selection::Query(query) => describe(query),
        Selection::Stream(name) | Selection::Command(name) => name.clone(),
        Selection::Wrapper(wrapper) => wrapper.stream().unwrap_or_default().to_owned(),
    }
}

/// The query of a source, for display.
pub(super) fn describe(query: &StreamQuery) -> String {
    let parts = [
        ("observed_property", &query.observed_property),
        ("unit", &query.unit),
        ("type", &query.entity_type),
        ("scope", &query.scope),
        ("name_prefix", &query.name_prefix),
        ("sparql", &query.sparql),
    ];
    let words = parts.iter().filter_map(|(key, value)| {
        let value = value.as_ref()?;
        Some(format!("{key} = {value:?}"))
    });
    let mut words: Vec<String> = words.collect();
    if !query.by.is_empty() {
        words.push(format!("by = {:?}", query.by));
    }
    for piece in &query.metadata {
        let value = match &piece.value {
            None => String::new(),
            Some(MetadataValue::Text(text)) => format!(" = {text:?}"),
            Some(MetadataValue::Uri(uri)) => format!(" = <{uri}>"),
        };
        words.push(format!(
            "metadata {}{value} by {:?}",
            piece.piece_type, piece.by
        ));
    }
    words.join(", ")
}

/// The key of a virtual sensor in the registry.
pub(crate) fn sensor_key(name: &str) -> String {
    format!("urn:chappe:virtual-sensor:{name}")
}

/// The entity of a virtual sensor.
pub(super) fn sensor_entity(name: &str, stream: &str) -> Entity {
    use chappe_registry::oxrdf::{NamedNode, Triple};
    let own = sensor_key(name);
    let mut entity = Entity::new(own.clone(), EntityKind::VirtualSensor, name);
    entity.triples.push(Triple::new(
        NamedNode::new_unchecked(own),
        vocabulary::STREAM.into_owned(),
        NamedNode::new_unchecked(key(stream)),
    ));
    entity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::on_node;
    use crate::streams::StreamSpec;
    use chappe_stream::{Field, FieldType, StreamSchema};
    use tokio::task::JoinSet;

    #[test]
    fn all_streams_are_searched_not_the_first_by_name() {
        const STREAMS: usize = 2_500;
        on_node(
            |_| {},
            async |app| {
                let field = |observed: &str| Field {
                    name: "value".to_owned(),
                    field_type: FieldType::Double,
                    unit: None,
                    observed_property: Some(observed.to_owned()),
                    description: None,
                };
                let mut opening = JoinSet::new();
                for number in 0..STREAMS {
                    // The last by name has the unit that is asked for.
                    let mut field = field("urn:p");
                    field.unit = (number + 1 == STREAMS).then(|| "Cel".to_owned());
                    let spec = StreamSpec {
                        name: format!("s{number:04}"),
                        schema: StreamSchema {
                            fields: vec![field],
                            key: None,
                        },
                        source: "urn:source".to_owned(),
                        level: Some(chappe_log::Level::Memory),
                    };
                    let app = app.clone();
                    opening.spawn(async move { spec.open(&app, |_| true).await.map(drop) });
                }
                while let Some(opened) = opening.join_next().await {
                    opened.unwrap().unwrap();
                }
                let found = |toml: &str| {
                    let text = format!(
                        "name = 'x'\n[[source]]\nalias = 'src'\n{toml}\n[output]\n\
                         sql = 'select value from src'\n[[output.field]]\nname = 'value'\n\
                         type = 'double'\n"
                    );
                    let descriptor = chappe_stream::Descriptor::parse("x.toml", &text).unwrap();
                    candidates(app, &descriptor.sources[0].selection, None, "x").unwrap()
                };
                let all = found("query = { observed_property = \"urn:p\" }");
                assert_eq!(all.len(), STREAMS);
                let one = found("query = { observed_property = \"urn:p\", unit = \"Cel\" }");
                assert_eq!(one.len(), 1);
                assert_eq!(one[0].stream, "s2499");
            },
        );
    }

    #[test]
    fn metadata_of_a_device_selects_its_streams() {
        use chappe_registry::metadata::{Annotator, Draft, Value};
        on_node(
            |_| {},
            async |app| {
                let device = Entity::new("urn:device", EntityKind::Device, "device");
                app.registry.publish(device).unwrap().await.unwrap();
                for source in ["urn:device", "urn:other"] {
                    let spec = StreamSpec {
                        name: source.replace(':', "."),
                        schema: StreamSchema {
                            fields: Vec::new(),
                            key: None,
                        },
                        source: source.to_owned(),
                        level: Some(chappe_log::Level::Memory),
                    };
                    spec.open(app, |_| true).await.map(drop).unwrap();
                }
                let mut bits = 0;
                let mut random = || {
                    bits += 1;
                    bits
                };
                let mut attach = |author: &str, value: Value| {
                    let draft = Draft {
                        key: None,
                        subject: "urn:device".to_owned(),
                        piece_type: "urn:trust".to_owned(),
                        value,
                        rule: None,
                        lease_s: None,
                    };
                    let reader = Principal::Operator;
                    Annotator::new(&app.registry, author, reader, 0, &mut random)
                        .attach(&draft)
                        .unwrap()
                        .wait()
                        .unwrap();
                };
                attach("ada", Value::Uri("urn:high".to_owned()));
                attach("eve", Value::Text("high".to_owned()));
                for (criteria, count) in [
                    ("uri = 'urn:high', by = ['ada']", 1),
                    ("by = ['bob', 'eve']", 1),
                    ("uri = 'urn:high', by = ['eve']", 0),
                    ("value = 'high', by = ['ada']", 0),
                    ("value = 'high', by = ['nobody']", 0),
                ] {
                    let text = format!(
                        "name = 'x'\n[[source]]\nalias = 'src'\nquery = {{ metadata = \
                         [{{ type = 'urn:trust', {criteria} }}] }}\n[output]\n\
                         sql = 'select 1 as value from src'\n[[output.field]]\nname = 'value'\n\
                         type = 'double'\n"
                    );
                    let descriptor = chappe_stream::Descriptor::parse("x.toml", &text).unwrap();
                    let again = descriptor.to_toml();
                    let again = chappe_stream::Descriptor::parse("x.toml", &again).unwrap();
                    assert_eq!(descriptor.sources[0].selection, again.sources[0].selection);
                    let found = candidates(app, &descriptor.sources[0].selection, None, "x");
                    let found = found.unwrap();
                    assert_eq!(found.len(), count, "{criteria}");
                    assert!(found.iter().all(|one| one.stream == "urn.device"));
                }
            },
        );
    }
}
