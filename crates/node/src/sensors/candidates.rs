//! Candidates for a source: the registered streams that match its selection.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Entity, EntityKind, Interrupt, Principal, Search, SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_stream::{Candidate, Selection, StreamQuery};

use crate::catalogue::{key, stream_name};
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
        (_, Some(name)) => {
            let name = app.catalogue.names().resolve(name);
            let entity = app.registry.get(&key(&name), &Principal::Operator);
            entity.into_iter().map(|entity| entity.key).collect()
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
        Some(sparql) => Some(streams_by_sparql(app, sparql)?),
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
    Ok(keys)
}

fn streams_by_sparql(app: &App, sparql: &str) -> Result<HashSet<String>, String> {
    let deadline = Instant::now() + SPARQL_TIME;
    let interrupt = Interrupt::when(move || Instant::now() >= deadline);
    let limits = SparqlLimits {
        rows: SPARQL_ROWS_MAX,
        ..SparqlLimits::default()
    };
    let answer = app
        .registry
        .sparql(sparql, &Principal::Operator, &limits, &interrupt)
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
    words.collect::<Vec<_>>().join(", ")
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
}
