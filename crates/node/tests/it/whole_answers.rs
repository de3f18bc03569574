//! Goal: a reader over REST receives all requested elements, an error, or an answer that names its missing
//! part: SQL over all that is kept or at its limits, ranges in buckets, pages that end before a gap,
//! damaged elements.
//! Method: a node in this process whose streams exceed the limits, or are damaged on disk.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Answer, block, config, elements, get, send, start};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};
use serde_json::json;

fn schema() -> StreamSchema {
    elements::schema(&[("v", FieldType::Integer), ("t", FieldType::Text)])
}

async fn store(node: &Node, stream: &str, numbers: Range<i64>, text: &str, at_once: usize) {
    let elements: Vec<StreamElement> = numbers
        .map(|n| {
            let values = vec![Value::Integer(n), Value::Text(text.to_owned())];
            elements::element(n * 1_000_000_000, values)
        })
        .collect();
    for batch in elements.chunks(at_once) {
        node.store(stream, &schema(), batch).await.unwrap();
    }
}

async fn ask(node: &Node, question: serde_json::Value) -> Answer {
    let body = question.to_string();
    send(node, "POST", "/api/v1/streams/query", &[], body.as_bytes()).await
}

#[test]
fn sql_is_over_all_that_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.limits.query_time_ms = 120_000;
        let node = Node::start(config).await.unwrap();
        store(&node, "ward.a", 0..150_000, "", 10_000).await;
        // In one pass, and by SQLite.
        let statements = [
            "select count(*), min(v), sum(v) from ward_a",
            "select count(*), min(v + 0), sum(v) from ward_a",
        ];
        for sql in statements {
            let answer = ask(&node, json!({ "sql": sql })).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert!(!answer.headers.contains_key("chappe-partial"));
            let body = answer.json();
            assert_eq!(body["rows"], json!([[150_000, 0, 11_249_925_000_i64]]));
            assert_eq!(body["partial"], false);
            let read = json!([{ "stream": "ward.a", "elements": 150_000, "kept": 150_000,
                "complete": true, "damaged": 0 }]);
            assert_eq!(body["read"], read);

            let old =
                json!({ "sql": sql, "from": "1970-01-01T00:00:10Z", "to": "1970-01-01T00:01:00Z" });
            let answer = ask(&node, old).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert!(!answer.headers.contains_key("chappe-partial"));
            let body = answer.json();
            assert_eq!(
                (&body["rows"], &body["partial"]),
                (&json!([[50, 10, 1_725]]), &json!(false))
            );
        }
        let wrong = ask(&node, json!({ "sql": statements[0], "from": "yesterday" })).await;
        assert_eq!(wrong.status, 400, "{}", wrong.body);

        // Rows that were limited by the question are marked; beyond the node's limit they are an error.
        let rows = json!({ "sql": "select v from ward_a", "limit": 5 });
        let answer = ask(&node, rows).await;
        assert_eq!(answer.headers["chappe-partial"], "rows");
        for limit in [json!(null), json!(20_000)] {
            let rows = json!({ "sql": "select v from ward_a", "limit": limit });
            let answer = ask(&node, rows).await;
            assert_eq!(answer.status, 400, "{}", answer.body);
            let problem = answer.json();
            let (detail, hint) = (problem["detail"].to_string(), problem["hint"].to_string());
            assert!(detail.contains("more than 10000 rows"), "{detail}");
            assert!(
                hint.contains("--partial") && hint.contains("limits.query_rows"),
                "{hint}"
            );
        }
        let rows = json!({ "sql": "select v from ward_a", "partial": true });
        let answer = ask(&node, rows).await;
        assert_eq!(answer.headers["chappe-partial"], "rows");
        assert_eq!(answer.json()["rows"].as_array().unwrap().len(), 10_000);

        store(&node, "ward-a", 0..1, "", 1).await;
        let answer = ask(&node, json!({ "sql": statements[0], "partial": true })).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let detail = answer.json()["detail"].to_string();
        assert!(
            detail.contains("ward-a") && detail.contains("ward.a"),
            "{detail}"
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn sql_that_reaches_its_time_limit_is_an_error_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.limits.query_time_ms = 1_500;
        let node = Node::start(config).await.unwrap();
        store(&node, "ward.a", 0..150_000, "", 10_000).await;
        // For each element a pass over all: hours.
        let sql = "select count(*), sum((select count(*) from ward_a b where b.v + a.v < 0)) \
                   from ward_a a";
        let answer = ask(&node, json!({ "sql": sql })).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let problem = answer.json();
        let (detail, hint) = (problem["detail"].to_string(), problem["hint"].to_string());
        assert!(detail.contains("time limit"), "{detail}");
        assert!(
            hint.contains("--from") && hint.contains("--partial") && hint.contains("query_time_ms"),
            "{hint}"
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_range_in_buckets_has_every_element() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        store(&node, "a", 0..20_000, "x", 1_000).await;
        let path = "/api/v1/streams/a/range";
        let whole = get(&node, &format!("{path}?buckets=10")).await.json();
        assert_eq!(whole["from"], "1970-01-01T00:00:00Z");
        // The last element is one nanosecond before the end.
        assert_eq!(whole["count"].as_array().unwrap().len(), 10);
        assert_eq!(whole["elements"], 20_000);
        let field = &whole["fields"][0];
        assert_eq!(
            (&field["name"], whole["fields"].as_array().unwrap().len()),
            (&json!("v"), 1)
        );
        assert_eq!(
            (&field["min"][0], &field["max"][9]),
            (&json!(0.0), &json!(19_999.0))
        );
        let counts = field["count"].as_array().unwrap().iter();
        assert_eq!(
            counts.map(|count| count.as_u64().unwrap()).sum::<u64>(),
            20_000
        );

        let hour = "from=1970-01-01T01:00:00Z&to=1970-01-01T02:00:00Z&buckets=60";
        let hour = get(&node, &format!("{path}?{hour}")).await.json();
        assert_eq!(hour["width_s"], 60.0);
        assert_eq!(hour["to"], "1970-01-01T02:00:00Z");
        assert_eq!(hour["count"], json!(vec![60; 60]));
        let field = &hour["fields"][0];
        assert_eq!(
            (&field["min"][1], &field["max"][1]),
            (&json!(3_660.0), &json!(3_719.0))
        );
        assert_eq!(field["mean"][1], 3_689.5);

        let later = "from=1971-01-01T00:00:00Z&to=1971-01-02T00:00:00Z&buckets=2";
        let later = get(&node, &format!("{path}?{later}")).await.json();
        assert_eq!(later["count"], json!([0, 0]));
        assert_eq!(later["fields"][0]["mean"], json!([null, null]));
        for wrong in [
            "buckets=0",
            "buckets=10001",
            "buckets=many",
            "from=noon",
            "from=1970-01-01T02:00:00Z&to=1970-01-01T01:00:00Z",
            "width=3",
        ] {
            let answer = get(&node, &format!("{path}?{wrong}")).await;
            assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        }
        let answer = get(&node, "/api/v1/streams/b/range").await;
        assert_eq!(answer.status, 404, "{}", answer.body);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn pages_are_whole_whatever_their_size() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        // More bytes than the log reads at once.
        store(&node, "a", 0..3_000, &"x".repeat(5_000), 100).await;
        let path = "/api/v1/streams/a/elements";
        for which in [
            "newest=3000",
            "after=0:0&limit=3000",
            "from=1970-01-01T00:00:00Z&limit=3000",
        ] {
            let page = get(&node, &format!("{path}?{which}")).await.json();
            let numbers = page["elements"].as_array().unwrap().iter();
            let numbers: Vec<_> = numbers.map(|it| it["number"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=3_000).collect::<Vec<_>>(), "{which}");
            assert_eq!(page["truncated"], false, "{which}");
        }
        let (mut after, mut seen) = ("0:0".to_owned(), 0);
        loop {
            let page = get(&node, &format!("{path}?after={after}&limit=700"))
                .await
                .json();
            seen += page["elements"].as_array().unwrap().len();
            after = page["next_after"].as_str().unwrap().to_owned();
            if page["truncated"] == false {
                break;
            }
        }
        assert_eq!(seen, 3_000);
        let span = "from=1970-01-01T00:00:00Z&to=2200-01-01T00:00:00Z&limit=1100";
        let (mut part, mut seen) = (String::new(), 0);
        loop {
            let page = get(&node, &format!("{path}?{span}{part}")).await.json();
            seen += page["elements"].as_array().unwrap().len();
            part = format!("&after={}", page["next_after"].as_str().unwrap());
            if page["truncated"] == false {
                break;
            }
        }
        assert_eq!(seen, 3_000, "a span of time in parts");
        let both = get(&node, &format!("{path}?newest=2{part}")).await;
        assert_eq!(both.status, 400, "{}", both.body);
        let page = get(&node, &format!("{path}?newest=2")).await.json();
        assert_eq!(page["elements"][0]["number"], 2_999);
        assert_eq!(page["stream"], "a");
        let page = get(&node, &format!("{path}?after={after}")).await.json();
        assert_eq!(
            (&page["elements"], &page["truncated"]),
            (&json!([]), &json!(false))
        );
        assert_eq!(page["next_after"], json!(null));
        node.shutdown().await.unwrap();
    });
}

/// Flips a bit in the middle of a file.
fn damage(segment: &Path) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(segment).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 30_000).unwrap();
    file.write_all_at(&[byte[0] ^ 2], 30_000).unwrap();
}

#[test]
fn damaged_elements_are_named_where_an_answer_lacks_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.log.segment_bytes = 65_536;
    config.log.scrub_bytes_per_s = 0;
    block(async {
        let node = Node::start(config).await.unwrap();
        let text = "word ".repeat(400);
        // One in each frame, so that a bit costs one element; then more than memory holds.
        store(&node, "a", 0..100, &text, 1).await;
        store(&node, "a", 100..900, &text, 100).await;
        damage(&directory.path().join("data/log/0000000001.segment"));

        let sql = json!({ "sql": "select count(*) from a" });
        let answer = ask(&node, sql).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.headers["chappe-partial"], "elements");
        let body = answer.json();
        assert_eq!(body["rows"], json!([[899]]));
        assert_eq!(
            (&body["partial"], &body["read"][0]["damaged"]),
            (&json!(true), &json!(1))
        );

        let path = "/api/v1/streams/a/elements";
        let page = get(&node, &format!("{path}?newest=1000")).await.json();
        assert_eq!(page["elements"].as_array().unwrap().len(), 899);
        assert_eq!(page["damaged"], 1);

        let page = get(&node, &format!("{path}?after=0:0&limit=1000"))
            .await
            .json();
        let before_gap = page["elements"].as_array().unwrap().len();
        assert!(
            before_gap < 100,
            "it ends before the damaged one: {before_gap}"
        );
        assert_eq!(page["truncated"], true, "there is more after the gap");
        let after = page["next_after"].as_str().unwrap();
        let gone = get(&node, &format!("{path}?after={after}")).await;
        assert_eq!(gone.status, 410, "{}", gone.body);
        node.shutdown().await.unwrap();
    });
}
