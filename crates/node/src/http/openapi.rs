//! The OpenAPI document, generated from the handlers.

use axum::Json;
use axum::extract::State;
use utoipa::OpenApi;

use super::{
    completeness, dds, devices, directory, entities, exchange, kad, links, live, node, query,
    sensors, streams,
};
use crate::shared::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Chappe",
        description = "Devices, their streams and their metadata. Reading is open or needs the \
            token, depending on the configuration; writing always needs `Authorization: Bearer \
            TOKEN`. Errors are application/problem+json with a hint."
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
        completeness::completeness,
        completeness::readers,
        completeness::why,
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

/// The OpenAPI document of the REST API, as JSON.
#[must_use]
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(Description::openapi()).unwrap_or_default()
}

/// This document.
pub(super) async fn route(State(_): State<App>) -> Json<serde_json::Value> {
    Json(openapi())
}
