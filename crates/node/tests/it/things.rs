//! Goal: the directory of things of WoT Discovery over HTTP: things are registered, changed, listed in pages,
//! searched, followed and removed at the end of their time; who may, and what is refused with which words.
//! Method: a node in this process and its socket; a DPWS device on the loopback.

use chappe_node::Node;
use chappe_node::config::Read;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::devices::{device, looking, unique, until};
use crate::common::{Answer, Live, Operated, block, config, get, send};

const TD: &str = "application/td+json";
const PATCH: &str = "application/merge-patch+json";

/// The example of docs/reference/things.md.
fn lamp() -> Value {
    let page = include_str!("../../../../docs/reference/things.md");
    let lines = page.lines().skip_while(|line| *line != "    {");
    let example: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    serde_json::from_str(&example.join("\n")).unwrap()
}

fn named(id: &str, title: &str) -> Value {
    let mut thing = lamp();
    thing["id"] = json!(id);
    thing["title"] = json!(title);
    thing
}

async fn ask(
    world: &Operated,
    token: &str,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> Answer {
    let credential = format!("Bearer {token}");
    let fields = [
        ("Authorization", credential.as_str()),
        ("Content-Type", kind),
    ];
    send(&world.node, method, path, &fields, body.as_bytes()).await
}

impl Operated {
    async fn thing(&self, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
        let token = self.token.clone();
        ask(self, &token, method, path, kind, &body.to_string()).await
    }

    async fn put_thing(&self, thing: &Value) -> u16 {
        let path = format!("/things/{}", thing["id"].as_str().unwrap());
        let answer = self.thing("PUT", &path, TD, thing).await;
        assert!(answer.status < 300, "{answer:?}");
        answer.status
    }
}

/// The answer to a request for the head alone.
async fn head(node: &Node, path: &str) -> String {
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    let host = node.address();
    let request = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[test]
fn a_thing_is_registered_changed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let made = world.thing("POST", "/things", TD, &lamp()).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let path = made.headers["location"].clone();
        let id = path.strip_prefix("/things/").unwrap();
        assert!(id.starts_with("urn:uuid:"), "{id}");
        let shown = get(&world.node, &path).await;
        assert_eq!(shown.headers["content-type"], TD);
        let shown = shown.json();
        assert_eq!(shown["id"], id);
        assert_eq!(shown["title"], "Kitchen lamp");
        assert_eq!(
            shown["registration"]["created"],
            shown["registration"]["modified"]
        );
        let contexts = shown["@context"].as_array().unwrap();
        assert!(contexts.contains(&json!("https://www.w3.org/2022/wot/discovery")));
        let head = head(&world.node, &path).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.to_lowercase().contains(TD) && head.ends_with("\r\n\r\n"),
            "{head}"
        );

        let patch = json!({"title": "Hall lamp", "links": null});
        let patched = world.thing("PATCH", &path, PATCH, &patch).await;
        assert_eq!((patched.status, patched.body.as_str()), (204, ""));
        assert_eq!(get(&world.node, &path).await.json()["title"], "Hall lamp");

        // An integer that would become another number is refused.
        let long = r#"{"x": 18446744073709551616}"#;
        let token = world.token.clone();
        let refused = ask(&world, &token, "PATCH", &path, PATCH, long).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(
            refused.body.contains("18446744073709551616"),
            "{}",
            refused.body
        );

        let put = named("urn:example:lamp", "Lamp");
        assert_eq!(world.put_thing(&put).await, 201);
        assert_eq!(world.put_thing(&put).await, 204);
        let all = get(&world.node, "/things").await;
        assert_eq!(all.headers["content-type"], "application/ld+json");
        assert_eq!(all.json().as_array().unwrap().len(), 2);

        let removed = world.thing("DELETE", &path, TD, &json!({})).await;
        assert_eq!(removed.status, 204);
        assert_eq!(get(&world.node, &path).await.status, 404);
        let again = world.thing("DELETE", &path, TD, &json!({})).await;
        assert_eq!(again.status, 404);
        // The audit stream has each change with its subject.
        let audit = world
            .change(
                "GET",
                "/api/v1/streams/chappe.audit/elements?newest=100",
                &json!({}),
            )
            .await;
        for part in [
            "register_thing",
            "patch_thing",
            "put_thing",
            "remove_thing",
            id,
        ] {
            assert!(audit.body.contains(part), "{part}: {}", audit.body);
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn refusals_name_their_reason() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let id = "/things/urn:example:lamp";
        let thing = named("urn:example:lamp", "Lamp");
        let mut wrong = thing.clone();
        wrong["properties"]["power"]["forms"][0]["href"] = json!(3);
        wrong.as_object_mut().unwrap().remove("security");
        let refused = world.thing("PUT", id, TD, &wrong).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.headers["content-type"], "application/problem+json");
        assert_eq!(
            refused.json()["validationErrors"],
            json!([
                {"field": "(root)", "description": "security is required"},
                {"field": "properties.power.forms.0.href", "description": "is a number, not a string"},
            ])
        );
        let long = named("urn:example:lamp", &"a".repeat(140_000));
        for (method, path, kind, body, status) in [
            ("POST", "/things", TD, &thing, 400),
            ("PUT", "/things/urn:other", TD, &thing, 400),
            ("PUT", id, TD, &lamp(), 400),
            ("PUT", id, "text/turtle", &thing, 415),
            ("PUT", id, TD, &json!(["a"]), 400),
            ("PUT", id, TD, &long, 413),
            ("PUT", "/things/urn:chappe:a", TD, &thing, 403),
            ("PATCH", id, PATCH, &json!({}), 404),
            ("PATCH", id, TD, &json!({}), 415),
            ("PATCH", "/things", PATCH, &json!({}), 405),
        ] {
            let answer = world.thing(method, path, kind, body).await;
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
            assert!(answer.json()["detail"].is_string());
        }
        let token = world.token.clone();
        let text = ask(&world, &token, "PUT", id, TD, "{\"a\": ").await;
        assert_eq!(text.status, 400);
        for (path, status) in [
            ("/things?limit=0", 400),
            ("/things?format=xml", 400),
            ("/things?sort=title", 400),
            ("/things/urn:none", 404),
            ("/search/jsonpath?query=a", 400),
            ("/search/jsonpath", 400),
            ("/search/xpath?query=a", 404),
            ("/search/sparql?query=a", 400),
            ("/events/thing_moved", 404),
            ("/events?diff=maybe", 400),
        ] {
            let answer = get(&world.node, path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn only_writers_change_things_and_only_their_own() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.access.read = Read::Token;
        let world = Operated::start(&config, None).await;
        let reader = world.account("reader", &["read"]).await;
        let ada = world.account("ada", &["read", "write"]).await;
        let bob = world.account("bob", &["read", "write"]).await;
        let id = "/things/urn:example:lamp";
        let thing = named("urn:example:lamp", "Lamp").to_string();
        for path in [
            "/things",
            id,
            "/events",
            "/search/jsonpath?query=$",
            "/search/sparql?query=a",
        ] {
            assert_eq!(get(&world.node, path).await.status, 401, "{path}");
        }
        // The directory says how to come in.
        let own = get(&world.node, "/.well-known/wot").await.json();
        assert_eq!(own["security"], "bearer_sc");
        assert_eq!(own["securityDefinitions"]["bearer_sc"]["scheme"], "bearer");
        assert_eq!(
            ask(&world, &reader, "PUT", id, TD, &thing).await.status,
            403
        );
        assert_eq!(ask(&world, &ada, "PUT", id, TD, &thing).await.status, 201);
        assert_eq!(ask(&world, &reader, "GET", id, TD, "").await.status, 200);
        for (method, kind, body) in [
            ("PUT", TD, thing.as_str()),
            ("PATCH", PATCH, "{}"),
            ("DELETE", TD, ""),
        ] {
            let foreign = ask(&world, &bob, method, id, kind, body).await;
            assert_eq!(foreign.status, 403, "{method}: {}", foreign.body);
        }
        let administrator = world.token.clone();
        let changed = ask(
            &world,
            &administrator,
            "PATCH",
            id,
            PATCH,
            "{\"title\": \"L\"}",
        )
        .await;
        assert_eq!(changed.status, 204, "{}", changed.body);
        assert_eq!(ask(&world, &ada, "DELETE", id, TD, "").await.status, 204);
        // Another kind of entity keeps its key.
        let note = json!({"key": "urn:example:note", "name": "note"});
        world.change("POST", "/api/v1/entities", &note).await;
        let put = named("urn:example:note", "Lamp").to_string();
        let taken = ask(&world, &ada, "PUT", "/things/urn:example:note", TD, &put).await;
        assert_eq!(taken.status, 409, "{}", taken.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_share_of_an_account_bounds_its_things() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.registry.max_bytes = 1 << 20;
        let world = Operated::start(&config, None).await;
        let ada = world.account("ada", &["write"]).await;
        let mut refused = None;
        for number in 0..1_000 {
            let id = format!("urn:example:{number}");
            let path = format!("/things/{id}");
            let thing = named(&id, "Lamp").to_string();
            let answer = ask(&world, &ada, "PUT", &path, TD, &thing).await;
            if answer.status != 201 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("the share is used up");
        assert_eq!(refused.status, 507);
        assert_eq!(refused.json()["code"], "share_of_registry");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn lists_have_pages_and_searches_select() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        for (id, title) in [("urn:c", "C"), ("urn:a", "A"), ("urn:B", "B")] {
            world.put_thing(&named(id, title)).await;
        }
        let first = get(&world.node, "/things?limit=2").await;
        let ids = |things: &Value| -> Vec<String> {
            let things = things.as_array().unwrap().iter();
            things
                .map(|thing| thing["id"].as_str().unwrap().to_owned())
                .collect()
        };
        // In the order of code points, where capitals come first.
        assert_eq!(ids(&first.json()), ["urn:B", "urn:a"]);
        let link = &first.headers["link"];
        assert!(link.starts_with(
            "</things?offset=2&limit=2&after=urn:a>; rel=\"next\", </things>; rel=\"canonical\"; etag="
        ));
        let last = get(&world.node, "/things?offset=2&limit=2&after=urn:a").await;
        assert_eq!(ids(&last.json()), ["urn:c"]);
        let last = get(&world.node, "/things?offset=2&limit=2").await;
        assert_eq!(ids(&last.json()), ["urn:c"]);
        assert!(!last.headers["link"].contains("next"));
        let collection = get(&world.node, "/things?limit=1&format=collection")
            .await
            .json();
        assert_eq!(collection["@type"], "ThingCollection");
        assert_eq!(collection["total"], 3);
        assert_eq!(
            collection["next"],
            "/things?offset=1&limit=1&format=collection&after=urn:B"
        );
        assert_eq!(ids(&collection["members"]), ["urn:B"]);
        let empty = get(&world.node, "/things?offset=9&format=collection")
            .await
            .json();
        assert_eq!(empty["members"], json!([]));

        for (query, selected) in [
            ("$[?@.title=='A'].id", json!(["urn:a"])),
            ("$[*].title", json!(["B", "A", "C"])),
            ("$[0].id", json!(["urn:B"])),
            ("$..power.unit", json!(["W", "W", "W"])),
            ("$[?@.title=='D']", json!([])),
        ] {
            let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let found = get(&world.node, &format!("/search/jsonpath?query={query}")).await;
            assert_eq!(found.headers["content-type"], "application/json");
            assert_eq!(found.json(), selected);
        }
        let query = "PREFIX td: <https://www.w3.org/2019/wot/td#> \
            SELECT ?thing { ?thing a td:Thing ; td:title 'A' ; td:hasPropertyAffordance [ td:name 'power' ] }";
        let fields = [("Content-Type", "application/sparql-query")];
        let found = send(
            &world.node,
            "POST",
            "/search/sparql",
            &fields,
            query.as_bytes(),
        )
        .await;
        assert_eq!(found.headers["content-type"], "application/json");
        assert_eq!(
            found.json()["results"]["bindings"][0]["thing"]["value"],
            "urn:a"
        );
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let asked = [("Accept", "application/sparql-results+json")];
        let path = format!("/search/sparql?query={query}");
        let found = send(&world.node, "GET", &path, &asked, b"").await;
        assert_eq!(
            found.headers["content-type"],
            "application/sparql-results+json"
        );
        let mut deep = named("urn:d", "D");
        deep["x-deep"] = (0..40).fold(json!(1), |inner, _| json!([inner]));
        world.put_thing(&deep).await;
        let costly = format!("/search/jsonpath?query=%24%5B%2A%5D{}", "..%2A".repeat(8));
        let refused = get(&world.node, &costly).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("steps"), "{}", refused.body);
        // As values, small objects take fifty times their text.
        for number in 0..7 {
            let mut wide = named(&format!("urn:w{number}"), "W");
            wide["x-wide"] = json!(vec![json!({"": 1}); 16_000]);
            world.put_thing(&wide).await;
        }
        let at_once = "/search/jsonpath?query=$..title";
        let refused = get(&world.node, at_once).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("in memory"), "{}", refused.body);
        let one_by_one = "/search/jsonpath?query=$%5B*%5D.title";
        let found = get(&world.node, one_by_one).await;
        assert!(found.body.contains("\"W\""), "{}", found.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn changes_are_followed_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        let world = Operated::start(&config, None).await;
        let mut short = Live::open_at(&world.node, "/events", None).await;
        let mut whole = Live::open_at(&world.node, "/events?diff=true", None).await;
        let mut deleted = Live::open_at(&world.node, "/events/thing_deleted", None).await;
        world.put_thing(&named("urn:example:lamp", "Lamp")).await;
        let id = json!({"id": "urn:example:lamp"});
        let patch = json!({"title": "Hall lamp"});
        let path = "/things/urn:example:lamp";
        world.thing("PATCH", path, PATCH, &patch).await;
        world.thing("DELETE", path, TD, &json!({})).await;
        let mut events = Vec::new();
        for of_type in ["thing_created", "thing_updated", "thing_deleted"] {
            let event = short.next().await.unwrap();
            assert_eq!(event.event, of_type);
            let data: Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(data, id);
            events.push(event);
        }
        let created = whole.next().await.unwrap();
        assert_eq!(created.event, "thing_created");
        let updated: Value = serde_json::from_str(&whole.next().await.unwrap().data).unwrap();
        let registration = updated["registration"].clone();
        let changed: Vec<&String> = registration.as_object().unwrap().keys().collect();
        assert_eq!(changed, ["expires", "modified"]);
        assert_eq!(
            updated,
            json!({"id": "urn:example:lamp", "title": "Hall lamp", "registration": registration})
        );
        let last: Value = serde_json::from_str(&whole.next().await.unwrap().data).unwrap();
        assert_eq!(last, id);
        assert_eq!(deleted.next().await.unwrap(), events[2]);
        // A client that comes back gets what it missed, also after a restart.
        let mut back = Live::open_at(&world.node, "/events", Some(&events[0].id)).await;
        assert_eq!(back.next().await.unwrap(), events[1]);
        let token = world.token.clone();
        world.node.shutdown().await.unwrap();
        let world = Operated::start(&config, Some(token)).await;
        let mut back = Live::open_at(&world.node, "/events", Some(&events[0].id)).await;
        assert_eq!(back.next().await.unwrap(), events[1]);
        assert_eq!(back.next().await.unwrap(), events[2]);
        let fields = [("Last-Event-ID", "1000000")];
        let unknown = send(&world.node, "GET", "/events", &fields, b"").await;
        assert_eq!(unknown.status, 410, "{}", unknown.body);
        let fields = [("Last-Event-ID", "a")];
        let unreadable = send(&world.node, "GET", "/events", &fields, b"").await;
        assert_eq!(unreadable.status, 400);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_thing_ends_with_its_time_to_live() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        let world = Operated::start(&config, None).await;
        let mut deleted = Live::open_at(&world.node, "/events/thing_deleted", None).await;
        let mut brief = named("urn:example:brief", "Brief");
        brief["registration"] = json!({"ttl": 0.2});
        let mut long = named("urn:example:long", "Long");
        long["registration"] = json!({"ttl": 1.5});
        world.put_thing(&long).await;
        world.put_thing(&brief).await;
        let shown = get(&world.node, "/things/urn:example:long").await.json();
        assert!(shown["registration"]["expires"].is_string());
        let event = deleted.next().await.unwrap();
        assert!(event.data.contains("urn:example:brief"), "{event:?}");
        // The other ends after a restart.
        let token = world.token.clone();
        world.node.shutdown().await.unwrap();
        let world = Operated::start(&config, Some(token)).await;
        until(&world.node, "/things", |things| {
            things.as_array().unwrap().is_empty()
        })
        .await;
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_found_device_is_a_thing() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let name = format!("lamp-{}", unique());
        let property = format!("urn:example:{}", unique());
        let world = Operated::start(&looking(directory.path()), None).await;
        let mut created = Live::open_at(&world.node, "/events/thing_created", None).await;
        let device = device(directory.path(), &name, &property, "127.0.9.61");
        let things = until(&world.node, "/things", |things| {
            let things = things.as_array().unwrap().iter();
            things.into_iter().any(|thing| {
                thing["title"] == name && !thing["properties"].as_object().unwrap().is_empty()
            })
        })
        .await;
        let things = things.as_array().unwrap();
        let thing = things.iter().find(|thing| thing["title"] == name).unwrap();
        let id = thing["id"].as_str().unwrap();
        assert!(id.starts_with("urn:chappe:device:"), "{id}");
        assert_eq!(thing["base"], format!("{}/", world.node.url()));
        assert_eq!(thing["security"], "nosec_sc");
        assert_eq!(thing["chappe:manufacturer"], "Example");
        loop {
            let event = created.next().await.unwrap();
            if event.data.contains(id) {
                break;
            }
        }
        // The form of a property is an address of this node.
        let (stream, property) = thing["properties"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        let values = &property["properties"]["elements"]["items"]["properties"]["values"];
        assert!(
            values.to_string().contains("\"unit\":\"Cel\""),
            "{property}"
        );
        let form = property["forms"][0]["href"].as_str().unwrap();
        until(&world.node, &format!("/{form}"), |page| {
            page["elements"].as_array().unwrap().len() == 1
        })
        .await;
        let form = thing["events"][stream]["forms"][0]["href"]
            .as_str()
            .unwrap();
        let mut live = Live::open_at(&world.node, &format!("/{form}"), None).await;
        live.next_of("elements").await;
        // The same in search.
        let ask = format!(
            "PREFIX td: <https://www.w3.org/2019/wot/td#> ASK {{ <{id}> a td:Thing ; td:title '{name}' ; \
             td:hasPropertyAffordance [ a td:PropertyAffordance ; td:name '{stream}' ; td:hasForm [ \
             <https://www.w3.org/2019/wot/hypermedia#hasTarget> ?target ] ] FILTER(CONTAINS(STR(?target), 'newest')) }}"
        );
        let fields = [("Content-Type", "application/sparql-query")];
        let answer = send(
            &world.node,
            "POST",
            "/search/sparql",
            &fields,
            ask.as_bytes(),
        )
        .await;
        assert_eq!(answer.json()["boolean"], true, "{answer:?}");
        let query: String = format!("$[?@.title=='{name}'].id")
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let found = get(&world.node, &format!("/search/jsonpath?query={query}")).await;
        assert_eq!(found.json(), json!([id]));
        // The node alone describes it.
        let path = format!("/things/{}", id.replace('%', "%25"));
        let refused = world.thing("DELETE", &path, TD, &json!({})).await;
        assert_eq!(refused.status, 403, "{}", refused.body);
        assert_eq!(get(&world.node, &path).await.status, 200);
        device.stop().await;
        until(&world.node, "/things", |things| {
            things
                .as_array()
                .unwrap()
                .iter()
                .all(|thing| thing["title"] != name)
        })
        .await;
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_directory_describes_itself() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let answer = get(&world.node, "/.well-known/wot").await;
        assert_eq!(answer.headers["content-type"], TD);
        let own = answer.json();
        assert_eq!(own["@type"], "ThingDirectory");
        assert_eq!(own["base"], format!("{}/", world.node.url()));
        assert_eq!(own["security"], "nosec_sc");
        for (kind, names) in [
            ("properties", &["things"][..]),
            (
                "actions",
                &[
                    "createAnonymousThing",
                    "createThing",
                    "deleteThing",
                    "partiallyUpdateThing",
                    "retrieveThing",
                    "searchJSONPath",
                    "searchSPARQL",
                    "updateThing",
                ],
            ),
            ("events", &["thingCreated", "thingDeleted", "thingUpdated"]),
        ] {
            let known: Vec<&String> = own[kind].as_object().unwrap().keys().collect();
            assert_eq!(known, names, "{kind}");
        }
        // It is a Thing Description by the directory's own rules.
        let mut copy = own.clone();
        copy["id"] = json!("urn:example:directory");
        world.put_thing(&copy).await;
        world.node.shutdown().await.unwrap();
    });
}
