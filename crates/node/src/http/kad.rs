//! The node's part in the distributed hash table.

use axum::Json;
use axum::extract::State;

use crate::kad::{self, Status};
use crate::shared::App;

/// The node's part in the distributed hash table: its contacts, the records it stores for others, its
/// publications and searches. While it is off, all numbers are 0 and `listening` is null.
#[utoipa::path(get, path = "/api/v1/kad", tag = "devices",
    responses((status = 200, body = Status)))]
pub(super) async fn status(State(app): State<App>) -> Json<Status> {
    Json(kad::status(&app))
}
