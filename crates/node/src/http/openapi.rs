//! The description of the interface, made from its handlers.

use axum::Json;
use axum::extract::State;
use utoipa::OpenApi;

use super::{
    dds, devices, directory, entities, exchange, kad, links, live, node, query, sensors, streams,
};
use crate::shared::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Chappe",
        description = "Devices, their streams and what they mean. Reading is open or needs the \
            token, as the node is configured; changing always needs `Authorization: Bearer TOKEN`. \
            Errors are application/problem+json with a hint."
    ),
    paths(
        node::node,
        node::drops,
        node::notices,
        node::health,
        node::ready,
        node::metrics,
        devices::list,
        devices::one,
        entities::search,
        entities::one,
        entities::sparql_get,
        entities::sparql_post,
        streams::list,
        streams::one,
        streams::delete,
        streams::elements,
        query::query,
        live::live,
        sensors::list,
        sensors::one,
        sensors::put,
        sensors::delete,
        links::list,
        links::one,
        links::add,
        links::delete,
        links::dead_letters,
        links::act_on_letters,
        dds::status,
        dds::idl,
        kad::status,
        exchange::pull,
        exchange::subscribe,
        exchange::renew,
        exchange::end,
        exchange::take,
        exchange::confirm,
        directory::list,
        directory::one,
    )
)]
struct Description;

/// The OpenAPI description of the interface, as JSON.
#[must_use]
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(Description::openapi()).unwrap_or_default()
}

/// This description.
pub(super) async fn route(State(_): State<App>) -> Json<serde_json::Value> {
    Json(openapi())
}
