//! The REST interface under `/api/v1`, health and metrics, and the console.

mod bodies;
mod client_address;
mod completeness;
mod console;
mod dds;
mod devices;
mod directory;
mod entities;
mod exchange;
mod guard;
mod kad;
mod links;
mod live;
mod node;
mod openapi;
mod page;
mod params;
mod parts;
mod problem;
mod query;
mod sensors;
mod server;
mod streams;

use axum::Router;
use axum::http::Uri;
use axum::routing::get;

pub use openapi::openapi;
pub(crate) use server::{Serving, serve};

use crate::shared::App;
use problem::Problem;

/// All routes, protected by the guard.
pub(crate) fn router(app: App) -> Router {
    let api = Router::new()
        .route("/node", get(node::node))
        .route("/drops", get(node::drops))
        .route("/notices", get(node::notices))
        .route("/kad", get(kad::status))
        .route("/devices", get(devices::list))
        .route("/devices/{key}", get(devices::one))
        .route("/entities", get(entities::search))
        .route("/entities/{key}", get(entities::one))
        .route(
            "/sparql",
            get(entities::sparql_get).post(entities::sparql_post),
        )
        .route("/streams", get(streams::list))
        .route("/streams/query", axum::routing::post(query::query))
        .route("/streams/{name}", get(streams::one).delete(streams::delete))
        .route("/streams/{name}/elements", get(streams::elements))
        .route(
            "/streams/{name}/completeness",
            get(completeness::completeness),
        )
        .route("/readers", get(completeness::readers))
        .route("/why/{name}", get(completeness::why))
        .route("/virtual-sensors", get(sensors::list))
        .route(
            "/virtual-sensors/{name}",
            get(sensors::one).put(sensors::put).delete(sensors::delete),
        )
        .route("/links", get(links::list).post(links::add))
        .route("/links/{name}", get(links::one).delete(links::delete))
        .route("/links/{name}/dead-letters", get(links::dead_letters))
        .route(
            "/links/{name}/dead-letters/{verb}",
            axum::routing::post(links::act_on_letters),
        )
        .route("/dds", get(dds::status))
        .route("/dds/idl/{name}", get(dds::idl))
        .route("/exchange/streams/{name}", get(exchange::pull))
        .route(
            "/exchange/subscriptions",
            axum::routing::post(exchange::subscribe),
        )
        .route(
            "/exchange/subscriptions/{id}",
            axum::routing::put(exchange::renew).delete(exchange::end),
        )
        .route(
            "/exchange/contact-points/{link}/{secret}",
            axum::routing::post(exchange::take).put(exchange::confirm),
        )
        .route("/directory", get(directory::list))
        .route("/directory/{name}", get(directory::one))
        .route("/live", get(live::live))
        .route("/openapi.json", get(openapi::route));
    Router::new()
        .nest("/api/v1", api)
        .route("/health", get(node::health))
        .route("/ready", get(node::ready))
        .route("/metrics", get(node::metrics))
        .merge(console::routes())
        .fallback(not_found)
        .layer(axum::middleware::from_fn_with_state(
            app.clone(),
            guard::guard,
        ))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(120).collect();
    Problem::not_found(format!("there is nothing at {path:?}"))
        .hint("/api/v1/openapi.json lists all paths")
}
