//! The distributed hash table: how the node takes part in it.

use axum::Json;
use axum::extract::State;

use crate::kad::{self, Status};
use crate::shared::App;

/// How the node takes part in the distributed hash table: whom it knows, what it keeps for others,
/// what it publishes and searches. All is 0 and `listening` null while it is off.
#[utoipa::path(get, path = "/api/v1/kad", tag = "devices",
    responses((status = 200, body = Status)))]
pub(super) async fn status(State(app): State<App>) -> Json<Status> {
    Json(kad::status(&app))
}
