//! Goal: a node serves the guide from its directory, nothing outside of it, and says how to build one where there is
//! none.
//! Method: nodes in this process, and a directory with a guide of three files next to a secret.

use crate::common::{block, config, get, send};
use chappe_node::Node;

#[test]
fn a_node_without_a_guide_says_how_to_build_one() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        for docs in ["", "none"] {
            let mut config = config(directory.path());
            config.http.docs = match docs {
                "" => docs.into(),
                _ => directory.path().join(docs),
            };
            let node = Node::start(config).await.unwrap();
            for path in ["/docs/", "/docs/index.html", "/docs/reference/sql.html"] {
                let answer = get(&node, path).await;
                assert_eq!(answer.status, 404, "{path}: {}", answer.body);
                let hint = answer.json()["hint"].to_string();
                assert!(hint.contains("mdbook build docs"), "{hint}");
            }
            node.shutdown().await.unwrap();
        }
    });
}

#[test]
fn the_files_of_the_guide_are_served_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let guide = directory.path().join("guide");
    std::fs::create_dir_all(guide.join("reference")).unwrap();
    std::fs::write(directory.path().join("secret.html"), "secret").unwrap();
    std::fs::write(guide.join("index.html"), "<h1>Guide</h1>").unwrap();
    // Longer than one piece of an answer.
    let long = "abcdefgh".repeat(25_000);
    std::fs::write(guide.join("searchindex.js"), &long).unwrap();
    std::fs::write(guide.join("reference/sql.html"), "SQL").unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.docs = guide;
        // Reading the node needs an account; the guide does not.
        config.access.read = chappe_node::config::Read::Token;
        let node = Node::start(config).await.unwrap();
        let get = async |path: &str| get(&node, path).await;

        let moved = get("/docs").await;
        assert_eq!((moved.status, &*moved.headers["location"]), (308, "docs/"));
        for (path, kind, body) in [
            ("/docs/", "text/html; charset=utf-8", "<h1>Guide</h1>"),
            (
                "/docs/reference/sql.html",
                "text/html; charset=utf-8",
                "SQL",
            ),
            (
                "/docs/searchindex.js",
                "text/javascript; charset=utf-8",
                &long,
            ),
        ] {
            let answer = get(path).await;
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.headers["content-type"], kind, "{path}");
            assert_eq!(answer.headers["content-length"], body.len().to_string());
            assert!(answer.body == body, "{path}: {} bytes", answer.body.len());
            let policy = &answer.headers["content-security-policy"];
            assert!(!policy.contains("unsafe"), "{policy}");
        }
        for path in [
            "/docs/../secret.html",
            "/docs/..%2Fsecret.html",
            "/docs/%2e%2e/secret.html",
            "/docs/reference/..%2F..%2Fsecret.html",
            "/docs//etc/passwd",
            "/docs/%2Fetc%2Fpasswd",
            "/docs/reference/",
            "/docs/none.html",
            "/docs/%00.html",
        ] {
            let answer = get(path).await;
            assert_eq!(answer.status, 404, "{path}: {}", answer.body);
            assert_eq!(answer.headers["content-type"], "application/problem+json");
        }
        let answer = get("/docs/%FF.html").await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let answer = send(&node, "POST", "/docs/", &[], b"").await;
        assert!((400..500).contains(&answer.status), "{}", answer.body);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn slow_readers_of_the_guide_leave_connections_to_others() {
    use tokio::io::AsyncWriteExt as _;
    let directory = tempfile::tempdir().unwrap();
    let guide = directory.path().join("guide");
    std::fs::create_dir_all(&guide).unwrap();
    std::fs::write(guide.join("index.html"), "<h1>Guide</h1>").unwrap();
    // More than the buffers of both sockets hold.
    let large = std::fs::File::create(guide.join("searchindex.js")).unwrap();
    large.set_len(64 << 20).unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.docs = guide;
        config.http.max_connections = 8;
        let node = Node::start(config).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut slow = tokio::net::TcpStream::connect(node.address())
                .await
                .unwrap();
            let head = format!(
                "GET /docs/searchindex.js HTTP/1.1\r\nHost: {}\r\n\r\n",
                node.address()
            );
            slow.write_all(head.as_bytes()).await.unwrap();
            // The answer has begun.
            slow.readable().await.unwrap();
            held.push(slow);
        }
        let refused = get(&node, "/docs/").await;
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert_eq!(refused.headers["retry-after"], "2");
        assert_eq!(get(&node, "/health").await.status, 200);
        drop(held);
        let again = async {
            while get(&node, "/docs/").await.status != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let limit = std::time::Duration::from_secs(30);
        tokio::time::timeout(limit, again).await.unwrap();
        node.shutdown().await.unwrap();
    });
}
