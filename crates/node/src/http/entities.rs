//! The registry: search, single entities.

use axum::Json;
use axum::extract::State;
use chappe_identity::{Reach, Role};
use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Category, DEFAULT_SEARCH_LIMIT, EntityKind, Facet, FacetLimits, Facets, MAX_FACET_ENTITIES,
    MAX_FACET_VALUES, MAX_SEARCH_LIMIT, Right, Search, SearchResult, vocabulary,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, cursor};
use super::params::{Name, Params};
use super::parts;
use super::problem::Problem;
use super::publish::ObjectKind;
use super::{shapes, sparql, surroundings};
use crate::accounts::{Caller, View};
use crate::config::nearest;
use crate::permits::RequestKind;
use crate::registrar::Registrar;
use crate::shared::App;

/// Search criteria; an entity must match all of them.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParams {
    /// Prefix of the name, case-insensitive.
    prefix: Option<String>,
    /// Only entities of this kind.
    #[param(value_type = Option<shapes::EntityKind>)]
    kind: Option<String>,
    /// A type, `{namespace}local`.
    #[serde(rename = "type")]
    entity_type: Option<String>,
    /// A URI that is a prefix of one of its scopes.
    scope: Option<String>,
    /// The IRI of an observed property.
    observed_property: Option<String>,
    /// Only entities whose properties describe the entity with this key.
    about: Option<String>,
    /// Its owner.
    owner: Option<String>,
    /// A value of its UDDI category bag.
    category: Option<String>,
    /// The key of the tModel of `category`. Without it, the reference names none.
    taxonomy: Option<String>,
    /// Whether subclasses of the type, and properties narrower than the observed property, match too,
    /// according to the ontologies of the node, of its operator and of the caller. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    inferred: bool,
    /// Count the matching entities by kind, type, owner, observed property and category. The number is the maximum
    /// number of values of each in the response, up to 1,000.
    #[param(minimum = 1)]
    facets: Option<usize>,
    /// Maximum number of entities, up to 10,000; 100 without it.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// The result of a search.
#[derive(Serialize, ToSchema)]
pub(crate) struct Entities {
    /// In the order of their names.
    entities: Vec<Entity>,
    /// Whether there are more.
    truncated: bool,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
    /// The counts that `facets` asks for, of all parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    facets: Option<FacetCounts>,
}

/// How many of the entities found have each value. A value's count is the number of entities that are found
/// when the value is a further criterion.
#[derive(Serialize, ToSchema)]
pub(crate) struct FacetCounts {
    /// How many entities were counted.
    entities: usize,
    /// Whether these are all that match; otherwise the counts are of the first by name.
    is_complete: bool,
    kind: FacetValues,
    #[serde(rename = "type")]
    types: FacetValues,
    /// Of pieces of metadata, their authors.
    owner: FacetValues,
    observed_property: FacetValues,
    category: FacetValues,
}

/// The values of a field.
#[derive(Serialize, ToSchema)]
pub(crate) struct FacetValues {
    /// Those of most entities first.
    values: Vec<FacetValue>,
    /// How many distinct values there are.
    distinct: usize,
}

/// A value with its number of entities.
#[derive(Serialize, ToSchema)]
pub(crate) struct FacetValue {
    value: String,
    /// The key of the tModel of a category, unless the reference names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    taxonomy: Option<String>,
    count: usize,
}

impl FacetCounts {
    fn of(facets: Facets) -> Self {
        fn values<T>(facet: Facet<T>, of: impl Fn(T) -> (String, Option<String>)) -> FacetValues {
            let values = facet.values.into_iter().map(|(value, count)| {
                let (value, taxonomy) = of(value);
                FacetValue {
                    value,
                    taxonomy,
                    count,
                }
            });
            FacetValues {
                values: values.collect(),
                distinct: facet.distinct,
            }
        }
        let text = |text: String| (text, None);
        let category = |category: Category| (category.value, category.tmodel);
        Self {
            entities: facets.entities,
            is_complete: facets.is_complete,
            kind: values(facets.kinds, |kind| (kind.as_str().to_owned(), None)),
            types: values(facets.types, text),
            owner: values(facets.owners, text),
            observed_property: values(facets.observed_properties, text),
            category: values(facets.categories, category),
        }
    }
}

/// An entity of the registry.
#[derive(Serialize, ToSchema)]
pub(crate) struct Entity {
    /// An IRI.
    key: String,
    /// Its kind.
    #[schema(value_type = shapes::EntityKind)]
    kind: &'static str,
    name: String,
    /// `{namespace}local` each.
    types: Vec<String>,
    /// URIs.
    scopes: Vec<String>,
    owner: String,
    /// Seconds after which it is removed unless its lease is renewed; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_s: Option<u32>,
    /// Its metadata.
    triples: Vec<Triple>,
    /// What the caller may do, of read, annotate, write and administer; only in the answer with one entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    may: Option<Vec<&'static str>>,
}

/// One statement of an entity's metadata.
#[derive(Serialize, ToSchema)]
pub(crate) struct Triple {
    /// The IRI or blank node that it describes, unless that is the entity itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// An IRI.
    predicate: String,
    /// An IRI, a literal or the label of a blank node.
    object: String,
    /// The kind of the object.
    #[schema(value_type = ObjectKind)]
    object_kind: &'static str,
    /// The datatype of a literal that is not plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    datatype: Option<String>,
    /// The language of a literal.
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<String>,
}

impl Entity {
    pub(super) fn of(entity: chappe_registry::Entity) -> Self {
        let key = entity.key.clone();
        // The bytes of a document are at /api/v1/registry/documents.
        let is_shown = |triple: &&chappe_registry::oxrdf::Triple| {
            triple.predicate != vocabulary::wsdl::CONTENT
        };
        let triples = entity.triples.iter().filter(is_shown);
        Self {
            kind: entity.kind.as_str(),
            name: entity.name,
            types: entity.types,
            scopes: entity.scopes,
            owner: entity.owner,
            lease_s: entity.lease_s,
            triples: triples.map(|triple| Triple::of(&key, triple)).collect(),
            key: entity.key,
            may: None,
        }
    }

    /// With what a caller may do with it over REST.
    fn of_caller(entity: chappe_registry::Entity, caller: &Caller) -> Self {
        let reader = caller.reader();
        let writes = caller.reach(Role::Write) == Reach::All;
        let may = Right::ALL.into_iter().filter(|right| {
            let is_of_node = Registrar::is_node(&entity.owner) || entity.kind == EntityKind::Stream;
            let is_refused = *right == Right::Write && is_of_node;
            (writes || *right == Right::Read) && !is_refused && entity.permits(&reader, *right)
        });
        let may = may.map(Right::as_str).collect();
        Self {
            may: Some(may),
            ..Self::of(entity)
        }
    }
}

impl Triple {
    pub(super) fn of(key: &str, triple: &chappe_registry::oxrdf::Triple) -> Self {
        use chappe_registry::oxrdf::NamedOrBlankNode;
        const PLAIN: &str = "http://www.w3.org/2001/XMLSchema#string";
        let subject = match &triple.subject {
            NamedOrBlankNode::NamedNode(node) if node.as_str() == key => None,
            NamedOrBlankNode::NamedNode(node) => Some(node.as_str().to_owned()),
            NamedOrBlankNode::BlankNode(node) => Some(format!("_:{}", node.as_str())),
        };
        let (mut datatype, mut language) = (None, None);
        let (object, object_kind) = match &triple.object {
            Term::NamedNode(node) => (node.as_str().to_owned(), "iri"),
            Term::BlankNode(node) => (format!("_:{}", node.as_str()), "blank"),
            Term::Literal(literal) => {
                language = literal.language().map(str::to_owned);
                let of = literal.datatype().as_str();
                datatype = (language.is_none() && of != PLAIN).then(|| of.to_owned());
                (literal.value().to_owned(), "literal")
            }
        };
        Self {
            subject,
            predicate: triple.predicate.as_str().to_owned(),
            object,
            object_kind,
            datatype,
            language,
        }
    }
}

/// Searches the registry.
#[utoipa::path(get, path = "/api/v1/entities", tag = "registry", params(SearchParams),
    responses((status = 200, body = Entities), (status = 400, body = Problem),
        (status = 503, body = Problem)))]
pub(super) async fn search(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<SearchParams>,
) -> Result<Json<Entities>, Problem> {
    let kind = match &params.kind {
        None => None,
        Some(name) => Some(EntityKind::from_word(name).ok_or_else(|| unknown_kind(name))?),
    };
    let paging = Paging::new(params.limit, params.cursor);
    let category = match (params.category, params.taxonomy) {
        (None, None) => None,
        (Some(value), tmodel) => Some(Category { tmodel, value }),
        (None, Some(_)) => return Err(Problem::bad_request("taxonomy: it is that of a category")),
    };
    if params.facets == Some(0) {
        return Err(Problem::bad_request("facets: must be at least 1"));
    }
    let search = Search {
        name_prefix: params.prefix,
        kind,
        entity_type: params.entity_type,
        scope: params.scope,
        observed_property: params.observed_property,
        about: params.about,
        owner: params.owner,
        category,
        after: after(&paging)?,
        limit: params.limit,
        ..Search::default()
    };
    let search = match params.inferred {
        true => widened(&app, search, &caller).await?,
        false => search,
    };
    let facets = match params.facets {
        Some(values) => Some(facets(&app, search.clone(), &caller, values).await?),
        None => None,
    };
    let (found, last) = visible(&app, search, &caller);
    Ok(Json(Entities {
        facets,
        entities: found.entities.into_iter().map(Entity::of).collect(),
        truncated: found.truncated,
        next: last.map(|(name, key)| cursor("entities", &format!("{key} {name}"))),
    }))
}

/// The facets of all that a caller finds.
async fn facets(
    app: &App,
    search: Search,
    caller: &Caller,
    values: usize,
) -> Result<FacetCounts, Problem> {
    let counted = surroundings::read(
        app.clone(),
        caller.clone(),
        move |registry, reader, view| {
            let keep = |entity: &chappe_registry::Entity| view.has_entity(entity);
            let is_whole = view.is_whole();
            let limits = FacetLimits {
                // Entities are decoded for a restricted role, as in a search.
                entities: match is_whole {
                    true => MAX_FACET_ENTITIES,
                    false => MAX_SEARCH_LIMIT,
                },
                values: values.min(MAX_FACET_VALUES),
            };
            Ok(registry.facets(&search, reader, limits, (!is_whole).then_some(&keep)))
        },
    );
    counted.await.map(FacetCounts::of)
}

/// The search with what the ontologies of the authors that count add.
pub(super) async fn widened(app: &App, search: Search, caller: &Caller) -> Result<Search, Problem> {
    let authors = sparql::ontology_authors(caller);
    let (limits, interrupt) = sparql::limits(app);
    let permit = parts::permit(app, caller, RequestKind::Query)?;
    let (registry, reader) = (app.registry.clone(), caller.reader());
    let work = tokio::task::spawn_blocking(move || {
        let wide = registry.widened(search, &authors, &reader, &limits, &interrupt);
        drop(permit);
        wide
    });
    match work.await {
        Ok(wide) => wide.map_err(|error| sparql::problem(&error)),
        Err(_) => Err(Problem::internal("the search failed")),
    }
}

/// The name and the key of the last entity of the part before.
fn after(paging: &Paging) -> Result<Option<NameAndKey>, Problem> {
    paging.limit()?;
    let last = paging.after("entities")?;
    // A key is an IRI and has no blank.
    let last = last.map(|last| match last.split_once(' ') {
        Some((key, name)) => (name.to_owned(), key.to_owned()),
        None => (String::new(), last),
    });
    Ok(last)
}

type NameAndKey = (String, String);

/// The found entities that the caller may see, and the last one considered if there are more.
fn visible(app: &App, mut search: Search, caller: &Caller) -> (SearchResult, Option<NameAndKey>) {
    let last = |found: &SearchResult| {
        let last = found.entities.last().filter(|_| found.truncated);
        last.map(|entity| (entity.name.clone(), entity.key.clone()))
    };
    let view = View::of_reader(app, caller);
    if view.is_whole() {
        let found = app.registry.search(&search, &caller.reader());
        let last = last(&found);
        return (found, last);
    }
    let limit = search
        .limit
        .unwrap_or(DEFAULT_SEARCH_LIMIT)
        .min(MAX_SEARCH_LIMIT);
    search.limit = Some(MAX_SEARCH_LIMIT);
    let mut found = app.registry.search(&search, &caller.reader());
    let considered = last(&found);
    found.entities.retain(|entity| view.has_entity(entity));
    if found.entities.len() <= limit {
        return (found, considered);
    }
    found.truncated = true;
    found.entities.truncate(limit);
    let last = last(&found);
    (found, last)
}

pub(super) fn unknown_kind(name: &str) -> Problem {
    let names = EntityKind::ALL.map(EntityKind::as_str);
    let detail = format!("kind: {name:?} is not one of {}", names.join(", "));
    let problem = Problem::bad_request(detail);
    match nearest(name, names) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem,
    }
}

/// One entity.
#[utoipa::path(get, path = "/api/v1/entities/{key}", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 200, body = Entity), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<Entity>, Problem> {
    let view = View::of_reader(&app, &caller);
    let entity = app.registry.get(&key, &caller.reader());
    match entity.filter(|entity| view.has_entity(entity)) {
        Some(entity) => Ok(Json(Entity::of_caller(entity, &caller))),
        None => Err(unknown(&key)),
    }
}

/// There is no entity of this key that the caller may see.
pub(super) fn unknown(key: &str) -> Problem {
    Problem::not_found(format!("there is no entity {key:?}"))
        .hint("percent-encode the key in the path; GET /api/v1/entities searches entities")
}
