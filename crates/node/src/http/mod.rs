//! The REST interface under `/api/v1`, health and metrics, the console, and the guide under `/docs`.

mod accept;
mod accounts;
mod bodies;
mod changes;
mod client_address;
mod completeness;
mod console;
mod create;
mod dds;
mod devices;
mod directory;
mod discovery;
mod documents;
mod entities;
mod eventing;
mod exchange;
mod gsn;
mod guard;
mod guide;
mod ingest;
mod kad;
mod links;
mod live;
mod metadata;
mod node;
mod ontologies;
mod openapi;
mod page;
mod paging;
mod params;
mod parts;
mod preview;
mod problem;
mod publish;
mod query;
mod range;
mod registry_file;
mod rights;
mod routes;
mod sensors;
mod sensorthings;
mod server;
pub(crate) mod shapes;
mod signed;
mod sparql;
mod streams;
mod subscriptions;
mod surroundings;
mod things;
mod uddi;
mod uddi_entity;
mod uddi_metadata;
mod units;
mod wrappers;
mod write;
mod wsdl;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;

pub use openapi::openapi;
pub(crate) use server::{Serving, serve};
pub(crate) use uddi::taxonomies;

use crate::shared::App;
use problem::Problem;
use routes::{ADMINISTER, OPEN, OPERATE, READ, Routes, Rules, WRITE};

/// The operations of the REST interface, each with the role that it needs.
pub(crate) fn routes() -> Routes {
    let restricted = READ.filtered();
    let routes = Routes::default()
        .get("/health", "get_health", OPEN, node::health)
        .get("/ready", "get_readiness", OPEN, node::ready)
        .get("/metrics", "get_metrics", READ, node::metrics)
        // The WSDL says nothing about the node.
        .get(
            uddi::INQUIRY,
            "describe_uddi_inquiry",
            OPEN,
            uddi::describe_inquiry,
        )
        // Its handler checks the role: a signed message has its account inside.
        .post(uddi::INQUIRY, "inquire_uddi", OPEN, uddi::inquire)
        .get(
            uddi::PUBLISH,
            "describe_uddi_publication",
            OPEN,
            uddi::describe_publication,
        )
        .get(
            uddi::LANG,
            "describe_uddi_languages",
            OPEN,
            uddi::describe_lang,
        )
        // The token is in the message.
        .post(uddi::PUBLISH, "publish_uddi", OPEN, uddi::publish)
        .get(uddi::GET_PATH, "get_uddi_entity", READ, uddi_entity::get)
        .get(wsdl::PATH, "describe_uddi_wsdl", OPEN, wsdl::describe)
        // Its handler admits readers and publishers.
        .post(wsdl::PATH, "use_uddi_wsdl", OPEN, wsdl::answer)
        // A client learns from it what the other operations need.
        .get(
            "/.well-known/wot",
            "describe_directory",
            OPEN,
            things::describe,
        )
        .get("/things", "list_things", restricted, things::list)
        .post("/things", "register_thing", WRITE, things::register)
        .get("/things/{id}", "get_thing", restricted, things::retrieve)
        .put("/things/{id}", "put_thing", WRITE, things::put)
        .patch("/things/{id}", "patch_thing", WRITE, things::patch)
        .delete("/things/{id}", "remove_thing", WRITE, things::remove)
        .get(
            "/search/jsonpath",
            "search_things",
            restricted,
            things::jsonpath,
        )
        .get("/search/sparql", "query_things", READ, things::sparql_get)
        .post(
            "/search/sparql",
            "query_things_by_post",
            READ,
            things::sparql_post,
        )
        .get("/events", "follow_things", READ, things::all_events)
        .get(
            "/events/{type}",
            "follow_things_by_type",
            READ,
            things::events,
        )
        .get(
            uddi_metadata::PATH,
            "describe_uddi_metadata",
            OPEN,
            uddi_metadata::describe,
        )
        // The token may be in the message.
        .post(
            uddi_metadata::PATH,
            "ask_uddi_metadata",
            OPEN,
            uddi_metadata::ask,
        )
        // Devices and their clients have no accounts; what they say without one is a hint.
        .post(
            discovery::PATH,
            "use_discovery_proxy",
            OPEN,
            discovery::answer,
        )
        .post(
            "/discovery/subscriptions/{id}",
            "manage_presence_subscription",
            OPEN,
            discovery::answer,
        )
        // Its handler admits readers: the account may be in the signature.
        .post(
            eventing::SOURCES,
            "subscribe_to_registry",
            OPEN,
            eventing::subscribe,
        )
        // The identifier in the path is the credential.
        .post(
            "/registry/subscriptions/{source}/{id}",
            "manage_registry_subscription",
            OPEN,
            eventing::manage,
        )
        .get(
            sensorthings::ROOT,
            "get_sensorthings",
            restricted,
            sensorthings::root,
        )
        .get(
            sensorthings::BELOW,
            "read_sensorthings",
            restricted,
            sensorthings::get,
        )
        // Its handler checks which streams and whether entities of the whole node are concerned.
        .post(
            sensorthings::BELOW,
            "create_in_sensorthings",
            WRITE.filtered(),
            sensorthings::post,
        )
        .patch(
            sensorthings::BELOW,
            "change_in_sensorthings",
            WRITE,
            sensorthings::patch,
        )
        .delete(
            sensorthings::BELOW,
            "remove_from_sensorthings",
            WRITE,
            sensorthings::delete,
        )
        .under("/api/v1")
        .get(
            "/openapi.json",
            "get_description",
            restricted,
            openapi::route,
        )
        .get("/node", "get_node", restricted, node::node)
        .get("/drops", "list_drops", READ, node::drops)
        .get("/notices", "list_notices", READ, node::notices)
        .get("/kad", "get_kad", READ, kad::status)
        .get(
            "/discovery-proxies",
            "get_discovery_proxies",
            READ,
            kad::discovery_proxies,
        )
        .get("/devices", "list_devices", restricted, devices::list)
        .get(
            "/devices/exclusions",
            "list_exclusions",
            READ,
            devices::exclusions,
        )
        .post(
            "/devices/exclusions",
            "exclude_devices",
            OPERATE,
            devices::exclude,
        )
        .delete(
            "/devices/exclusions/{id}",
            "include_devices",
            OPERATE,
            devices::include,
        )
        .get("/devices/places", "list_places", READ, devices::places)
        .get("/devices/{key}", "get_device", restricted, devices::one)
        .post(
            "/devices/{key}/replace",
            "replace_device",
            OPERATE,
            devices::replace,
        )
        .post(
            "/devices/{key}/operations/{operation}",
            "call_device_operation",
            OPERATE,
            devices::operate,
        )
        .get("/entities", "search_entities", restricted, entities::search)
        .post("/entities", "publish_entity", WRITE, publish::publish)
        .get("/entities/{key}", "get_entity", restricted, entities::one)
        .delete("/entities/{key}", "remove_entity", WRITE, publish::remove)
        // Frequent, and what it prevents is recorded: the removal.
        .post(
            "/entities/{key}/renew",
            "renew_entity",
            WRITE.unaudited(),
            publish::renew,
        )
        .get(
            "/registry/subscriptions",
            "list_registry_subscriptions",
            READ,
            subscriptions::list,
        )
        .post(
            "/registry/subscriptions",
            "add_registry_subscription",
            READ,
            subscriptions::add,
        )
        .post(
            "/registry/subscriptions/{id}/renew",
            "renew_registry_subscription",
            READ,
            subscriptions::renew,
        )
        .delete(
            "/registry/subscriptions/{id}",
            "remove_registry_subscription",
            READ,
            subscriptions::remove,
        )
        .get(
            "/registry/changes",
            "follow_registry",
            READ,
            changes::changes,
        )
        .get(
            "/registry/documents",
            "list_documents",
            READ,
            documents::list,
        )
        .get(
            "/registry/documents/{key}",
            "get_document",
            READ,
            documents::one,
        )
        .put(
            "/registry/documents/{key}",
            "put_document",
            WRITE,
            documents::put,
        )
        .delete(
            "/registry/documents/{key}",
            "remove_document",
            WRITE,
            documents::delete,
        )
        .get(
            "/registry/services",
            "find_services",
            READ,
            documents::services,
        )
        .get(
            "/registry/export",
            "export_registry",
            READ,
            registry_file::export,
        )
        .post(
            "/registry/import",
            "import_registry",
            ADMINISTER,
            registry_file::import,
        )
        .get(
            "/entities/{key}/rights",
            "get_rights",
            restricted,
            rights::show,
        )
        .put("/entities/{key}/rights", "set_rights", WRITE, rights::set)
        .get(
            "/entities/{key}/history",
            "get_history",
            restricted,
            surroundings::history,
        )
        .get(
            "/entities/{key}/surroundings",
            "get_surroundings",
            restricted,
            surroundings::surroundings,
        )
        .put(
            "/registry/ontologies/{key}",
            "publish_ontology",
            WRITE,
            ontologies::publish,
        )
        .get("/registry/metadata", "list_metadata", READ, metadata::list)
        .post(
            "/registry/metadata",
            "attach_metadata",
            WRITE,
            metadata::attach,
        )
        .post(
            "/registry/metadata/find",
            "find_entities_by_metadata",
            READ,
            metadata::find,
        )
        .get(
            "/registry/metadata/{key}",
            "get_metadata",
            READ,
            metadata::one,
        )
        .put(
            "/registry/metadata/{key}",
            "update_metadata",
            WRITE,
            metadata::update,
        )
        .delete(
            "/registry/metadata/{key}",
            "delete_metadata",
            WRITE,
            metadata::delete,
        )
        .get("/sparql", "query_registry", READ, sparql::sparql_get)
        .post(
            "/sparql",
            "query_registry_by_post",
            READ,
            sparql::sparql_post,
        )
        .get("/streams", "list_streams", restricted, streams::list)
        .post(
            "/streams",
            "create_stream",
            WRITE.filtered(),
            create::create,
        )
        .post("/streams/query", "query_streams", restricted, query::query)
        .get(
            "/streams/{name}",
            "get_stream",
            READ.by_stream(),
            streams::one,
        )
        .delete(
            "/streams/{name}",
            "remove_stream",
            OPERATE.by_stream(),
            streams::delete,
        )
        .post(
            "/streams/{name}/rename",
            "rename_stream",
            OPERATE.by_stream(),
            streams::rename,
        )
        .delete(
            "/streams/{name}/former-names/{former}",
            "forget_former_name",
            OPERATE.by_stream(),
            streams::forget_name,
        )
        .get(
            "/streams/{name}/elements",
            "list_elements",
            READ.by_stream(),
            streams::elements,
        )
        .post(
            "/streams/{name}/elements",
            "write_elements",
            WRITE.by_stream().unaudited(),
            write::write,
        )
        .get(
            "/streams/{name}/range",
            "get_range",
            READ.by_stream(),
            range::range,
        )
        .get(
            "/streams/{name}/completeness",
            "get_completeness",
            READ.by_stream(),
            completeness::completeness,
        )
        .get("/readers", "list_readers", READ, completeness::readers)
        .get("/why/{name}", "explain", READ, completeness::why)
        .get("/live", "follow_streams", restricted, live::live)
        .get(
            "/virtual-sensors",
            "list_virtual_sensors",
            restricted,
            sensors::list,
        )
        .get(
            "/virtual-sensors/{name}",
            "get_virtual_sensor",
            restricted,
            sensors::one,
        )
        // A sensor's statement can read any stream, so that restricted accounts define none.
        .put(
            "/virtual-sensors/{name}",
            "put_virtual_sensor",
            OPERATE,
            sensors::put,
        )
        .delete(
            "/virtual-sensors/{name}",
            "remove_virtual_sensor",
            OPERATE,
            sensors::delete,
        )
        .post(
            "/virtual-sensors/{name}/preview",
            "preview_virtual_sensor",
            OPERATE.unaudited(),
            preview::preview,
        )
        .post(
            "/virtual-sensors/{name}/commands/{command}",
            "call_virtual_sensor_command",
            OPERATE,
            sensors::command,
        )
        .get("/links", "list_links", READ, links::list)
        .post("/links", "add_link", OPERATE, links::add)
        .get("/links/{name}", "get_link", READ, links::one)
        .delete("/links/{name}", "remove_link", OPERATE, links::delete)
        .get(
            "/links/{name}/dead-letters",
            "list_dead_letters",
            READ,
            links::dead_letters,
        )
        .post(
            "/links/{name}/dead-letters/{verb}",
            "act_on_dead_letters",
            OPERATE,
            links::act_on_letters,
        )
        .get("/wrappers", "list_wrappers", READ, wrappers::list)
        .get("/wrappers/{name}", "get_wrapper", READ, wrappers::one)
        // Its file may name any file and any address that the node reaches.
        .put("/wrappers/{name}", "put_wrapper", ADMINISTER, wrappers::put)
        .delete(
            "/wrappers/{name}",
            "remove_wrapper",
            ADMINISTER,
            wrappers::delete,
        )
        .get(
            "/wrappers/{name}/dead-letters",
            "list_wrapper_dead_letters",
            READ,
            wrappers::dead_letters,
        )
        .post(
            "/wrappers/{name}/dead-letters/{verb}",
            "act_on_wrapper_dead_letters",
            OPERATE,
            wrappers::act_on_letters,
        )
        .post(
            "/wrappers/{name}/commands/{command}",
            "call_wrapper_command",
            OPERATE,
            wrappers::command,
        )
        .post(
            "/wrappers/{name}/messages",
            "send_wrapper_message",
            WRITE.unaudited(),
            wrappers::message,
        )
        .get(
            "/exporters",
            "list_exporters",
            READ,
            wrappers::list_exporters,
        )
        .get(
            "/exporters/{name}",
            "get_exporter",
            READ,
            wrappers::one_exporter,
        )
        .put(
            "/exporters/{name}",
            "put_exporter",
            ADMINISTER,
            wrappers::put_exporter,
        )
        .delete(
            "/exporters/{name}",
            "remove_exporter",
            ADMINISTER,
            wrappers::delete_exporter,
        )
        .get(
            "/exporters/{name}/dead-letters",
            "list_exporter_dead_letters",
            READ,
            wrappers::exporter_letters,
        )
        .post(
            "/exporters/{name}/dead-letters/discard",
            "discard_exporter_dead_letters",
            OPERATE,
            wrappers::discard_exporter_letters,
        )
        .get("/dds", "get_dds", READ, dds::status)
        .get("/dds/idl/{name}", "get_idl", READ.by_stream(), dds::idl)
        .get("/directory", "list_directory", restricted, directory::list)
        .get(
            "/directory/{name}",
            "get_directory_entry",
            READ.by_stream(),
            directory::one,
        )
        .get(
            "/exchange/streams/{name}",
            "pull_stream",
            READ.by_stream(),
            exchange::pull,
        )
        .post(
            "/exchange/subscriptions",
            "subscribe",
            restricted,
            exchange::subscribe,
        )
        // The secret of the subscription is its credential, or the role `operate`.
        .put(
            "/exchange/subscriptions/{id}",
            "renew_subscription",
            restricted,
            exchange::renew,
        )
        .delete(
            "/exchange/subscriptions/{id}",
            "end_subscription",
            restricted,
            exchange::end,
        )
        // The secret in the path is the credential.
        .post(
            "/exchange/contact-points/{link}/{secret}",
            "deliver",
            OPEN,
            exchange::take,
        )
        .put(
            "/exchange/contact-points/{link}/{secret}",
            "confirm_contact_point",
            OPEN,
            exchange::confirm,
        )
        .get("/self", "get_self", OPEN, accounts::own)
        .get(
            "/accounts",
            "list_accounts",
            ADMINISTER.unaudited(),
            accounts::list,
        )
        .post("/accounts", "add_account", ADMINISTER, accounts::add)
        .get(
            "/accounts/{name}",
            "get_account",
            ADMINISTER.unaudited(),
            accounts::one,
        )
        .delete(
            "/accounts/{name}",
            "revoke_account",
            ADMINISTER,
            accounts::revoke,
        )
        .put(
            "/accounts/{name}/share",
            "set_account_share",
            ADMINISTER,
            accounts::set_share,
        )
        .put(
            "/accounts/{name}/groups",
            "set_account_groups",
            ADMINISTER,
            accounts::set_groups,
        )
        .post(
            "/accounts/{name}/token",
            "renew_token",
            ADMINISTER,
            accounts::renew,
        );
    ingest::add(routes)
        .under("/gsn")
        // The name and the token in the form are the credential.
        .post("/oauth2/token", "gsn_token", OPEN, gsn::token)
        .get("/api/sensors", "gsn_sensors", restricted, gsn::sensors)
        .get(
            "/api/sensors/{name}",
            "gsn_sensor",
            READ.by_stream(),
            gsn::sensor,
        )
        .get(
            "/api/sensors/{name}/data",
            "gsn_data",
            READ.by_stream(),
            gsn::data,
        )
}

/// All routes, protected by the guard.
pub(crate) fn router(app: App) -> Router {
    let (router, rules) = routes().into_parts();
    let guard = guard::Guard {
        app: app.clone(),
        rules: Arc::new(Rules::new(rules)),
    };
    router
        .merge(console::routes())
        .merge(guide::routes())
        .fallback(not_found)
        .layer(axum::middleware::from_fn_with_state(
            app.clone(),
            signed::judge,
        ))
        .layer(axum::middleware::from_fn(params::refuse_compressed))
        .layer(axum::middleware::from_fn_with_state(guard, guard::guard))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(120).collect();
    Problem::not_found(format!("there is nothing at {path:?}"))
        .hint("/api/v1/openapi.json lists all paths")
}
