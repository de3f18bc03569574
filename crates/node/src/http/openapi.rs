//! The OpenAPI document, generated from the handlers.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::ingest::{influxdb, remote_write};
use super::routes::{Restriction, Rule};
use super::{
    accounts, changes, completeness, create, dds, devices, directory, documents, entities,
    exchange, gsn, kad, links, live, metadata, node, ontologies, preview, publish, query, range,
    registry_file, rights, sensors, sparql, streams, subscriptions, surroundings, things, wrappers,
    write,
};
use crate::shared::App;

/// The schema of problems.
const PROBLEM: &str = "#/components/schemas/Problem";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Chappe",
        description = "Devices, their streams and their metadata. Each operation names the role that it \
            needs (`x-chappe-role`). An account is recognized by `Authorization: Bearer TOKEN` or by its \
            client certificate. Where `access.read` is `open`, reading needs no account. Errors are \
            application/problem+json with a stable `code`."
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
        devices::exclusions,
        devices::exclude,
        devices::include,
        devices::places,
        devices::replace,
        devices::operate,
        entities::search,
        entities::one,
        rights::show,
        rights::set,
        surroundings::history,
        surroundings::surroundings,
        publish::publish,
        publish::remove,
        publish::renew,
        changes::changes,
        documents::list,
        documents::one,
        documents::put,
        documents::delete,
        documents::services,
        registry_file::export,
        registry_file::import,
        ontologies::publish,
        sparql::sparql_get,
        sparql::sparql_post,
        metadata::list,
        metadata::attach,
        metadata::find,
        metadata::one,
        metadata::update,
        metadata::delete,
        subscriptions::list,
        subscriptions::add,
        subscriptions::renew,
        subscriptions::remove,
        streams::list,
        streams::one,
        streams::delete,
        streams::rename,
        streams::forget_name,
        streams::elements,
        create::create,
        write::write,
        range::range,
        completeness::completeness,
        completeness::readers,
        completeness::why,
        query::query,
        live::live,
        sensors::list,
        sensors::one,
        sensors::put,
        sensors::delete,
        sensors::command,
        preview::preview,
        links::list,
        links::one,
        links::add,
        links::delete,
        links::dead_letters,
        links::act_on_letters,
        wrappers::list,
        wrappers::one,
        wrappers::put,
        wrappers::delete,
        wrappers::dead_letters,
        wrappers::act_on_letters,
        wrappers::command,
        wrappers::message,
        wrappers::list_exporters,
        wrappers::one_exporter,
        wrappers::put_exporter,
        wrappers::delete_exporter,
        wrappers::exporter_letters,
        wrappers::discard_exporter_letters,
        dds::status,
        dds::idl,
        kad::status,
        kad::discovery_proxies,
        exchange::pull,
        exchange::subscribe,
        exchange::renew,
        exchange::end,
        exchange::take,
        exchange::confirm,
        directory::list,
        directory::one,
        accounts::own,
        accounts::list,
        accounts::one,
        accounts::add,
        accounts::revoke,
        accounts::set_share,
        accounts::set_groups,
        accounts::renew,
        gsn::token,
        gsn::sensors,
        gsn::sensor,
        gsn::data,
        influxdb::ping,
        influxdb::ping_v2,
        influxdb::write_v1,
        influxdb::write_v2,
        influxdb::query,
        influxdb::post_query,
        influxdb::health,
        remote_write::write,
        things::describe,
        things::list,
        things::register,
        things::retrieve,
        things::put,
        things::patch,
        things::remove,
        things::jsonpath,
        things::sparql_get,
        things::sparql_post,
        things::all_events,
        things::events,
    ),
    // Schemas of parameters are not found by themselves.
    components(schemas(links::DeadLetterVerb))
)]
struct Description;

/// The OpenAPI document of the REST API, as JSON.
#[must_use]
pub fn openapi() -> Value {
    let mut document = serde_json::to_value(Description::openapi()).unwrap_or_default();
    let (_, rules) = super::routes().into_parts();
    for rule in &rules {
        let method = rule.method.as_str().to_ascii_lowercase();
        let operation = document["paths"].get_mut(&rule.path);
        if let Some(operation) = operation.and_then(|path| path.get_mut(method)) {
            decide(operation, rule);
        }
    }
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "The token of an account."},
        "certificate": {"type": "mutualTLS", "description": "A client certificate of an authority in \
            `http.tls.client_authorities`, whose subject is that of an account."},
    });
    document
}

/// Adds the decision of a route to its operation.
fn decide(operation: &mut Value, rule: &Rule) {
    operation["operationId"] = rule.operation.into();
    let role = rule
        .needs
        .role
        .map_or("none", chappe_identity::Role::as_str);
    operation["x-chappe-role"] = role.into();
    let restricted = match rule.needs.restriction {
        Restriction::Refused => "refused",
        Restriction::ByStream => "by_stream",
        Restriction::Filtered => "filtered",
    };
    operation["x-chappe-restricted"] = restricted.into();
    let credentials = [json!({"token": []}), json!({"certificate": []})];
    operation["security"] = match role {
        "none" => json!([]),
        // Reading may be open.
        "read" => json!([{}, credentials[0], credentials[1]]),
        _ => json!(credentials),
    };
    let has_body = operation.get("requestBody").is_some();
    let has_parameters = operation.get("parameters").is_some();
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for (status, description) in refusals(rule, has_parameters, has_body) {
        let known = responses.entry(status).or_insert_with(|| json!({}));
        let own = known
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let description = match own {
            "" => description.to_owned(),
            own if own == description => description.to_owned(),
            own => format!("{own}; or {description}"),
        };
        known["description"] = description.into();
        if known.get("content").is_none() {
            known["content"] = json!({"application/json": {"schema": {"$ref": PROBLEM}}});
        }
    }
    for (status, response) in responses.iter_mut() {
        let text = response.get("description").and_then(Value::as_str);
        if text.unwrap_or_default().is_empty() {
            response["description"] = meaning(status).into();
        }
        if matches!(status.as_str(), "429" | "503" | "507") {
            response["headers"]["Retry-After"] = json!({
                "description": "the seconds after which the request may succeed",
                "schema": {"type": "integer"},
            });
        }
    }
    for response in responses.values_mut() {
        let content = response.get_mut("content").and_then(Value::as_object_mut);
        let Some(content) = content else { continue };
        let is_problem = |body: &Value| {
            let name = body.pointer("/schema/$ref").and_then(Value::as_str);
            name == Some(PROBLEM)
        };
        if content.get("application/json").is_some_and(is_problem)
            && let Some(body) = content.remove("application/json")
        {
            content.insert("application/problem+json".to_owned(), body);
        }
    }
}

/// The refusals that an operation may answer with because of its rule, its parameters and its body.
fn refusals(
    rule: &Rule,
    has_parameters: bool,
    has_body: bool,
) -> Vec<(&'static str, &'static str)> {
    let mut refusals = vec![
        (
            "401",
            "the credential is not valid, has expired or is missing",
        ),
        (
            "403",
            match rule.needs.role {
                Some(_) => {
                    "the account does not have the necessary role, or has it only for other objects"
                }
                None => "a page of another site caused the request",
            },
        ),
        (
            "429",
            "too many invalid credentials came from this address; see `Retry-After`",
        ),
        ("default", "any other problem; its `code` names it"),
    ];
    if has_parameters || has_body {
        refusals.push(("400", "a parameter or the body is malformed"));
    }
    if has_body {
        refusals.push(("408", "the body did not arrive in time"));
        refusals.push(("413", "the body is too long"));
    }
    refusals
}

/// The description of an answer that has none of its own.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "the answer",
        "201" => "created",
        "204" => "done",
        "404" => "nothing has this name",
        "406" => "none of the accepted content types is available",
        "409" => "it conflicts with the current state",
        "415" => "the content type is unknown",
        "422" => "the request is invalid",
        "502" => "the peer failed or did not answer",
        "503" => "the node is starting or overloaded",
        "507" => "the disk or a table is full",
        _ => "a problem; its `code` names it",
    }
}

/// This document.
pub(super) async fn route(State(_): State<App>) -> Json<Value> {
    Json(openapi())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_is_described_and_every_described_operation_has_a_decision() {
        let document = openapi();
        let mut described = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(operation["x-chappe-role"].is_string(), "{method} {path}");
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let (_, rules) = crate::http::routes().into_parts();
        let decided: BTreeSet<String> = rules
            .iter()
            // WSDL describes those of UDDI, and WS-Eventing its own.
            .filter(|rule| !rule.path.starts_with("/uddi/") && !rule.path.starts_with("/registry/"))
            // WS-Discovery describes those of the discovery proxy.
            .filter(|rule| !rule.path.starts_with("/discovery"))
            // OGC describes those of SensorThings.
            .filter(|rule| !rule.path.starts_with("/sensorthings/"))
            .filter(|rule| rule.operation != "get_description")
            // InfluxDB's interface again.
            .filter(|rule| !rule.operation.ends_with("_below"))
            .map(|rule| format!("{} {}", rule.method, rule.path))
            .collect();
        assert_eq!(decided, described);
    }

    #[test]
    fn every_answer_has_a_description_and_every_body_a_schema() {
        fn walk(value: &Value, path: &str) {
            let Value::Object(members) = value else {
                if let Value::Array(items) = value {
                    items.iter().for_each(|item| walk(item, path));
                }
                return;
            };
            let is_schema = path.ends_with("/schema");
            assert!(!is_schema || !members.is_empty(), "{path} is free");
            for (name, member) in members {
                walk(member, &format!("{path}/{name}"));
            }
        }
        let document = openapi();
        walk(&document["paths"], "");
        let text = document.to_string();
        for part in text.split("\"#/").skip(1) {
            let pointer = part.split('"').next().unwrap_or_default();
            assert!(
                document.pointer(&format!("/{pointer}")).is_some(),
                "{pointer}"
            );
        }
        for (path, operations) in document["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("default"), "{path}");
                for (status, response) in responses {
                    let text = response["description"].as_str().unwrap_or_default();
                    assert!(!text.is_empty(), "{path} {status}");
                    let is_problem = |content: &Value| {
                        let content = content.as_object().into_iter().flatten();
                        content
                            .into_iter()
                            .any(|(kind, _)| kind == "application/problem+json")
                    };
                    let own = [
                        "/ready",
                        "/api/v1/streams/{name}/elements",
                        "/write",
                        "/api/v2/write",
                        "/query",
                        "/influxdb/health",
                    ];
                    let refuses = status.as_str() >= "400";
                    assert!(
                        !refuses
                            || is_problem(&response["content"])
                            || own.contains(&path.as_str())
                    );
                }
            }
        }
    }
}
