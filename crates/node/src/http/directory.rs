//! The directory: the readable streams with their structure, in the formats that other nodes and
//! programs request.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chappe_links::{LinkError, Selection};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::exchange;
use super::paging::Paging;
use super::params::{Name, Params};
use super::parts;
use super::problem::Problem;
use super::shapes::{Level, Serialization};
use super::streams::find;
use crate::accounts::{Caller, View};
use crate::catalogue::Entry;
use crate::shared::App;
use crate::view::FieldView;

/// The directory.
#[derive(Serialize, ToSchema)]
pub(crate) struct Directory {
    /// By name.
    streams: Vec<StreamDescription>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// A readable stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamDescription {
    /// Its name.
    name: String,
    /// The names that it had before, oldest first. They still refer to it.
    former_names: Vec<String>,
    /// The version of its structure.
    schema_version: u32,
    /// The fields of its elements.
    fields: Vec<FieldView>,
    /// What an element's key identifies, for streams with keys.
    key: Option<String>,
    /// Its durability level here.
    #[schema(value_type = Level)]
    level: &'static str,
    /// The current lineage of its numbers, 16 hexadecimal digits.
    epoch: String,
    /// The first number still kept.
    first: u64,
    /// The last acknowledged number.
    last: u64,
    /// Its source.
    source: String,
    /// Whether its source is here. The list of all streams has only these.
    present: bool,
}

impl StreamDescription {
    fn of(app: &App, entry: &Entry) -> Self {
        let schema = entry.log.schema();
        let log = entry.log.log();
        Self {
            name: entry.current_name(),
            former_names: entry.log.former_names(),
            schema_version: entry.log.schema_version(),
            fields: schema.fields.iter().map(FieldView::of).collect(),
            key: schema.key.clone(),
            level: log.level().as_str(),
            epoch: chappe_stream::Epoch(log.epoch()).to_string(),
            first: log.first(),
            last: log.last(),
            source: entry.source(),
            present: app.registrar.is_registered(&entry.key()),
        }
    }
}

/// Parameters of the directory.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DirectoryParams {
    /// Only this stream, or all streams with a prefix (`PREFIX*`), including streams whose source has left.
    streams: Option<String>,
    /// A serialization of links between nodes, instead of JSON.
    #[param(value_type = Option<Serialization>)]
    serialization: Option<String>,
    /// Maximum number of streams in JSON; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// The readable streams of this node, with their structure.
#[utoipa::path(get, path = "/api/v1/directory", tag = "links", params(DirectoryParams),
    responses((status = 200, content((Directory = "application/json"), (String = "application/xml"),
            (Vec<u8> = "application/vnd.chappe.postcard"), (Vec<u8> = "application/vnd.msgpack"))),
        (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    caller: Caller,
    Params(params): Params<DirectoryParams>,
) -> Result<Response, Problem> {
    let streams = params.streams.unwrap_or_default();
    let view = View::of_reader(&app, &caller);
    if let Some(name) = params.serialization {
        let serialization = exchange::serialization(&name)?;
        let links = parts::exchange(&app)?.links();
        let answer =
            links.http_directory(&streams, serialization, &exchange::reader(peer), |name| {
                view.has_stream(name)
            });
        let answer = answer.map_err(exchange::refusal_problem)?;
        let kind = serialization.media_type();
        return Ok(([(header::CONTENT_TYPE, kind)], answer).into_response());
    }
    let mut entries = app.catalogue.by_current_name();
    entries.retain(|(_, entry)| view.has(entry));
    if streams.is_empty() {
        entries.retain(|(_, entry)| app.registrar.is_registered(&entry.key()));
    } else {
        let selection: Selection = streams
            .parse()
            .map_err(|error: LinkError| Problem::bad_request(error.to_string()))?;
        entries.retain(|(_, entry)| entry.log.has_name(|name| selection.takes(name)));
    }
    let paging = Paging::new(params.limit, params.cursor);
    let (entries, next) = paging.cut("directory", entries, |(name, _)| name)?;
    let streams = entries
        .iter()
        .map(|(_, entry)| StreamDescription::of(&app, entry))
        .collect();
    Ok(Json(Directory { streams, next }).into_response())
}

/// One stream of the directory, by its name.
#[utoipa::path(get, path = "/api/v1/directory/{name}", tag = "links",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = StreamDescription), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<StreamDescription>, Problem> {
    let entry = find(&app, &caller, &name)?;
    Ok(Json(StreamDescription::of(&app, &entry)))
}
