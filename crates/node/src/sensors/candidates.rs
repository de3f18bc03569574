//! Candidates for a source: the registered streams that match its selection.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Entity, EntityKind, Interrupt, Principal, Search, SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_stream::descriptor::Source;
use chappe_stream::{Candidate, Selection, StreamQuery};

use crate::catalogue::{key, stream_name};
use crate::shared::App;

/// Maximum number of streams considered for one source; reason: a query that matches more is too
/// broad.
const MATCHES_MAX: usize = 1_000;
/// Time limit of a source's SPARQL query.
const SPARQL_TIME: Duration = Duration::from_secs(1);

/// The streams that match `source` now, except `own`, the sensor's output.
///
/// # Errors
/// The SPARQL query failed.
pub(super) fn candidates(app: &App, source: &Source, own: &str) -> Result<Vec<Candidate>, String> {
    let found = match &source.selection {
        Selection::Stream(name) => {
            let entity = app.registry.get(&key(name), &Principal::Operator);
            entity.into_iter().collect()
        }
        Selection::Query(query) => search(app, query)?,
    };
    let mut candidates = Vec::new();
    for entity in found {
        let Some(entry) = stream_name(&entity.key).and_then(|name| app.catalogue.get(name)) else {
            continue;
        };
        let schema = entry.log.schema();
        let why = match &source.selection {
            Selection::Stream(_) => "the sensor names it".to_owned(),
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
            registered: app.registrar.registered_at(&entity.key),
            why,
            schema,
        });
    }
    Ok(candidates)
}

fn search(app: &App, query: &StreamQuery) -> Result<Vec<Entity>, String> {
    let named = match &query.sparql {
        Some(sparql) => Some(streams_by_sparql(app, sparql)?),
        None => None,
    };
    let search = Search {
        name_prefix: query.name_prefix.clone(),
        kind: Some(EntityKind::Stream),
        scope: query.scope.clone(),
        observed_property: query.observed_property.clone(),
        limit: Some(MATCHES_MAX),
        ..Search::default()
    };
    let found = app.registry.search(&search, &Principal::Operator);
    let mut entities = found.entities;
    entities.retain(|entity| {
        let by_sparql = named
            .as_ref()
            .is_none_or(|named| named.contains(&entity.key));
        by_sparql
            && query
                .entity_type
                .as_ref()
                .is_none_or(|wanted| has_type(entity, wanted))
    });
    Ok(entities)
}

/// Whether an entity has a type, named in full or by its local part.
fn has_type(entity: &Entity, wanted: &str) -> bool {
    entity.types.iter().any(|known| {
        let local = known
            .rsplit_once('}')
            .map_or(known.as_str(), |(_, local)| local);
        known == wanted || local == wanted
    })
}

fn streams_by_sparql(app: &App, sparql: &str) -> Result<HashSet<String>, String> {
    let deadline = Instant::now() + SPARQL_TIME;
    let interrupt = Interrupt::when(move || Instant::now() >= deadline);
    let limits = SparqlLimits {
        rows: MATCHES_MAX,
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
pub(super) fn sensor_key(name: &str) -> String {
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
