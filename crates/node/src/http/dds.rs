//! DDS topics: their state, and the IDL of streams.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::params::Name;
use super::problem::Problem;
use super::shapes::DdsStatus;
use crate::shared::App;

/// The state of the DDS participant, its publications and subscriptions.
///
/// The participant with its writers (`unacknowledged`, `matched`, `blocked_s`, `mismatched`) and readers,
/// the publications and the subscriptions; without wrappers and exporters of kind `dds`, `participant` is null.
#[utoipa::path(get, path = "/api/v1/dds", tag = "dds",
    responses((status = 200, body = DdsStatus),
        (status = 404, body = Problem, description = "this program was built without DDS")))]
pub(super) async fn status(State(app): State<App>) -> Result<Json<serde_json::Value>, Problem> {
    #[cfg(feature = "dds")]
    return Ok(Json(crate::dds::status(&app)));
    #[cfg(not(feature = "dds"))]
    Err(absent(&app))
}

/// The IDL of a stream: the type of its samples on a topic.
#[utoipa::path(get, path = "/api/v1/dds/idl/{name}", tag = "dds",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 404, body = Problem)))]
pub(super) async fn idl(State(app): State<App>, Name(name): Name) -> Result<Response, Problem> {
    #[cfg(feature = "dds")]
    {
        let log = app.catalogue.get(&name).map(|entry| entry.log.clone());
        let log = log.ok_or_else(|| Problem::not_found(format!("there is no stream {name:?}")))?;
        let idl = chappe_dds::topics::idl(&name, &log);
        let text = idl.map_err(|error| Problem::not_found(error.to_string()))?;
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        Ok((kind, text).into_response())
    }
    #[cfg(not(feature = "dds"))]
    Err(absent((
        &app,
        name,
        header::CONTENT_TYPE,
        ().into_response(),
    )))
}

#[cfg(not(feature = "dds"))]
fn absent<T>(_: T) -> Problem {
    Problem::not_found("this program was built without DDS".to_owned())
}
