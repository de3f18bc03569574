//! SPARQL over the registry: the query operation of the SPARQL 1.1 Protocol (section 2.1) in its
//! three forms, with the format of the answer by `Accept`.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use chappe_registry::{
    Interrupt, ResultFormat, SparqlAnswer, SparqlError, SparqlLimits, SparqlRequest,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::accept::{self, Accepted};
use super::params;
use super::parts;
use super::problem::Problem;
use super::shapes::SparqlResults;
use crate::accounts::{Caller, OPERATOR};
use crate::permits::RequestKind;
use crate::registrar::{ALL_NODES, NODE_OWNER};
use crate::shared::App;

/// A SPARQL query with the choices of its request. Other parameters are ignored.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = SparqlForm)]
#[allow(dead_code, reason = "describes the parameters")]
pub(crate) struct SparqlParams {
    /// A SELECT, ASK, CONSTRUCT or DESCRIBE query.
    query: String,
    /// The key of an entity whose triples are the default graph, in place of FROM; may be repeated.
    #[serde(rename = "default-graph-uri")]
    default_graph_uri: Option<String>,
    /// The key of an entity that is a named graph, in place of FROM NAMED; may be repeated.
    #[serde(rename = "named-graph-uri")]
    named_graph_uri: Option<String>,
    /// Whether subclasses and subproperties are followed, as the ontologies of the node, of its
    /// operator and of the caller state them. Default: false.
    inferred: Option<bool>,
}

/// Answers a SPARQL 1.1 query over the registry.
#[utoipa::path(get, path = "/api/v1/sparql", tag = "registry", params(SparqlParams),
    responses((status = 200, content((SparqlResults = "application/sparql-results+json"),
            (String = "application/sparql-results+xml"), (String = "text/csv"),
            (String = "text/tab-separated-values"), (String = "text/turtle"),
            (String = "application/n-triples"), (String = "application/rdf+xml"))),
        (status = 400, body = Problem), (status = 406, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn sparql_get(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = Form::default().with(&uri)?.request(&caller)?;
    answer(&app, request, &caller, &headers).await
}

/// Answers a SPARQL 1.1 query over the registry (SPARQL 1.1 Protocol, both forms of POST).
///
/// With `application/sparql-query` the other parameters are in the URL.
#[utoipa::path(post, path = "/api/v1/sparql", tag = "registry",
    request_body(content(
        (String = "application/sparql-query"), (SparqlParams = "application/x-www-form-urlencoded"))),
    responses((status = 200, content((SparqlResults = "application/sparql-results+json"),
            (String = "application/sparql-results+xml"), (String = "text/csv"),
            (String = "text/tab-separated-values"), (String = "text/turtle"),
            (String = "application/n-triples"), (String = "application/rdf+xml"))),
        (status = 400, body = Problem), (status = 406, body = Problem), (status = 415, body = Problem),
        (status = 503, body = Problem)))]
pub(super) async fn sparql_post(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let bytes = params::body(&app, body).await?;
    let form = match kind {
        "application/sparql-query" => {
            let query = String::from_utf8(bytes.into())
                .map_err(|_| Problem::bad_request("the query is not UTF-8"))?;
            let mut form = Form::default().with(&uri)?;
            form.queries.push(query);
            form
        }
        "application/x-www-form-urlencoded" => {
            // A form body has the format of a URL's query string.
            let text = String::from_utf8_lossy(&bytes);
            let form = Uri::builder().path_and_query(format!("/?{text}")).build();
            let form = form.map_err(|error| Problem::bad_request(error.to_string()))?;
            Form::default().with(&form)?
        }
        _ => {
            let detail = format!("a query cannot have the content type {kind:?}");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
                .hint("send it as application/sparql-query"));
        }
    };
    answer(&app, form.request(&caller)?, &caller, &headers).await
}

/// The parameters of a request.
#[derive(Default)]
struct Form {
    queries: Vec<String>,
    default_graphs: Vec<String>,
    named_graphs: Vec<String>,
    is_inferred: bool,
}

impl Form {
    fn with(mut self, uri: &Uri) -> Result<Self, Problem> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map_err(|error| Problem::bad_request(error.body_text()))?;
        for (name, value) in pairs.0 {
            match name.as_str() {
                "query" => self.queries.push(value),
                "default-graph-uri" => self.default_graphs.push(value),
                "named-graph-uri" => self.named_graphs.push(value),
                "inferred" => {
                    self.is_inferred = value.parse().map_err(|_| {
                        Problem::bad_request(format!("inferred: {value:?} is not true or false"))
                    })?;
                }
                "update" => {
                    return Err(Problem::bad_request("the registry has no SPARQL Update")
                        .hint("publish and remove entities over REST"));
                }
                _ => {}
            }
        }
        Ok(self)
    }

    fn request(self, caller: &Caller) -> Result<SparqlRequest, Problem> {
        let mut queries = self.queries.into_iter();
        let (Some(query), None) = (queries.next(), queries.next()) else {
            return Err(Problem::bad_request("a request has exactly one `query`"));
        };
        Ok(SparqlRequest {
            query,
            default_graphs: self.default_graphs,
            named_graphs: self.named_graphs,
            inferred_by: self.is_inferred.then(|| ontology_authors(caller)),
            owners: None,
        })
    }
}

/// The owners whose ontologies are followed for a caller: what a stranger states changes no answer.
pub(super) fn ontology_authors(caller: &Caller) -> Vec<String> {
    [NODE_OWNER, ALL_NODES, OPERATOR, caller.name()]
        .map(str::to_owned)
        .into()
}

/// The limits of a query, and its end.
pub(super) fn limits(app: &App) -> (SparqlLimits, Interrupt) {
    let limits = &app.config.limits;
    let deadline = Instant::now() + Duration::from_millis(u64::from(limits.query_time_ms));
    let limits = SparqlLimits {
        rows: limits.query_rows as usize,
        ..SparqlLimits::default()
    };
    (limits, Interrupt::when(move || Instant::now() >= deadline))
}

async fn answer(
    app: &App,
    request: SparqlRequest,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let accepted = Accepted::of(headers);
    let all = [&ResultFormat::OF_ROWS[..], &ResultFormat::OF_GRAPHS].concat();
    if accepted.best(&all).is_none() {
        return Err(accept::not_acceptable(&all));
    }
    let (limits, interrupt) = limits(app);
    let permit = parts::permit(app, caller, RequestKind::Query)?;
    let (registry, principal) = (app.registry.clone(), caller.reader());
    let work = tokio::task::spawn_blocking(move || {
        let answer = registry.answer(&request, &principal, &limits, &interrupt);
        drop(permit);
        let (answer, _) = answer.map_err(|error| problem(&error))?;
        written(&answer, &accepted)
    });
    work.await
        .unwrap_or_else(|_| Err(Problem::internal("the query failed")))
}

fn written(answer: &SparqlAnswer, accepted: &Accepted) -> Result<Response, Problem> {
    let formats = answer.formats();
    let best = accepted.best(formats);
    let format = best.ok_or_else(|| accept::not_acceptable(formats))?;
    let body = answer.write(format).map_err(|error| problem(&error))?;
    Ok(accept::response(format, body))
}

pub(super) fn problem(error: &SparqlError) -> Problem {
    let detail = error.to_string();
    match error {
        SparqlError::Evaluation(_) => Problem::internal(detail),
        SparqlError::Unsupported(_) => {
            Problem::bad_request(detail).hint("a query can only read the registry")
        }
        SparqlError::Unwritable { .. } => {
            Problem::new(StatusCode::NOT_ACCEPTABLE, detail).hint("accept text/turtle")
        }
        SparqlError::Interrupted => {
            Problem::bad_request(detail).hint("limits.query_time_ms sets the limit")
        }
        SparqlError::Limit { .. } => {
            Problem::bad_request(detail).hint("narrow the query, for example with LIMIT")
        }
        _ => Problem::bad_request(detail),
    }
}
