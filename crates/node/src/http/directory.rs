//! The directory: which streams there are to be read, with their structure. A face of the registry's
//! streams, in the form that other nodes and programs ask for.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chappe_links::{LinkError, Selection};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::exchange;
use super::params::{Name, Params};
use super::parts;
use super::problem::Problem;
use super::streams::{find, level_word};
use crate::catalogue::Entry;
use crate::shared::App;
use crate::view::FieldView;

/// The directory.
#[derive(Serialize, ToSchema)]
pub(crate) struct Directory {
    /// By name.
    streams: Vec<Described>,
}

/// A stream as it can be read.
#[derive(Serialize, ToSchema)]
pub(crate) struct Described {
    /// Its name.
    name: String,
    /// The version of its structure.
    schema_version: u32,
    /// What its elements consist of.
    fields: Vec<FieldView>,
    /// What an element's key identifies, for streams with keys.
    key: Option<String>,
    /// What its elements survive here: memory, process or power.
    level: &'static str,
    /// The present lineage of its numbers, 16 hexadecimal digits.
    epoch: String,
    /// The first number still kept.
    first: u64,
    /// The last acknowledged number.
    last: u64,
    /// What yields it.
    source: String,
}

impl Described {
    fn of(entry: &Entry) -> Self {
        let schema = entry.log.schema();
        let log = entry.log.log();
        Self {
            name: entry.name.clone(),
            schema_version: entry.log.schema_version(),
            fields: schema.fields.iter().map(FieldView::of).collect(),
            key: schema.key.clone(),
            level: level_word(log.level()),
            epoch: chappe_stream::Epoch(log.epoch()).to_string(),
            first: log.first(),
            last: log.last(),
            source: entry.source(),
        }
    }
}

/// Which part of the directory.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// Only this stream, or those whose names begin so, with `*` behind it.
    streams: Option<String>,
    /// xml, postcard or message_pack: as links between nodes read it, instead of JSON.
    serialization: Option<String>,
}

/// The streams that can be read here, with their structure.
#[utoipa::path(get, path = "/api/v1/directory", tag = "links", params(Part),
    responses((status = 200, body = Directory), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Params(part): Params<Part>,
) -> Result<Response, Problem> {
    let streams = part.streams.unwrap_or_default();
    if let Some(word) = part.serialization {
        let serialization = exchange::serialization(&word)?;
        let links = parts::exchange(&app)?.links();
        let answer = links.http_directory(&streams, serialization, &exchange::reader(peer));
        let answer = answer.map_err(exchange::refused)?;
        let kind = serialization.media_type();
        return Ok(([(header::CONTENT_TYPE, kind)], answer).into_response());
    }
    let mut entries = app.catalogue.entries();
    if !streams.is_empty() {
        let wanted: Selection = streams
            .parse()
            .map_err(|error: LinkError| Problem::bad_request(error.to_string()))?;
        entries.retain(|entry| wanted.takes(&entry.name));
    }
    let streams = entries.iter().map(|entry| Described::of(entry)).collect();
    Ok(Json(Directory { streams }).into_response())
}

/// One stream of the directory, by its name.
#[utoipa::path(get, path = "/api/v1/directory/{name}", tag = "links",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = Described), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    Name(name): Name,
) -> Result<Json<Described>, Problem> {
    Ok(Json(Described::of(&*find(&app, &name)?)))
}
