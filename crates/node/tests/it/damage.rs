//! Goal: what rots under a running node is found without anybody reading it, and told: by a notice,
//! by `/health` and by the metrics, with the number that is truly missing.
//! Method: a node stores elements into several files until the first are no longer in memory, from
//! where they would be put back; a bit of an old file is flipped, and the scrub comes by.

use std::os::unix::fs::FileExt;

use crate::common::{config, elements, get};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamSchema, Value};

fn schema() -> StreamSchema {
    elements::schema(&[("text", FieldType::Text)])
}

#[test]
fn damage_is_found_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.log.segment_bytes = 65_536;
    config.log.scrub_bytes_per_s = 1 << 30;
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config).await.unwrap();
        let element = elements::element(1, vec![Value::Text("word ".repeat(400))]);
        // One in each frame, so that one bit costs one element.
        for _ in 0..100 {
            let one = std::slice::from_ref(&element);
            node.store("ward.words", &schema(), one).await.unwrap();
        }
        let many = vec![element; 100];
        for _ in 0..8 {
            node.store("ward.words", &schema(), &many).await.unwrap();
        }
        assert_eq!(get(&node, "/health").await.json()["status"], "ok");
        let segment = directory.path().join("data/log/0000000001.segment");
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&segment).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 40_000).unwrap();
        file.write_all_at(&[byte[0] ^ 2], 40_000).unwrap();
        while get(&node, "/health").await.json()["status"] == "ok" {
            tokio::task::yield_now().await;
        }
        let health = get(&node, "/health").await.json();
        assert_eq!(
            health["reasons"][0],
            "log: 1 records of 1 streams are damaged"
        );
        let metrics = get(&node, "/metrics").await.body;
        let counted = |name: &str| metrics.lines().any(|line| line == name);
        let lost = r#"chappe_lost_total{stream="ward.words",reason="damaged"} 1"#;
        assert!(counted(lost), "{metrics}");
        let missing = r#"chappe_missing{stream="ward.words"} 1"#;
        assert!(counted(missing), "{metrics}");
        assert_eq!(get(&node, "/ready").await.status, 200);
        let told = || async {
            let notices = get(&node, "/api/v1/notices").await.body;
            notices.contains("0000000001.segment are damaged") && notices.contains("lacks")
        };
        while !told().await {
            tokio::task::yield_now().await;
        }
        node.shutdown().await.unwrap();
    });
}
