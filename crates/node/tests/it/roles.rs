//! Goal: every operation of the OpenAPI document accepts exactly the accounts that have its role, an account with
//! the role `read` changes nothing, and a restricted account sees and touches only its own streams.
//! Method: a node in this process with accounts of every role; each operation of the document is sent as
//! each of them, and the answer is compared with the decision in the document.

use chappe_node::Node;
use chappe_node::config::{Config, Read};
use chappe_stream::{FieldType, Value};
use serde_json::{Value as Json, json};

use crate::common::elements::{element, schema};
use crate::common::{Answer, Live, block, config, is_endless, send};

const ROLES: [&str; 4] = ["read", "write", "operate", "administer"];

/// Whether an account with `role` has the role `needed` too.
fn includes(role: &str, needed: &str) -> bool {
    role == needed || role == "administer" || (role, needed) == ("operate", "read")
}

/// A node with an administrator's token.
struct World {
    node: Node,
    token: String,
}

impl World {
    async fn start(config: Config) -> Self {
        let node = Node::start(config).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        Self { node, token }
    }

    async fn ask(&self, token: Option<&str>, method: &str, path: &str, body: &Json) -> Answer {
        let credential = token.map(|token| format!("Bearer {token}"));
        let mut fields = vec![("Content-Type", "application/json")];
        fields.extend(credential.as_deref().map(|it| ("Authorization", it)));
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        send(&self.node, method, path, &fields, body.as_bytes()).await
    }

    /// Adds an account and returns its token.
    async fn add(&self, name: &str, roles: &[&str]) -> String {
        let body = json!({"name": name, "roles": roles});
        let path = "/api/v1/accounts";
        let answer = self.ask(Some(&self.token), "POST", path, &body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    /// Stores an element in each of these streams.
    async fn fill(&self, streams: &[&str]) {
        let schema = schema(&[("value", FieldType::Double)]);
        for stream in streams {
            let element = element(1, vec![Value::Double(1.0)]);
            self.node.store(stream, &schema, &[element]).await.unwrap();
        }
    }
}

fn closed(directory: &std::path::Path) -> Config {
    let mut config = config(directory);
    config.access.read = Read::Token;
    config
}

/// The operations of the document, except streams of events, which do not end by themselves: method, path, role,
/// treatment of restricted accounts.
fn operations() -> Vec<(String, String, String, String)> {
    let document = chappe_node::openapi();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let text = |key: &str| operation[key].as_str().unwrap_or_default().to_owned();
            let (role, restricted) = (text("x-chappe-role"), text("x-chappe-restricted"));
            assert!(!role.is_empty(), "{method} {path} has no decision");
            if !is_endless(path, operation) {
                found.push((method.to_uppercase(), path.clone(), role, restricted));
            }
        }
    }
    assert!(found.len() > 40, "{}", found.len());
    found
}

/// A path of which nothing exists.
fn concrete(path: &str) -> String {
    let parts = path.split('/');
    let parts = parts.map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn a_sensor_with_wrappers_needs_the_role_of_wrappers() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        let sensor = |source: &str| {
            format!(
                "name = \"s\"\n[[source]]\nalias = \"a\"\n{source}\n[output]\nsql = \"select 1 as v from a\"\n\
                 [[output.field]]\nname = \"v\"\ntype = \"integer\"\n"
            )
        };
        let wrapper =
            sensor("stream = \"h.load\"\nwrapper = { kind = \"system\", prefix = \"h\" }");
        let plain = sensor("stream = \"h.load\"");
        let (operator, admin) = (
            world.add("keeper", &["operate"]).await,
            world.add("admin", &["administer"]).await,
        );
        let path = "/api/v1/virtual-sensors/s";
        let ask_at = async |path: &str, token: &str, method: &str, text: &str| {
            let credential = format!("Bearer {token}");
            let fields = [("Authorization", credential.as_str())];
            let answer = send(&world.node, method, path, &fields, text.as_bytes()).await;
            answer.status
        };
        let ask =
            async |token: &str, method: &str, text: &str| ask_at(path, token, method, text).await;
        let preview = "/api/v1/virtual-sensors/s/preview";
        assert_eq!(ask_at(preview, &operator, "POST", &wrapper).await, 403);
        // The stream of the wrapper does not exist yet, and a file that names a program is not sent.
        let program =
            sensor("stream = \"x\"\nwrapper = { kind = \"program\", command = [\"true\"] }");
        for text in [&wrapper, &program, &plain] {
            assert_eq!(ask_at(preview, &admin, "POST", text).await, 422, "{text}");
        }
        assert_eq!(ask(&operator, "PUT", &wrapper).await, 403);
        assert_eq!(ask(&operator, "PUT", &plain).await, 204);
        assert_eq!(ask(&admin, "PUT", &wrapper).await, 204);
        loop {
            // Until the file is read, it is the operator's.
            let sensor = world.ask(Some(&admin), "GET", path, &Json::Null).await;
            if sensor.body.contains("\"wrappers\":[\"s.a\"]") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(ask(&operator, "PUT", &plain).await, 403);
        assert_eq!(ask(&operator, "DELETE", "").await, 403);
        assert_eq!(ask(&admin, "DELETE", "").await, 204);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn every_operation_accepts_exactly_the_roles_of_its_decision() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        let mut callers = vec![("nobody", None)];
        for role in ROLES {
            callers.push((role, Some(world.add(role, &[role]).await)));
        }
        for (method, path, needed, _) in operations() {
            for (role, token) in &callers {
                let path = concrete(&path);
                let answer = world
                    .ask(token.as_deref(), &method, &path, &Json::Null)
                    .await;
                let is_allowed = needed == "none" || includes(role, &needed);
                let case = format!("{method} {path} as {role}: {}", answer.body);
                match (is_allowed, token) {
                    (true, _) => {
                        assert_ne!(answer.status, 401, "{case}");
                        let is_role = answer.body.contains("role_missing");
                        assert!(!is_role, "{case}");
                    }
                    (false, None) => {
                        assert_eq!(answer.status, 401, "{case}");
                        assert_eq!(answer.json()["code"], "no_credential", "{case}");
                    }
                    (false, Some(_)) => {
                        assert_eq!(answer.status, 403, "{case}");
                        let problem = answer.json();
                        assert_eq!(problem["code"], "role_missing", "{case}");
                        assert_eq!(problem["type"], "/docs/reference/codes.html#role_missing");
                        let kind = &answer.headers["content-type"];
                        assert_eq!(kind, "application/problem+json", "{case}");
                    }
                }
            }
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn restricted_roles_reach_only_what_the_decisions_say() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        let token = world.add("ward", &["administer=ward.*"]).await;
        for (method, path, needed, restricted) in operations() {
            let path = concrete(&path);
            let answer = world.ask(Some(&token), &method, &path, &Json::Null).await;
            let case = format!("{method} {path}: {}", answer.body);
            let is_refused = needed != "none" && restricted != "filtered";
            let is_outside = answer.body.contains("\"outside_role\"");
            // The streams called `none` are not the account's.
            match is_refused {
                true => assert!(answer.status == 403 && is_outside, "{case}"),
                false => assert!(answer.status != 401 && answer.status != 403, "{case}"),
            }
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn operations_have_ids_of_their_own_and_name_their_security() {
    let document = chappe_node::openapi();
    let mut ids = std::collections::HashSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(ids.insert(id.clone()), "{id} twice");
            assert!(operation["security"].is_array(), "{method} {path}");
            for status in ["401", "403", "429"] {
                let content = &operation["responses"][status]["content"];
                let problem = &content["application/problem+json"]["schema"]["$ref"];
                assert_eq!(problem, "#/components/schemas/Problem", "{status} of {id}");
            }
        }
    }
    let schemes = document["components"]["securitySchemes"]
        .as_object()
        .unwrap();
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["certificate", "token"]);
    let problem = &document["components"]["schemas"]["Problem"]["properties"];
    assert!(
        problem["type"].is_object() && problem["code"].is_object(),
        "{problem}"
    );
}

#[test]
fn a_restricted_reader_sees_only_its_streams() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        world.fill(&["ward.a", "ward.b", "lab.a"]).await;
        let token = world.add("ward", &["read=ward.*"]).await;
        let ask = async |path: &str| world.ask(Some(&token), "GET", path, &Json::Null).await;
        let names = |answer: Answer, list: &str, key: &str| -> Vec<String> {
            let all = answer.json()[list].as_array().unwrap().clone();
            all.iter()
                .map(|one| one[key].as_str().unwrap().to_owned())
                .collect()
        };
        for path in ["/api/v1/streams", "/api/v1/directory"] {
            assert_eq!(
                names(ask(path).await, "streams", "name"),
                ["ward.a", "ward.b"],
                "{path}"
            );
        }
        let streams = names(
            ask("/api/v1/entities?kind=stream").await,
            "entities",
            "name",
        );
        assert_eq!(streams, ["ward.a", "ward.b"]);
        assert_eq!(
            ask("/api/v1/entities/urn%3Achappe%3Astream%3Alab.a")
                .await
                .status,
            404
        );
        let listed = ask("/api/v1/directory?serialization=xml").await.body;
        assert!(
            listed.contains("ward.a") && !listed.contains("lab.a"),
            "{listed}"
        );
        for rest in ["", "/elements"] {
            assert_eq!(
                ask(&format!("/api/v1/streams/ward.a{rest}")).await.status,
                200
            );
            let answer = ask(&format!("/api/v1/streams/lab.a{rest}")).await;
            assert_eq!(
                (answer.status, &answer.json()["code"]),
                (403, &json!("outside_role"))
            );
        }
        assert_eq!(ask("/api/v1/exchange/streams/lab.a").await.status, 403);
        assert_eq!(ask("/api/v1/sparql?query=ASK%20%7B%7D").await.status, 403);
        let query = async |sql: &str| {
            let body = json!({ "sql": sql });
            world
                .ask(Some(&token), "POST", "/api/v1/streams/query", &body)
                .await
        };
        assert_eq!(
            query("select count(*) from \"ward.a\"").await.json()["rows"],
            json!([[1]])
        );
        for sql in [
            "select * from \"lab.a\"",
            "select * from lab_a",
            "select * from \"ward.a\" where value in (select value from \"lab.a\")",
            "select * from \"ward.a\", \"lab.a\"",
            "select * from \"chappe.audit\"",
        ] {
            let answer = query(sql).await;
            assert_eq!(answer.status, 403, "{sql}: {}", answer.body);
            assert_eq!(answer.json()["code"], "outside_role", "{sql}");
        }
        let subscription = json!({"stream": "lab.a", "contact_point": "http://127.0.0.1:1/"});
        let path = "/api/v1/exchange/subscriptions";
        let answer = world.ask(Some(&token), "POST", path, &subscription).await;
        assert_eq!(answer.status, 403, "{}", answer.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn live_data_is_filtered_and_ends_with_the_account() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        world.fill(&["ward.a", "lab.a"]).await;
        let token = world.add("ward", &["read=ward.*"]).await;
        let mut live = Live::open_as(&world.node, "streams=*", &token).await;
        let first = live.next().await.unwrap();
        assert!(
            first.id.contains("ward.a@") && !first.id.contains("lab.a"),
            "{first:?}"
        );
        world.fill(&["lab.a", "ward.a", "lab.b", "ward.b"]).await;
        let mut seen = String::new();
        while !seen.contains("ward.b") {
            seen.push_str(&live.next().await.unwrap().data);
        }
        assert!(!seen.contains("lab."), "{seen}");
        let path = "/api/v1/accounts/ward";
        let answer = world
            .ask(Some(&world.token), "DELETE", path, &Json::Null)
            .await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        while live.next().await.is_some() {}
        let answer = world
            .ask(Some(&token), "GET", "/api/v1/node", &Json::Null)
            .await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (401, &json!("bad_credential"))
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn only_an_administrator_names_files_of_the_host_in_a_link() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        let token = world.add("plant", &["operate"]).await;
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "abc").unwrap();
        for file in ["token_file", "authorities"] {
            let mut link = json!({"name": "a", "kind": "http_pull", "streams": ["*"],
                "address": "http://127.0.0.1:1"});
            link[file] = json!(secret);
            let answer = world
                .ask(Some(&token), "POST", "/api/v1/links", &link)
                .await;
            assert_eq!(answer.status, 403, "{file}: {}", answer.body);
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn refused_changes_do_not_flood_the_audit_stream() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(closed(directory.path())).await;
        let token = world.add("reader", &["read"]).await;
        for _ in 0..600 {
            let answer = world
                .ask(Some(&token), "DELETE", "/api/v1/streams/none", &Json::Null)
                .await;
            assert_eq!(answer.status, 403, "{}", answer.body);
        }
        let drops = world
            .ask(Some(&world.token), "GET", "/api/v1/drops", &Json::Null)
            .await;
        assert!(
            drops.body.contains("refusal not recorded"),
            "{}",
            drops.body
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn where_reading_is_open_only_administrators_see_the_audit_stream() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(config(directory.path())).await;
        world.add("ada", &["read"]).await;
        let ask = async |token: Option<&str>, path: &str| {
            let answer = world.ask(token, "GET", path, &Json::Null).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            answer
        };
        let of_administrator = ask(Some(&world.token), "/metrics").await;
        assert!(of_administrator.body.contains("stream=\"chappe.audit\""));
        let why = ask(Some(&world.token), "/api/v1/why/chappe.audit").await;
        assert_eq!(why.json()["kind"], "stream");
        for path in ["/metrics", "/api/v1/why/chappe.audi?kind=stream"] {
            let answer = ask(None, path).await;
            assert!(!answer.body.contains("chappe.audit"), "{}", answer.body);
        }
        let why = ask(None, "/api/v1/why/chappe.audit?kind=stream")
            .await
            .json();
        assert_eq!(why["kind"], Json::Null);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn accounts_survive_a_restart_and_changes_are_on_record() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(config(directory.path())).await;
        let ada = world.add("ada", &["operate"]).await;
        let reader = world.add("reader", &["read"]).await;
        let sensor = "schema_version = 1\nname = \"none\"\n";
        let path = "/api/v1/virtual-sensors/none";
        let credential = format!("Bearer {ada}");
        let fields = [("Authorization", credential.as_str())];
        let answer = send(&world.node, "PUT", path, &fields, sensor.as_bytes()).await;
        assert_eq!(answer.status, 422, "{}", answer.body);
        let answer = world.ask(Some(&reader), "DELETE", path, &Json::Null).await;
        assert_eq!(answer.status, 403);
        let token = world.token.clone();
        world.node.shutdown().await.unwrap();

        let node = Node::start(config(directory.path())).await.unwrap();
        let world = World { node, token };
        let answer = world
            .ask(Some(&ada), "GET", "/api/v1/self", &Json::Null)
            .await;
        assert_eq!(answer.json(), json!({"name": "ada", "roles": ["operate"]}));
        let audit = "/api/v1/streams/chappe.audit/elements?newest=100";
        for token in [None, Some(ada.as_str()), Some(reader.as_str())] {
            let answer = world.ask(token, "GET", audit, &Json::Null).await;
            assert_eq!(answer.status, 403, "{}", answer.body);
            let streams = world
                .ask(token, "GET", "/api/v1/streams", &Json::Null)
                .await;
            assert!(!streams.body.contains("chappe.audit"), "{}", streams.body);
        }
        let answer = world
            .ask(Some(&world.token), "GET", audit, &Json::Null)
            .await;
        let answer = answer.json();
        let records = answer["elements"].as_array().unwrap();
        let told: Vec<[&Json; 4]> = records
            .iter()
            .map(|record| &record["values"])
            .map(|it| {
                [
                    &it["account"],
                    &it["operation"],
                    &it["status"],
                    &it["address"],
                ]
            })
            .collect();
        let here = json!("127.0.0.1");
        assert_eq!(
            told,
            [
                [
                    &json!("operator"),
                    &json!("add_account"),
                    &json!(201),
                    &here
                ],
                [
                    &json!("operator"),
                    &json!("add_account"),
                    &json!(201),
                    &here
                ],
                [
                    &json!("ada"),
                    &json!("put_virtual_sensor"),
                    &json!(422),
                    &here
                ],
                [
                    &json!("reader"),
                    &json!("remove_virtual_sensor"),
                    &json!(403),
                    &here
                ],
            ]
        );
        assert_eq!(records[0]["values"]["subject"], "ada operate");
        let path = "/api/v1/streams/chappe.audit?force=true";
        let answer = world
            .ask(Some(&world.token), "DELETE", path, &Json::Null)
            .await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn failed_credentials_are_limited_and_valid_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(config(directory.path())).await;
        let ask = async |token: &str| {
            let path = "/api/v1/node";
            world.ask(Some(token), "GET", path, &Json::Null).await
        };
        let wrong = "A".repeat(43);
        let mut limited = 0;
        for _ in 0..100 {
            let answer = ask(&wrong).await;
            match answer.status {
                401 => assert_eq!(answer.json()["code"], "bad_credential"),
                429 => {
                    assert_eq!(answer.json()["code"], "too_many_failures");
                    assert!(answer.headers["retry-after"].parse::<u32>().unwrap() >= 1);
                    limited += 1;
                }
                other => panic!("{other}: {}", answer.body),
            }
        }
        assert!(limited > 0);
        assert_eq!(ask(&world.token).await.status, 200);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn what_an_account_makes_belongs_to_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(config(directory.path())).await;
        let ada = world.add("ada", &["operate"]).await;
        let link = json!({
            "name": "far", "kind": "http_pull", "address": "http://127.0.0.1:9", "streams": ["*"],
        });
        let answer = world.ask(Some(&ada), "POST", "/api/v1/links", &link).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let token = world.token.clone();
        let owner = async |world: &World| {
            let path = "/api/v1/entities/urn%3Achappe%3Alink%3Afar";
            let answer = world.ask(None, "GET", path, &Json::Null).await;
            answer.json()["owner"].as_str().unwrap().to_owned()
        };
        assert_eq!(owner(&world).await, "ada");
        world.node.shutdown().await.unwrap();
        let node = Node::start(config(directory.path())).await.unwrap();
        let world = World { node, token };
        assert_eq!(owner(&world).await, "ada");
        let path = format!(
            "/api/v1/entities/urn%3Achappe%3Anode%3A{}",
            world.node.key()
        );
        let answer = world.ask(None, "GET", &path, &Json::Null).await;
        assert_eq!(answer.json()["owner"], "node");
        world.node.shutdown().await.unwrap();
    });
}
