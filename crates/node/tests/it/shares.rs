//! Goal: one account cannot crowd out the others: a flood of one makes room with its own elements, so that the
//! history of another and the audit stream stay whole; it defines no more streams and holds no more requests than
//! its share, while another account writes, follows and queries; bodies that arrive too slowly are ended.
//! Method: nodes in this process with a small log; accounts attack over real HTTP.

use chappe_node::Node;
use chappe_node::config::{Config, MaxBytes, Read};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Answer, block, config, send};

const LOG_BYTES: u64 = 4 << 20;
const LINES: &str = "application/x-ndjson";

struct World {
    node: Node,
    token: String,
}

fn small(directory: &std::path::Path) -> Config {
    let mut config = config(directory);
    config.access.read = Read::Token;
    config.log.segment_bytes = 128 << 10;
    config.log.max_bytes = MaxBytes::Bytes(LOG_BYTES);
    config.log.max_streams = 40;
    config
}

impl World {
    async fn start(config: Config) -> Self {
        let node = Node::start(config).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        Self { node, token }
    }

    async fn ask(&self, token: &str, method: &str, path: &str, kind: &str, body: &str) -> Answer {
        let credential = format!("Bearer {token}");
        let fields = [
            ("Content-Type", kind),
            ("Authorization", credential.as_str()),
        ];
        send(&self.node, method, path, &fields, body.as_bytes()).await
    }

    async fn change(&self, token: &str, method: &str, path: &str, body: &Json) -> Answer {
        let text = body.to_string();
        self.ask(token, method, path, "application/json", &text)
            .await
    }

    async fn add(&self, name: &str, roles: &[&str]) -> String {
        let body = json!({"name": name, "roles": roles});
        let answer = self
            .change(&self.token, "POST", "/api/v1/accounts", &body)
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    async fn account(&self, name: &str) -> Json {
        let path = format!("/api/v1/accounts/{name}");
        self.ask(&self.token, "GET", &path, LINES, "").await.json()
    }

    async fn define(&self, token: &str, name: &str) -> Answer {
        let fields =
            json!([{"name": "number", "type": "integer"}, {"name": "note", "type": "text"}]);
        let stream = json!({"name": name, "level": "process", "fields": fields});
        self.change(token, "POST", "/api/v1/streams", &stream).await
    }

    async fn write(&self, token: &str, stream: &str, numbers: std::ops::Range<u64>) -> Answer {
        let line = |number| format!("{{\"number\": {number}, \"note\": \"{:200}\"}}\n", "x");
        let body: String = numbers.map(line).collect();
        let path = format!("/api/v1/streams/{stream}/elements");
        self.ask(token, "POST", &path, LINES, &body).await
    }

    async fn stream(&self, name: &str) -> Json {
        let path = format!("/api/v1/streams/{name}");
        self.ask(&self.token, "GET", &path, LINES, "").await.json()
    }

    /// All numbers of a stream, by a query.
    async fn count(&self, stream: &str) -> u64 {
        let sql = format!("select count(*) from \"{stream}\"");
        let path = "/api/v1/streams/query";
        let answer = self
            .change(&self.token, "POST", path, &json!({"sql": sql}))
            .await;
        answer.json()["rows"][0][0]
            .as_u64()
            .unwrap_or_else(|| panic!("{answer:?}"))
    }
}

#[test]
fn a_flood_of_one_account_leaves_the_others_and_the_audit_stream_whole() {
    let directory = tempfile::tempdir().unwrap();
    let config = small(directory.path());
    block(async {
        let world = World::start(config.clone()).await;
        let ada = world.add("ada", &["write=ada.*"]).await;
        let eve = world.add("eve", &["write=eve.*"]).await;
        assert_eq!(world.define(&ada, "ada.room").await.status, 201);
        // An administrator defined the stream that is flooded.
        assert_eq!(world.define(&world.token, "eve.flood").await.status, 201);
        let written = world.write(&ada, "ada.room", 0..1_000).await;
        assert_eq!(written.status, 200, "{written:?}");
        for round in 0..30 {
            // Some 6 MiB for each that the log may have four of.
            let flooded = world.write(&eve, "eve.flood", 0..3_000).await;
            assert_eq!(flooded.status, 200, "{flooded:?}");
            let written = world.write(&ada, "ada.room", 0..1).await;
            assert_eq!(written.status, 200, "{written:?}");
            let refused = world.define(&eve, &format!("ada.not{round}")).await;
            assert_eq!(refused.status, 403, "it is in the audit stream");
        }
        assert_eq!(world.count("ada.room").await, 1_030);
        assert_eq!(world.stream("ada.room").await["first"], 1);
        assert_eq!(world.stream("chappe.audit").await["first"], 1);
        assert_eq!(world.count("chappe.audit").await, 2 + 2 + 30);
        let flood = world.stream("eve.flood").await;
        assert!(flood["first"].as_u64().unwrap() > 60_000, "{flood}");
        let eve = world.account("eve").await;
        let most = eve["use"]["bytes_max"].as_u64().unwrap();
        assert_eq!((most, &eve["use"]["streams"]), (LOG_BYTES / 4, &json!(1)));
        assert!(eve["use"]["bytes"].as_u64().unwrap() > most / 2, "{eve}");
        let metrics = world
            .ask(&world.token, "GET", "/metrics", LINES, "")
            .await
            .body;
        for line in [
            "chappe_account_log_bytes{account=\"eve\"}",
            "chappe_log_moved_bytes_total",
        ] {
            assert!(metrics.contains(line), "{line}");
        }
        world.node.shutdown().await.unwrap();

        // The same after a restart: the flood still counts for its account.
        let node = Node::start(config.clone()).await.unwrap();
        let world = World { node, ..world };
        assert_eq!(world.account("eve").await["use"]["streams"], 1);
        let path = "/api/v1/accounts/eve/share";
        let share = json!({"bytes_percent": 10});
        let changed = world.change(&world.token, "PUT", path, &share).await.json();
        assert_eq!(
            changed["share"],
            json!({"bytes_percent": 10, "streams_percent": 25, "requests_percent": 50})
        );
        let wrong = world
            .change(&world.token, "PUT", path, &json!({"bytes_percent": 0}))
            .await;
        assert_eq!(wrong.status, 422);
        for path in ["operator", "nobody"].map(|it| format!("/api/v1/accounts/{it}/share")) {
            let refused = world.change(&world.token, "PUT", &path, &share).await;
            assert!([404, 409].contains(&refused.status), "{refused:?}");
        }
        assert_eq!(world.count("ada.room").await, 1_030);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_account_defines_no_more_streams_than_its_share() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(small(directory.path())).await;
        let eve = world.add("eve", &["write=eve.*"]).await;
        let ada = world.add("ada", &["write=ada.*"]).await;
        for number in 0..10 {
            let defined = world.define(&eve, &format!("eve.s{number}")).await;
            assert_eq!(defined.status, 201, "{defined:?}");
        }
        let refused = world.define(&eve, "eve.more").await;
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (507, &json!("share_of_streams"))
        );
        let again = world.define(&eve, "eve.s0").await;
        assert_eq!(again.status, 200, "it exists");
        assert_eq!(world.define(&ada, "ada.room").await.status, 201);
        let share = json!({"streams_percent": 30});
        world
            .change(&world.token, "PUT", "/api/v1/accounts/eve/share", &share)
            .await;
        assert_eq!(world.define(&eve, "eve.more").await.status, 201);
        let removed = world
            .ask(&world.token, "DELETE", "/api/v1/streams/eve.s1", LINES, "")
            .await;
        assert!(removed.status < 300, "{removed:?}");
        assert_eq!(world.account("eve").await["use"]["streams"], 10);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_definitions_of_an_account_leave_room_for_those_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    config.log.max_streams = 10_000;
    // So that the definitions are not refused for their records.
    config.accounts.audit_percent = 25;
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["write=eve.*"]).await;
        let ada = world.add("ada", &["write=ada.*"]).await;
        let wide = |name: &str, fields: usize| {
            let field = |number| {
                let description = "d".repeat(1_000);
                json!({"name": format!("f{number:03}"), "type": "double", "description": description})
            };
            let fields: Vec<Json> = (0..fields).map(field).collect();
            json!({"name": name, "level": "process", "fields": fields})
        };
        let path = "/api/v1/streams";
        let large = world
            .change(&eve, "POST", path, &wide("eve.large", 66))
            .await;
        assert_eq!(large.status, 422, "{large:?}");
        let mut defined = 0;
        let refused = loop {
            let stream = wide(&format!("eve.s{defined}"), 64);
            let answer = world.change(&eve, "POST", path, &stream).await;
            if answer.status != 201 {
                break answer;
            }
            defined += 1;
        };
        let (status, code) = (refused.status, &refused.json()["code"]);
        assert_eq!((status, code), (507, &json!("share_of_definitions")));
        let used = &world.account("eve").await["use"];
        let bytes = |member: &str| used[member].as_u64().unwrap();
        assert!(bytes("definitions_bytes") <= bytes("definitions_bytes_max"));
        assert!(bytes("definitions_bytes") > defined * 64_000, "{used}");
        assert_eq!(world.define(&ada, "ada.room").await.status, 201);
        assert_eq!(world.write(&ada, "ada.room", 0..10).await.status, 200);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_entities_of_an_account_leave_room_for_those_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    config.registry.max_bytes = 4 << 20;
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["write"]).await;
        let ada = world.add("ada", &["write"]).await;
        let entity = |key: &str, texts: usize| {
            let text = |number| {
                let object = format!("{key} {number} {}", "x".repeat(16_000));
                json!({"predicate": "urn:p", "object": object})
            };
            let triples: Vec<Json> = (0..texts).map(text).collect();
            json!({"key": key, "name": key, "triples": triples})
        };
        let path = "/api/v1/entities";
        for number in 0..3 {
            let large = entity(&format!("urn:eve:{number}"), 20);
            let answer = world.change(&eve, "POST", path, &large).await;
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        let large = entity("urn:eve:more", 20);
        let refused = world.change(&eve, "POST", path, &large).await;
        let (status, code) = (refused.status, &refused.json()["code"]);
        assert_eq!((status, code), (507, &json!("share_of_registry")));
        let used = &world.account("eve").await["use"];
        assert_eq!(
            used["registry_bytes_max"].as_u64().unwrap(),
            (4 << 20) / 100 * 25
        );
        let answer = world
            .change(&ada, "POST", path, &entity("urn:ada:1", 20))
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let answer = world
            .change(&eve, "POST", path, &entity("urn:eve:1", 1))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = world.change(&eve, "POST", path, &large).await;
        assert_eq!(answer.status, 201, "there is room again: {answer:?}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_smallest_share_of_requests_is_one_request_of_each_kind() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = World::start(small(directory.path())).await;
        let ada = world.add("ada", &["write=ada.*"]).await;
        let share = json!({"requests_percent": 1});
        let path = "/api/v1/accounts/ada/share";
        world.change(&world.token, "PUT", path, &share).await;
        assert_eq!(world.define(&ada, "ada.room").await.status, 201);
        let path = "/api/v1/streams/ada.room/elements?atomic=true";
        let long = format!("{{\"number\": 1, \"note\": \"{}\"}}\n", "x".repeat(400_000));
        let written = world.ask(&ada, "POST", path, LINES, &long).await;
        assert_eq!(written.status, 200, "{written:?}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn requests_that_change_nothing_displace_no_record_of_the_audit_stream() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    // Half of the account's share of the audit stream has room for 500 refusals.
    config.log.max_bytes = MaxBytes::Bytes(16 * LOG_BYTES);
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["write"]).await;
        let entity = json!({"key": "urn:eve:1", "name": "one"});
        let wrong = json!({"name": "eve.wrong", "fields": []});
        for _ in 0..20 {
            assert!(world.define(&eve, "eve.room").await.status <= 201);
            let path = "/api/v1/entities";
            let published = world.change(&eve, "POST", path, &entity).await;
            assert!(published.status <= 201, "{published:?}");
        }
        assert_eq!(world.count("chappe.audit").await, 3);
        for _ in 0..600 {
            let refused = world.change(&eve, "POST", "/api/v1/streams", &wrong).await;
            assert_eq!(refused.status, 422);
        }
        let recorded = world.count("chappe.audit").await;
        assert!((500..590).contains(&recorded), "{recorded}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_message_to_a_webhook_counts_for_the_account_that_sent_it() {
    let directory = tempfile::tempdir().unwrap();
    let wrappers = directory.path().join("wrappers");
    std::fs::create_dir_all(&wrappers).unwrap();
    let file = "kind = \"webhook\"\nformat = \"json\"\nlevel = \"process\"\n[[stream]]\nname = \"hook.{s}\"\n\
        variables = { s = \"$.s\" }\nfields = [{ name = \"note\", type = \"text\" }]\n";
    std::fs::write(wrappers.join("hook.toml"), file).unwrap();
    block(async {
        let mut world = World::start(small(directory.path())).await;
        let eve = world.add("eve", &["write"]).await;
        let path = "/api/v1/wrappers/hook/messages";
        let message = |stream: &str| json!({ "s": stream, "note": "x".repeat(1_000) });
        while world
            .change(&eve, "POST", path, &message("s0"))
            .await
            .status
            != 200
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        for number in 1..10 {
            let sent = world
                .change(&eve, "POST", path, &message(&format!("s{number}")))
                .await;
            assert_eq!(sent.status, 200, "{sent:?}");
        }
        let refused = world.change(&eve, "POST", path, &message("more")).await;
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (507, &json!("share_of_streams"))
        );
        let again = world.change(&eve, "POST", path, &message("s0")).await;
        assert_eq!((again.status, &again.json()["elements"]), (200, &json!(1)));
        let other = world
            .change(&world.token, "POST", path, &message("other"))
            .await;
        assert_eq!(
            other.status, 200,
            "an administrator has no share: {other:?}"
        );
        let row = world
            .ask(&world.token, "GET", "/api/v1/wrappers/hook", LINES, "")
            .await;
        assert_eq!(
            row.json()["undecodable"],
            0,
            "it is not a dead letter: {row:?}"
        );
        for _ in 0..2 {
            let used = world.account("eve").await["use"].clone();
            assert_eq!(used["streams"], 10, "{used}");
            assert!(used["bytes"].as_u64().unwrap() > 10_000, "{used}");
            let token = world.token.clone();
            world.node.shutdown().await.unwrap();
            let node = Node::start(small(directory.path())).await.unwrap();
            world = World { node, token };
        }
        world.node.shutdown().await.unwrap();
    });
}

/// Opens a request and sends its head and the first bytes of its body.
async fn slow(world: &World, token: &str, path: &str) -> TcpStream {
    let mut slow = TcpStream::connect(world.node.address()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {LINES}\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 100000\r\n\r\n{{",
        world.node.address()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    slow
}

/// The status of an answer.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

#[test]
fn slow_bodies_of_one_account_do_not_block_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    config.http.request_timeout_ms = 600_000;
    config.http.max_connections = 1_000;
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["write=eve.*"]).await;
        let ada = world.add("ada", &["write=ada.*"]).await;
        for (token, name) in [(&eve, "eve.slow"), (&ada, "ada.room")] {
            assert_eq!(world.define(token, name).await.status, 201);
        }
        let mut bodies = Vec::new();
        for _ in 0..130 {
            bodies.push(slow(&world, &eve, "/api/v1/streams/eve.slow/elements").await);
        }
        // All that are not admitted are answered at once.
        let mut refused = 0;
        while refused < 130 - 64 {
            let mut open = Vec::new();
            for mut body in bodies {
                let mut one = [0; 1];
                let waiting = body.peek(&mut one);
                let soon = std::time::Duration::from_millis(1);
                if tokio::time::timeout(soon, waiting).await.is_err() {
                    open.push(body);
                    continue;
                }
                assert_eq!(status(&mut body).await, 429);
                let mut rest = Vec::new();
                let _ = body.read_to_end(&mut rest).await;
                let rest = String::from_utf8_lossy(&rest);
                assert!(rest.contains("share_of_requests"), "{rest}");
                assert!(rest.contains("retry-after: 1"), "{rest}");
                refused += 1;
            }
            bodies = open;
        }
        assert_eq!(world.account("eve").await["use"]["requests"]["write"], 64);
        let written = world.write(&ada, "ada.room", 0..100).await;
        assert_eq!(written.status, 200, "{written:?}");
        drop(bodies);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_body_that_arrives_too_slowly_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    config.http.request_timeout_ms = 1_000;
    config.limits.write_min_bytes_per_s = 1 << 20;
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["write=eve.*"]).await;
        assert_eq!(world.define(&eve, "eve.slow").await.status, 201);
        let mut body = slow(&world, &eve, "/api/v1/streams/eve.slow/elements").await;
        body.write_all(b"\"number\": 7}\n").await.unwrap();
        let mut answer = Vec::new();
        body.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains("\"code\":\"slow_body\""), "{answer}");
        assert!(answer.contains("\"complete\":false"), "{answer}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn one_account_does_not_hold_all_live_connections() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = small(directory.path());
    config.http.max_live_clients = 4;
    block(async {
        let world = World::start(config).await;
        let eve = world.add("eve", &["read"]).await;
        let ada = world.add("ada", &["read"]).await;
        let open = async |token: &str| {
            let mut live = TcpStream::connect(world.node.address()).await.unwrap();
            let head = format!(
                "GET /api/v1/live HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
                world.node.address()
            );
            live.write_all(head.as_bytes()).await.unwrap();
            let status = status(&mut live).await;
            (status, live)
        };
        let first = open(&eve).await;
        let second = open(&eve).await;
        assert_eq!((first.0, second.0), (200, 200));
        assert_eq!(open(&eve).await.0, 429);
        let others = [open(&ada).await, open(&world.token).await];
        assert_eq!(others.each_ref().map(|(status, _)| *status), [200, 200]);
        assert_eq!(open(&world.token).await.0, 503, "all are in use");
        assert_eq!(world.account("eve").await["use"]["requests"]["live"], 2);
        world.node.shutdown().await.unwrap();
    });
}
