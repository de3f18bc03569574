//! The node's part in discovery where multicast does not reach.

use axum::Json;
use axum::extract::State;

use crate::discovery_proxy;
use crate::kad::{self, Status};
use crate::shared::App;

/// The node's part in the distributed hash table: its contacts, the records it stores for others, its
/// publications and searches. While it is off, all numbers are 0 and `listening` is null.
#[utoipa::path(get, path = "/api/v1/kad", tag = "devices",
    responses((status = 200, body = Status)))]
pub(super) async fn status(State(app): State<App>) -> Json<Status> {
    Json(kad::status(&app))
}

/// The node's part in managed discovery: whether it is a discovery proxy, and the proxies that it queries.
#[utoipa::path(get, path = "/api/v1/discovery-proxies", tag = "devices",
    responses((status = 200, body = discovery_proxy::Status)))]
pub(super) async fn discovery_proxies(State(app): State<App>) -> Json<discovery_proxy::Status> {
    Json(discovery_proxy::status(&app))
}
