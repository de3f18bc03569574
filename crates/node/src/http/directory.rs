//! The directory: which streams there are to be read, with their structure. A face of the registry's
//! streams, in the form that other nodes and programs ask for.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::params::{Name, Params};
use super::problem::Problem;
use super::streams::{Field, find, level_word};
use crate::catalogue::Entry;
use crate::shared::App;

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
    fields: Vec<Field>,
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
            fields: schema.fields.iter().map(Field::of).collect(),
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
    /// Only streams whose names begin so.
    prefix: Option<String>,
}

/// The streams that can be read here, with their structure.
#[utoipa::path(get, path = "/api/v1/directory", tag = "links", params(Part),
    responses((status = 200, body = Directory)))]
pub(super) async fn list(State(app): State<App>, Params(part): Params<Part>) -> Json<Directory> {
    let prefix = part.prefix.unwrap_or_default();
    let mut entries = app.catalogue.entries();
    entries.retain(|entry| entry.name.starts_with(&prefix));
    Json(Directory {
        streams: entries.iter().map(|entry| Described::of(entry)).collect(),
    })
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
