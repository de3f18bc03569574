//! The calls of GSN's REST interface that its wrapper `remote-api` makes, so that a GSN server reads streams of this
//! node (docs/reference/gsn-exchange.md).
//!
//! `client_id` is the name of an account and `client_secret` its token. The access token is that token itself: GSN's
//! wrapper sends an access token until it ends, even if it was told that it has expired, and a token of its own would
//! have to outlive this process.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_gsn::rest::field_documents;
use chappe_identity::Token;
use chappe_stream::StreamSchema;
use chappe_transport::Hop;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::refused;
use super::page::{Form, Gaps, Page};
use super::params::{self, Name, Params};
use super::problem::Problem;
use super::streams::find;
use crate::accounts::{Caller, Refusal as CredentialRefusal, View};
use crate::catalogue::Entry;
use crate::clock;
use crate::shared::App;

/// Seconds for which an access token is announced, unless its account ends earlier.
const TOKEN_S: i64 = 365 * 86_400;

/// A request for an access token, as a form.
#[derive(Deserialize, ToSchema)]
#[schema(as = GsnTokenRequest)]
pub(crate) struct TokenRequest {
    /// `client_credentials`.
    grant_type: String,
    /// The name of an account.
    #[serde(default)]
    client_id: String,
    /// Its token.
    #[serde(default)]
    client_secret: String,
}

/// An access token.
#[derive(Serialize, ToSchema)]
#[schema(as = GsnToken)]
pub(crate) struct AccessToken {
    /// The token of the account.
    access_token: String,
    /// `Bearer`.
    token_type: &'static str,
    /// Seconds until it expires.
    expires_in: i64,
}

/// A refused request for a token, as RFC 6749 has it and as a problem.
#[derive(Serialize)]
struct OauthProblem {
    error: &'static str,
    #[serde(flatten)]
    problem: Problem,
}

fn oauth(error: &'static str, problem: Problem) -> Response {
    let Ok(status) = StatusCode::from_u16(problem.status) else {
        return problem.into_response();
    };
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    let retry = problem.retry_after_s.map(|seconds| seconds.to_string());
    let retry = retry.map(|seconds| [(header::RETRY_AFTER, seconds)]);
    let body = Json(OauthProblem { error, problem });
    match retry {
        Some(retry) => (status, retry, kind, body).into_response(),
        None => (status, kind, body).into_response(),
    }
}

fn enabled(app: &App) -> Result<(), Problem> {
    match app.config.http.gsn {
        true => Ok(()),
        false => {
            Err(Problem::not_found("GSN's interface is not enabled here")
                .hint("set http.gsn = true"))
        }
    }
}

/// An access token for GSN's interface: OAuth 2 with client credentials (RFC 6749, section 4.4).
#[utoipa::path(post, path = "/gsn/oauth2/token", tag = "gsn",
    request_body(content((TokenRequest = "application/x-www-form-urlencoded"))),
    responses((status = 200, body = AccessToken), (status = 400, body = Problem),
        (status = 401, body = Problem, description = "no account has this name and token"),
        (status = 404, body = Problem, description = "the interface is not enabled")))]
pub(super) async fn token(
    State(app): State<App>,
    peer: ConnectInfo<SocketAddr>,
    body: Body,
) -> Result<Response, Problem> {
    enabled(&app)?;
    let bytes = params::body(&app, body).await?;
    let invalid = || {
        let problem = Problem::bad_request("the body is not a form with grant_type");
        oauth("invalid_request", problem)
    };
    let form = std::str::from_utf8(&bytes).ok();
    let uri = form.and_then(|form| format!("/?{form}").parse::<Uri>().ok());
    let request = uri.and_then(|uri| Query::<TokenRequest>::try_from_uri(&uri).ok());
    let Some(Query(request)) = request else {
        return Ok(invalid());
    };
    if request.grant_type != "client_credentials" {
        let problem = Problem::bad_request("grant_type is not client_credentials");
        return Ok(oauth("unsupported_grant_type", problem));
    }
    let secret = request.client_secret.parse::<Token>();
    let admitted = match secret {
        Ok(token) => app.accounts.by_token(&token),
        Err(_) => Err(CredentialRefusal::Unknown),
    };
    let admitted = admitted.and_then(|caller| match caller.name() == request.client_id {
        true => Ok(caller),
        false => Err(CredentialRefusal::Unknown),
    });
    let caller = match admitted {
        Ok(caller) => caller,
        Err(refusal) => {
            let address = peer.0.ip();
            let (reason, problem) = refused(&app, refusal, Some(address));
            let peer = address.to_string();
            let hint = problem.hint.clone().map(String::from);
            let drops = &app.observability.drops;
            drops.record(Hop::Http, reason, &peer, problem.detail.clone(), hint);
            return Ok(oauth("invalid_client", problem));
        }
    };
    let end = app.accounts.get(caller.name());
    let end = end.and_then(|account| account.expires_at);
    let left_s = end.map(|end| (end.0 - clock::now().0) / 1_000_000_000);
    let token = AccessToken {
        access_token: request.client_secret,
        token_type: "Bearer",
        expires_in: left_s.map_or(TOKEN_S, |left| left.clamp(0, TOKEN_S)),
    };
    Ok(Json(token).into_response())
}

/// A stream as GSN describes a sensor: a GeoJSON feature.
#[derive(Serialize, ToSchema)]
#[schema(as = GsnSensor)]
pub(crate) struct Sensor {
    /// `Feature`.
    r#type: &'static str,
    /// Null: streams have no place.
    geometry: Option<Geometry>,
    /// The structure and the elements.
    properties: Properties,
}

/// A place.
#[derive(Serialize, ToSchema)]
#[schema(as = GsnGeometry)]
pub(crate) struct Geometry {
    /// `Point`.
    r#type: &'static str,
}

/// The structure and the elements of a sensor.
#[derive(Serialize, ToSchema)]
#[schema(as = GsnProperties)]
pub(crate) struct Properties {
    /// The name of the stream.
    vs_name: String,
    /// The time, then the fields of the stream, each with `name`, `type` and `unit`.
    #[schema(value_type = Vec<GsnField>)]
    fields: Vec<serde_json::Value>,
    /// An array for each element: its time in milliseconds since 1970, then its values.
    values: Vec<Vec<serde_json::Value>>,
}

/// A field of a sensor.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only; fields are written as JSON")]
pub(crate) struct GsnField {
    /// Its name.
    name: String,
    /// Its type in GSN: `double`, `bigint`, `varchar(4000)`, `tinyint`, `binary`; `time` for the first field.
    r#type: String,
    /// Its unit; empty if unknown.
    unit: String,
}

/// All sensors.
#[derive(Serialize, ToSchema)]
#[schema(as = GsnSensors)]
pub(crate) struct Sensors {
    /// `FeatureCollection`.
    r#type: &'static str,
    /// By name.
    features: Vec<Sensor>,
}

impl Sensor {
    fn of(entry: &Entry, schema: &StreamSchema) -> Result<Self, Problem> {
        let name = entry.current_name();
        let fields = field_documents(schema).map_err(|error| {
            let detail = format!("the stream {name:?} has no counterpart in GSN: {error}");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
                .hint("define a virtual sensor without that field")
        })?;
        Ok(Self {
            r#type: "Feature",
            geometry: None,
            properties: Properties {
                vs_name: name,
                fields,
                values: Vec::new(),
            },
        })
    }
}

/// The streams that have a counterpart in GSN.
#[utoipa::path(get, path = "/gsn/api/sensors", tag = "gsn",
    responses((status = 200, body = Sensors),
        (status = 404, body = Problem, description = "the interface is not enabled")))]
pub(super) async fn sensors(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Sensors>, Problem> {
    enabled(&app)?;
    let view = View::of_reader(&app, &caller);
    let mut entries = app.catalogue.by_current_name();
    entries.retain(|(_, entry)| view.has(entry));
    let sensor = |(_, entry): &(String, Arc<Entry>)| Sensor::of(entry, &entry.log.schema()).ok();
    Ok(Json(Sensors {
        r#type: "FeatureCollection",
        features: entries.iter().filter_map(sensor).collect(),
    }))
}

/// The structure of a stream.
#[utoipa::path(get, path = "/gsn/api/sensors/{name}", tag = "gsn",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = Sensor), (status = 404, body = Problem),
        (status = 422, body = Problem, description = "a field of samples has no counterpart in GSN")))]
pub(super) async fn sensor(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<Sensor>, Problem> {
    enabled(&app)?;
    let entry = find(&app, &caller, &name)?;
    let sensor = Sensor::of(&entry, &entry.log.schema())?;
    Ok(Json(sensor))
}

/// The requested elements.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DataParams {
    /// Elements with a source time at or after this (RFC 3339).
    from: Option<String>,
    /// Elements with a source time before this (RFC 3339).
    to: Option<String>,
    /// Maximum number of elements, the oldest; `limits.elements` if absent or larger. Further elements of the
    /// same millisecond as the last one are added.
    size: Option<usize>,
}

/// The elements of a stream in a range of time, oldest first.
#[utoipa::path(get, path = "/gsn/api/sensors/{name}/data", tag = "gsn",
    params(("name" = String, Path, description = "The stream's name"), DataParams),
    responses((status = 200, body = Sensor), (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "a field of samples has no counterpart in GSN")))]
pub(super) async fn data(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<DataParams>,
) -> Result<Response, Problem> {
    enabled(&app)?;
    let entry = find(&app, &caller, &name)?;
    let times = params::times(params.from.as_deref(), params.to.as_deref())?;
    let most = app.config.limits.elements as usize;
    let limit = params.size.unwrap_or(most).min(most);
    let schema = entry.log.schema();
    let text = serde_json::to_string(&Sensor::of(&entry, &schema)?)
        .map_err(|error| Problem::internal(error.to_string()))?;
    // The values are the last member, and follow as they are read.
    let Some(head) = text.strip_suffix("]}}") else {
        return Err(Problem::internal("a sensor ends with its values"));
    };
    let form = Form::Gsn {
        head: head.to_owned(),
        schema,
    };
    let scan = entry.log.scan(0, times);
    let page = Page::new(entry, scan, limit, Gaps::Skip).in_form(form);
    page.with_permits(app, caller).respond().await
}
