//! The directory's own Thing Description (WoT Discovery, sections 6.4 and 7.3.2.4): a thing whose property is
//! the list of things, whose actions change and search it, and whose events are its changes.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::vocabulary::td;
use serde_json::{Map, Value, json};

use super::{TD_JSON, ThingDescription};
use crate::http::parts;
use crate::shared::App;
use crate::things::Security;

/// The Thing Description of this directory.
#[utoipa::path(get, path = "/.well-known/wot", tag = "things",
    responses((status = 200, content_type = "application/td+json", body = ThingDescription)))]
pub(crate) async fn describe(State(app): State<App>, headers: HeaderMap) -> Response {
    let base = parts::own_url(&app, &headers);
    let description = description(&app, &base);
    ([(header::CONTENT_TYPE, TD_JSON)], description.to_string()).into_response()
}

fn description(app: &App, base: &str) -> Value {
    let security = Security::of(&app.config);
    json!({
        "@context": [td::TD_CONTEXT, td::DISCOVERY_CONTEXT, {"htv": "http://www.w3.org/2011/http#"}],
        "@type": "ThingDirectory",
        "id": format!("urn:chappe:node:{}", app.identity.public_key),
        "title": app.identity.name,
        "description": "The directory of things of a Chappe node",
        "base": format!("{base}/"),
        "securityDefinitions": security.definitions,
        "security": security.reading,
        "properties": {"things": things()},
        "actions": actions(security.changing),
        "events": events(),
        "links": [{"href": "api/v1/openapi.json", "rel": "service-desc", "type": "application/json"}],
    })
}

/// A refusal that a form announces.
fn refusals(statuses: &[u16]) -> Value {
    let refusals = statuses.iter().map(|status| {
        json!({
            "success": false,
            "contentType": "application/problem+json",
            "htv:statusCodeValue": status,
        })
    });
    refusals.collect()
}

fn things() -> Value {
    let thing = json!({"type": "object", "description": "a Thing Description"});
    json!({
        "description": "all Thing Descriptions",
        "readOnly": true,
        "oneOf": [
            {"type": "array", "items": thing},
            {"type": "object", "properties": {
                "@context": {"const": td::DISCOVERY_CONTEXT},
                "@type": {"const": "ThingCollection"},
                "@id": {"type": "string"},
                "total": {"type": "integer"},
                "members": {"type": "array", "items": thing},
                "next": {"type": "string"},
            }},
        ],
        "uriVariables": {
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "things to skip"},
            "limit": {"type": "integer", "minimum": 1, "description": "things of a page"},
            "format": {"type": "string", "enum": ["array", "collection"], "default": "array"},
        },
        "forms": [{
            "href": "things{?offset,limit,format}",
            "op": "readproperty",
            "htv:methodName": "GET",
            "response": {
                "contentType": "application/ld+json",
                "htv:statusCodeValue": 200,
                "htv:headers": [{"htv:fieldName": "Link"}],
            },
            "additionalResponses": refusals(&[400]),
        }],
    })
}

/// A form of an action.
struct Form<'a> {
    href: &'a str,
    method: &'a str,
    content_type: &'a str,
    status: u16,
    answer: &'a str,
    refusals: &'a [u16],
    /// The scheme, if it is not that of the whole thing.
    security: Option<&'a str>,
}

impl Form<'_> {
    fn to_json(&self) -> Value {
        let mut form = json!({
            "href": self.href,
            "op": "invokeaction",
            "htv:methodName": self.method,
            "contentType": self.content_type,
            "response": {"contentType": self.answer, "htv:statusCodeValue": self.status},
            "additionalResponses": refusals(self.refusals),
        });
        if let Some(security) = self.security {
            form["security"] = json!(security);
        }
        form
    }
}

fn actions(changing: &str) -> Value {
    const EMPTY: &str = "application/x-empty";
    let id = json!({"id": {"@type": "ThingID", "type": "string", "format": "iri-reference"}});
    let input = json!({"type": "object", "description": "a Thing Description"});
    let change = |method, content_type, status, refusals| {
        let form = Form {
            href: "things/{id}",
            method,
            content_type,
            status,
            answer: EMPTY,
            refusals,
            security: Some(changing),
        };
        form.to_json()
    };
    let with_id = |form: Value, has_input: bool| {
        let mut action = json!({"uriVariables": id, "forms": [form]});
        if has_input {
            action["input"] = input.clone();
        }
        action
    };
    let anonymous = Form {
        href: "things",
        method: "POST",
        content_type: super::TD_JSON,
        status: 201,
        answer: EMPTY,
        refusals: &[400],
        security: Some(changing),
    };
    let mut anonymous = anonymous.to_json();
    anonymous["response"]["htv:headers"] = json!([{"htv:fieldName": "Location"}]);
    let retrieve = Form {
        href: "things/{id}",
        method: "GET",
        content_type: "application/json",
        status: 200,
        answer: super::TD_JSON,
        refusals: &[404],
        security: None,
    };
    let mut retrieve = with_id(retrieve.to_json(), false);
    for name in ["safe", "idempotent"] {
        retrieve[name] = json!(true);
    }
    retrieve["output"] = input.clone();
    let td = super::TD_JSON;
    let mut actions = Map::new();
    for (name, action) in [
        (
            "createThing",
            with_id(change("PUT", td, 201, &[400, 403]), true),
        ),
        (
            "createAnonymousThing",
            json!({"input": input, "forms": [anonymous]}),
        ),
        ("retrieveThing", retrieve),
        (
            "updateThing",
            with_id(change("PUT", td, 204, &[400, 403]), true),
        ),
        (
            "partiallyUpdateThing",
            with_id(
                change(
                    "PATCH",
                    "application/merge-patch+json",
                    204,
                    &[400, 403, 404],
                ),
                true,
            ),
        ),
        (
            "deleteThing",
            with_id(
                change("DELETE", "application/json", 204, &[403, 404]),
                false,
            ),
        ),
        (
            "searchJSONPath",
            search("a JSONPath query (RFC 9535)", "search/jsonpath", false),
        ),
        (
            "searchSPARQL",
            search("a SPARQL 1.1 query", "search/sparql", true),
        ),
    ] {
        actions.insert(name.to_owned(), action);
    }
    Value::Object(actions)
}

fn search(title: &str, path: &str, has_post: bool) -> Value {
    let form = |href: &str, method| {
        let form = Form {
            href,
            method,
            content_type: match method {
                "POST" => "application/sparql-query",
                _ => "application/json",
            },
            status: 200,
            answer: "application/json",
            refusals: &[400],
            security: None,
        };
        form.to_json()
    };
    let mut forms = vec![form(&format!("{path}{{?query}}"), "GET")];
    if has_post {
        forms.push(form(path, "POST"));
    }
    json!({
        "uriVariables": {"query": {"type": "string", "title": title}},
        "output": {"description": "the schema depends on the query"},
        "safe": true,
        "idempotent": true,
        "forms": forms,
    })
}

fn events() -> Value {
    let diff = json!({"diff": {"type": "boolean", "description": "whether to send what changed"}});
    let mut events = Map::new();
    for (name, path, description, has_diff) in [
        ("thingCreated", "thing_created", "a thing is new", true),
        ("thingUpdated", "thing_updated", "a thing has changed", true),
        (
            "thingDeleted",
            "thing_deleted",
            "a thing was removed",
            false,
        ),
    ] {
        let variable = if has_diff { "{?diff}" } else { "" };
        let mut event = json!({
            "description": description,
            "data": {"type": "object", "description": "a Thing Description, or a part of it"},
            "forms": [{
                "href": format!("events/{path}{variable}"),
                "op": "subscribeevent",
                "subprotocol": "sse",
                "contentType": "text/event-stream",
                "htv:headers": [{"htv:fieldName": "Last-Event-ID"}],
            }],
        });
        if has_diff {
            event["uriVariables"] = diff.clone();
        }
        events.insert(name.to_owned(), event);
    }
    Value::Object(events)
}
