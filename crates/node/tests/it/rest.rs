//! Goal: every route answers in its documented form, and a request from a foreign page, a stranger or an
//! attacker is refused with a problem that gives the reason.
//! Method: a node in this process, driven over real HTTP, header by header.

use crate::common::elements::{element, schema};
use crate::common::{config, get, is_endless, raw, send, start};
use chappe_node::Node;
use chappe_stream::{FieldType, Value};

fn block<T>(future: impl Future<Output = T>) -> T {
    chappe_node::runtime().unwrap().block_on(future)
}

const ROUTES: [(&str, &str); 13] = [
    ("/api/v1/node", "application/json"),
    ("/api/v1/devices", "application/json"),
    ("/api/v1/entities", "application/json"),
    ("/api/v1/streams", "application/json"),
    ("/api/v1/virtual-sensors", "application/json"),
    ("/api/v1/drops", "application/json"),
    ("/api/v1/notices", "application/json"),
    ("/api/v1/dds", "application/json"),
    ("/api/v1/openapi.json", "application/json"),
    ("/health", "application/json"),
    ("/ready", "application/json"),
    (
        "/metrics",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    ),
    ("/", "text/html; charset=utf-8"),
];

#[test]
fn every_route_answers_with_the_headers_that_keep_browsers_safe() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        for (path, kind) in ROUTES {
            let answer = get(&node, path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_eq!(answer.headers["content-type"], kind, "{path}");
            let policy = &answer.headers["content-security-policy"];
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
            assert_eq!(answer.headers["x-content-type-options"], "nosniff");
            assert_eq!(answer.headers["referrer-policy"], "no-referrer");
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
        let me = get(&node, "/api/v1/node").await.json();
        assert_eq!(me["name"], "test");
        assert_eq!(me["address"], node.address().to_string());
        assert_eq!(me["key"], node.key());
        let key = format!("/api/v1/entities/urn%3Achappe%3Anode%3A{}", node.key());
        assert_eq!(get(&node, &key).await.json()["kind"], "node");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn the_description_names_every_route_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let description = get(&node, "/api/v1/openapi.json").await.json();
        assert_eq!(description, chappe_node::openapi());
        let paths = description["paths"].as_object().unwrap();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().unwrap() {
                if is_endless(path, operation) {
                    continue;
                }
                let path = path.replace("{name}", "none").replace("{key}", "none");
                let answer = send(&node, &method.to_uppercase(), &path, &[], b"").await;
                assert_ne!(answer.status, 405, "{method} {path}");
                let unknown = answer.body.contains("there is nothing at");
                assert!(!unknown, "{method} {path}: {}", answer.body);
            }
        }
        for (path, _) in ROUTES.iter().filter(|(path, _)| *path != "/") {
            let described = paths.contains_key(*path) || path.ends_with("openapi.json");
            assert!(described, "{path}");
        }
        node.shutdown().await.unwrap();
    });
}

async fn with_host(node: &Node, host: &str, more: &str) -> u16 {
    let request =
        format!("GET /api/v1/node HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
    raw(node.address(), &request, b"").await.status
}

#[test]
fn names_that_are_not_the_nodes_and_pages_of_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.hosts = vec!["ward.example".into()];
        let node = Node::start(config).await.unwrap();
        let port = node.address().port();
        for host in [
            "127.0.0.1",
            "localhost",
            "LOCALHOST:1",
            "[::1]:80",
            "ward.example",
            "10.1.2.3",
        ] {
            assert_eq!(with_host(&node, host, "").await, 200, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "ward.example.evil",
            "",
            "[::1",
            "a b",
        ] {
            assert_ne!(with_host(&node, host, "").await, 200, "{host}");
        }
        let own = format!("127.0.0.1:{port}");
        let two = format!("Host: {own}\r\n");
        assert_ne!(with_host(&node, &own, &two).await, 200, "two hosts");
        let other = "GET http://evil.example/api/v1/node HTTP/1.1";
        let other = format!("{other}\r\nHost: {own}\r\nConnection: close\r\n\r\n");
        assert_eq!(raw(node.address(), &other, b"").await.status, 421);
        let table = [
            (format!("Origin: http://{own}\r\n"), 200),
            (format!("Origin: https://{own}\r\n"), 200),
            (format!("Origin: evil://{own}\r\n"), 403),
            ("Origin: http://evil.example\r\n".to_owned(), 403),
            (format!("Origin: http://127.0.0.1:{}\r\n", port ^ 1), 403),
            ("Origin: null\r\n".to_owned(), 403),
            (
                format!("Origin: http://{own}\r\nOrigin: http://evil.example\r\n"),
                403,
            ),
            ("Sec-Fetch-Site: cross-site\r\n".to_owned(), 403),
            (
                "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n".to_owned(),
                403,
            ),
            ("Sec-Fetch-Site: same-site\r\n".to_owned(), 403),
            ("Sec-Fetch-Site: same-origin\r\n".to_owned(), 200),
            ("Sec-Fetch-Site: none\r\n".to_owned(), 200),
        ];
        for (fields, status) in table {
            assert_eq!(with_host(&node, &own, &fields).await, status, "{fields}");
        }
        let drops = get(&node, "/api/v1/drops").await.json();
        let reasons: Vec<_> = drops["drops"].as_array().unwrap().iter().collect();
        let counted = |reason: &str| reasons.iter().any(|drop| drop["reason"] == reason);
        assert!(counted("host") && counted("origin"), "{drops}");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn another_site_can_open_the_console_and_start_no_query() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let sparql = "/api/v1/sparql?query=ASK%20%7B%20%3Fs%20%3Fp%20%3Fo%20%7D";
        let elements = "/api/v1/streams/none/elements?newest=10000";
        let site = |site| ("Sec-Fetch-Site", site);
        let (link, image) = (
            ("Sec-Fetch-Mode", "navigate"),
            ("Sec-Fetch-Mode", "no-cors"),
        );
        let browser = (
            "User-Agent",
            "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
        );
        for (path, fields, status) in [
            ("/", vec![browser, site("cross-site"), link], 200),
            ("/", vec![browser, site("cross-site"), image], 403),
            (sparql, vec![browser, site("cross-site"), link], 403),
            (sparql, vec![browser, site("same-site"), link], 403),
            (sparql, vec![browser, site("cross-site"), image], 403),
            (elements, vec![browser, site("cross-site"), link], 403),
            ("/api/v1/live", vec![browser, site("cross-site"), link], 403),
            ("/metrics", vec![browser, site("cross-site"), link], 403),
            // The reader typed the address, or the console asks.
            (sparql, vec![browser, site("none"), link], 200),
            (sparql, vec![browser, site("same-origin")], 200),
            (elements, vec![browser, site("same-origin")], 404),
            // Over plain HTTP from another host, a browser names no site.
            (sparql, vec![browser], 403),
            (elements, vec![browser], 404),
            (sparql, vec![("User-Agent", "curl/8.5.0")], 200),
            (sparql, vec![], 200),
        ] {
            let answer = send(&node, "GET", path, &fields, b"").await;
            assert_eq!(answer.status, status, "{path} {fields:?}: {}", answer.body);
        }
        let fields = [browser, ("Content-Type", "application/sparql-query")];
        let answer = send(
            &node,
            "POST",
            "/api/v1/sparql",
            &fields,
            b"ASK { ?s ?p ?o }",
        )
        .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn changing_needs_the_token_and_reading_too_when_it_is_so_configured() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let token = node
            .new_token()
            .expect("the first start makes a token")
            .to_owned();
        let path = "/api/v1/virtual-sensors/none";
        let answer = send(&node, "DELETE", path, &[], b"").await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert!(answer.headers["www-authenticate"].starts_with("Bearer"));
        assert!(
            answer.json()["hint"]
                .as_str()
                .unwrap()
                .contains("Authorization: Bearer")
        );
        let right = format!("Bearer {token}");
        for (credential, status) in [
            (right.as_str(), 404),
            ("Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 401),
            ("Bearer ", 401),
            ("Basic YTpi", 401),
        ] {
            let fields = [("Authorization", credential)];
            let answer = send(&node, "DELETE", path, &fields, b"").await;
            assert_eq!(answer.status, status, "{credential}");
        }
        let wrong = [("Authorization", "Bearer no")];
        assert_eq!(
            send(&node, "GET", "/api/v1/node", &wrong, b"").await.status,
            401
        );
        node.shutdown().await.unwrap();

        let mut config = config(directory.path());
        config.access.read = chappe_node::config::Read::Token;
        let node = Node::start(config).await.unwrap();
        assert!(
            node.new_token().is_none(),
            "the first start alone makes a token"
        );
        for path in ["/api/v1/node", "/api/v1/live", "/metrics"] {
            assert_eq!(get(&node, path).await.status, 401, "{path}");
        }
        for path in ["/", "/health", "/ready"] {
            assert_eq!(get(&node, path).await.status, 200, "{path}");
        }
        let fields = [("Authorization", right.as_str())];
        let answer = send(&node, "GET", "/api/v1/node", &fields, b"").await;
        assert_eq!(answer.status, 200);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn lists_are_read_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let names = ["a", "b.a", "b.b", "c", "d"];
        let schema = schema(&[("value", FieldType::Double)]);
        for name in names {
            let element = element(1, vec![Value::Double(1.0)]);
            node.store(name, &schema, &[element]).await.unwrap();
        }
        for list in ["streams", "directory"] {
            let mut seen = Vec::new();
            let mut cursor = String::new();
            loop {
                let path = format!("/api/v1/{list}?limit=2{cursor}");
                let answer = get(&node, &path).await.json();
                let part = answer["streams"].as_array().unwrap();
                assert!(part.len() <= 2, "{answer}");
                seen.extend(
                    part.iter()
                        .map(|one| one["name"].as_str().unwrap().to_owned()),
                );
                match answer["next"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(seen, names, "{list}");
        }
        node.shutdown().await.unwrap();
    });
}

/// The paths of lists in the document: those with a cursor and without a variable part.
fn lists() -> Vec<String> {
    let document = chappe_node::openapi();
    let paths = document["paths"].as_object().unwrap();
    let is_list = |path: &str| {
        let parameters = document["paths"][path]["get"]["parameters"].as_array();
        let mut parameters = parameters.into_iter().flatten();
        !path.contains('{') && parameters.any(|it| it["name"] == "cursor")
    };
    let paths = paths.keys().filter(|path| is_list(path));
    paths.cloned().collect()
}

#[test]
fn all_lists_are_read_in_parts_by_cursors_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.access.read = chappe_node::config::Read::Token;
        let node = Node::start(config).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let bearer = format!("Bearer {token}");
        let fields = [("Authorization", bearer.as_str())];
        let ask = async |path: &str| send(&node, "GET", path, &fields, b"").await;
        let lists = lists();
        assert_eq!(lists.len(), 17, "{lists:?}");
        // `c3RyYW5nZTph` is `strange:a`.
        let refused = [
            ("limit=0", "at least 1"),
            ("cursor=%3D", "\"=\\\" is not a cursor"),
            ("cursor=c3RyYW5nZTph", "belongs to the list"),
            ("colour=red", "colour"),
        ];
        for list in &lists {
            for (query, reason) in refused {
                let answer = ask(&format!("{list}?{query}")).await;
                assert_eq!(answer.status, 400, "{list}?{query}: {}", answer.body);
                assert!(
                    answer.body.contains(reason),
                    "{list}?{query}: {}",
                    answer.body
                );
            }
            // Pieces of metadata are listed by what they are about or state, or by their author.
            let criterion = match list.ends_with("/metadata") {
                true => "&author=ada",
                false => "",
            };
            let answer = ask(&format!("{list}?limit=9{criterion}")).await;
            assert_eq!(answer.status, 200, "{list}: {}", answer.body);
            assert!(
                answer.json().get("next").is_some(),
                "{list}: {}",
                answer.body
            );
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn lists_that_move_are_read_in_parts_and_filtered() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        for origin in ["http://a.example", "http://b.example"] {
            send(&node, "GET", "/api/v1/node", &[("Origin", origin)], b"").await;
        }
        send(&node, "DELETE", "/api/v1/streams/a", &[], b"").await;
        let whole = get(&node, "/api/v1/drops").await.json();
        let reasons = |answer: &serde_json::Value| -> Vec<String> {
            let drops = answer["drops"].as_array().unwrap().iter();
            drops
                .map(|it| it["reason"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(reasons(&whole), ["no_token", "origin"], "the latest first");
        let first = get(&node, "/api/v1/drops?limit=1").await.json();
        let cursor = first["next"].as_str().unwrap();
        let second = get(&node, &format!("/api/v1/drops?limit=1&cursor={cursor}")).await;
        let second = second.json();
        assert_eq!(
            (reasons(&first), reasons(&second)),
            (vec!["no_token".into()], vec!["origin".into()])
        );
        assert!(second["next"].is_null(), "{second}");
        let filtered = get(&node, "/api/v1/drops?reason=origin&at_hop=http")
            .await
            .json();
        assert_eq!(filtered["drops"][0]["count"], 2, "{filtered}");
        let other = get(&node, "/api/v1/drops?reason=origin&at_hop=event")
            .await
            .json();
        assert_eq!(other["drops"], serde_json::json!([]));
        node.shutdown().await.unwrap();
    });
}

#[test]
fn what_is_not_there_or_not_understood_is_a_problem_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let table = [
            ("GET", "/api/v1/streems", 404),
            ("GET", "/../../etc/passwd", 404),
            ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
            ("GET", "/api/v1/streams/none", 404),
            ("GET", "/api/v1/streams/none/elements", 404),
            ("GET", "/api/v1/devices/urn%3Ax", 404),
            ("GET", "/api/v1/entities/urn%3Ax", 404),
            ("GET", "/api/v1/entities?kind=stram", 400),
            ("GET", "/api/v1/entities?colour=red", 400),
            ("GET", "/api/v1/entities?limit=-1", 400),
            ("GET", "/api/v1/live?after=x", 400),
            ("GET", "/api/v1/live?streams=../x", 400),
            ("GET", "/api/v1/sparql", 400),
            ("POST", "/api/v1/sparql", 415),
            ("POST", "/api/v1/streams/query", 400),
        ];
        for (method, path, status) in table {
            let answer = send(&node, method, path, &[], b"").await;
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
            assert_eq!(
                answer.headers["content-type"], "application/problem+json",
                "{path}"
            );
            let problem = answer.json();
            assert_eq!(problem["status"], status, "{path}");
            assert!(
                problem["detail"]
                    .as_str()
                    .is_some_and(|detail| !detail.is_empty())
            );
        }
        let answer = send(&node, "PATCH", "/health", &[], b"").await;
        assert_eq!(
            answer.status, 401,
            "changing is refused before anything else"
        );
        let large = vec![b' '; (1 << 20) + 1];
        let answer = send(&node, "POST", "/api/v1/streams/query", &[], &large).await;
        assert_eq!(answer.status, 413, "{}", answer.body);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn hostile_queries_are_refused_or_stopped() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        // Long enough for the honest question at the end, on the slowest machine.
        config.limits.query_time_ms = 3_000;
        let node = Node::start(config).await.unwrap();
        let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) \
             select count(*) from n";
        for sql in [
            "attach database '/etc/passwd' as x",
            "create table x (a)",
            "select load_extension('x')",
            "pragma database_list",
            "select * from sqlite_master; drop table x",
            "select readfile('/etc/passwd')",
            "select 1; select 2",
            endless,
            "",
        ] {
            let body = serde_json::json!({ "sql": sql }).to_string();
            let answer = send(&node, "POST", "/api/v1/streams/query", &[], body.as_bytes()).await;
            assert!((400..500).contains(&answer.status), "{sql}: {answer:?}");
        }
        let fields = [("Content-Type", "application/sparql-query")];
        for query in [
            "INSERT DATA { <urn:a> <urn:b> <urn:c> }",
            "SELECT * WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
            "SELECT * WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r . \
             ?s ?t ?u . ?v ?w ?x . ?y ?z ?aa . ?bb ?cc ?dd . ?ee ?ff ?gg . ?hh ?ii ?jj . ?kk ?ll ?mm}",
            "SELECT",
        ] {
            let answer = send(&node, "POST", "/api/v1/sparql", &fields, query.as_bytes()).await;
            assert!((400..500).contains(&answer.status), "{query}: {answer:?}");
        }
        // A graph that is no entity is empty; nothing is read or fetched.
        let query = "SELECT * FROM <file:///etc/passwd> WHERE { ?s ?p ?o }";
        let answer = send(&node, "POST", "/api/v1/sparql", &fields, query.as_bytes()).await;
        assert_eq!(answer.json()["results"]["bindings"], serde_json::json!([]));
        let ask = "ASK { ?s a <https://chappe.example/ns#Node> }";
        let answer = send(&node, "POST", "/api/v1/sparql", &fields, ask.as_bytes()).await;
        assert_eq!(answer.json()["boolean"], true, "{answer:?}");
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let query = b"query=ASK%20%7B%3Fs+%3Fp+%3Fo%7D";
        let answer = send(&node, "POST", "/api/v1/sparql", &form, query).await;
        assert_eq!(
            answer.headers["content-type"],
            "application/sparql-results+json"
        );
        assert_eq!(answer.json()["boolean"], true);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_client_with_half_a_request_is_disconnected_and_others_are_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        // Honest requests take less on the slowest machine.
        config.http.request_timeout_ms = 3_000;
        config.http.max_connections = 4;
        let node = Node::start(config).await.unwrap();
        let mut halves = Vec::new();
        for half in ["", "GET /api/v1/no", "GET / HTTP/1.1\r\nHost: local"] {
            let mut stream = tokio::net::TcpStream::connect(node.address())
                .await
                .unwrap();
            stream.write_all(half.as_bytes()).await.unwrap();
            halves.push(stream);
        }
        assert_eq!(get(&node, "/health").await.status, 200);
        for mut stream in halves {
            let mut rest = Vec::new();
            // It ends, with or without a last word.
            let _ = stream.read_to_end(&mut rest).await;
        }
        let head = format!(
            "POST /api/v1/streams/query HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\n",
            node.address()
        );
        assert_eq!(raw(node.address(), &head, b"{").await.status, 408);
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
        assert_eq!(raw(node.address(), &long, b"").await.status, 431);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn slow_connections_block_no_others() {
    use tokio::io::AsyncWriteExt as _;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.max_connections = 4;
        let node = Node::start(config).await.unwrap();
        let mut held = Vec::new();
        for number in 0..12 {
            let mut stream = tokio::net::TcpStream::connect(node.address())
                .await
                .unwrap();
            let begun: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET / HTTP/1.1\r\nHos",
                _ => {
                    b"POST /api/v1/sparql HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                       Content-Type: application/sparql-query\r\nContent-Length: 10\r\n\r\nA"
                }
            };
            stream.write_all(begun).await.unwrap();
            held.push(stream);
            assert_eq!(get(&node, "/health").await.status, 200, "beside {number}");
        }
        let drops = get(&node, "/api/v1/drops").await.json();
        let reasons = drops["drops"].as_array().unwrap().iter();
        let full = reasons.filter(|row| row["reason"] == "too many connections");
        assert_eq!(full.count(), 1);
        node.shutdown().await.unwrap();
    });
}
