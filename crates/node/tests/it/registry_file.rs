//! Goal: a registry is exported as a file and imported whole, or refused with the line.
//! Method: two nodes in this process; files over their sockets.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::linked;
use crate::common::{Operated, block, config, get, send};

async fn import(on: &Operated, kind: &str, text: &str) -> crate::common::Answer {
    let token = format!("Bearer {}", on.token);
    let fields = [("Content-Type", kind), ("Authorization", token.as_str())];
    send(
        &on.node,
        "POST",
        "/api/v1/registry/import",
        &fields,
        text.as_bytes(),
    )
    .await
}

#[test]
fn a_registry_moves_as_a_file() {
    block(async {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = Operated::start(&config(here.path()), None).await;
        let to = Operated::start(&config(there.path()), None).await;
        let place = json!({"key": "urn:x:ward", "name": "Ward \"3\"", "scopes": ["urn:h:1"],
            "triples": [{"predicate": "http://example.com/beds", "object": "12"}]});
        let made = from.change("POST", "/api/v1/entities", &place).await;
        assert!(made.status < 300, "{made:?}");
        for (format, kind) in [
            ("nquads", "application/n-quads"),
            ("trig", "application/trig"),
            ("uddi", "application/xml"),
        ] {
            let file = get(
                &from.node,
                &format!("/api/v1/registry/export?format={format}"),
            )
            .await;
            assert_eq!(file.status, 200, "{file:?}");
            let imported = import(&to, kind, &file.body).await;
            assert_eq!(imported.status, 200, "{imported:?}");
            assert!(
                imported.json()["entities"].as_u64().unwrap() > 0,
                "{imported:?}"
            );
        }
        // Each node has its own business, and publishes the services of its own devices.
        let path = "/api/v1/entities?type=%7Bhttps://chappe.example/ns/uddi%23%7DbusinessEntity";
        for on in [&from, &to] {
            let businesses = get(&on.node, path).await.json();
            assert_eq!(businesses["entities"].as_array().unwrap().len(), 1);
        }
        let path = "/api/v1/entities/urn%3Ax%3Award";
        let (before, after) = (get(&from.node, path).await, get(&to.node, path).await);
        assert_eq!(before.json(), after.json());
        let bad = "<urn:y:1> <urn:p> \"1\" <urn:y:1> .\n<urn:y:2> <urn:p> .\n";
        let refused = import(&to, "application/n-quads", bad).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("line 2"), "{refused:?}");
        assert_eq!(
            get(&to.node, "/api/v1/entities/urn%3Ay%3A1").await.status,
            404
        );
        assert_eq!(import(&to, "text/plain", bad).await.status, 415);
        let open = [("Content-Type", "application/n-quads")];
        let path = "/api/v1/registry/import";
        let stranger = send(&to.node, "POST", path, &open, bad.as_bytes()).await;
        assert_eq!(stranger.status, 401, "{stranger:?}");
        from.node.shutdown().await.unwrap();
        to.node.shutdown().await.unwrap();
    });
}

/// A client that takes an export slowly keeps nobody from asking.
#[test]
fn an_export_that_waits_for_its_client_is_no_query() {
    block(async {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        config.limits.queries = 1;
        let on = Operated::start(&config, None).await;
        // More than the buffers of a connection hold.
        let triple =
            |n: u32| json!({"predicate": "urn:p", "object": format!("{n} {}", "x".repeat(16_000))});
        for number in 0..24 {
            let triples: Vec<_> = (0..30).map(triple).collect();
            let entity = json!({"key": format!("urn:x:{number}"), "name": "x", "triples": triples});
            let made = on.change("POST", "/api/v1/entities", &entity).await;
            assert_eq!(made.status, 201, "{made:?}");
        }
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut slow = socket.connect(on.node.address()).await.unwrap();
        let request = format!(
            "GET /api/v1/registry/export HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            on.node.address()
        );
        slow.write_all(request.as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        slow.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        let query = "/api/v1/sparql?query=ASK%20%7B%7D";
        let is_answered = || async { get(&on.node, query).await.status == 200 };
        linked::until("others may ask", is_answered).await;
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "the export is whole");
        on.node.shutdown().await.unwrap();
    });
}
