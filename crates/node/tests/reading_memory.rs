//! Goal: the requests of a reader of streams cost the node a bounded amount of memory, whatever the
//! number and size of the elements: by SQL, as a page of elements, and as live data.
//! Method: a node with 120 MB of elements, alone in this process; clients that read and discard.
//! The process's own peak of resident memory is reset before each request (Linux).

#[path = "it/common/mod.rs"]
mod common;

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{Live, block, config, elements, send};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamSchema, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ELEMENTS: i64 = 6_000;
const TEXT_BYTES: usize = 20_000;
/// Maximum memory of SQLite's tables by `HistoryLimits`, doubled.
const SQL_BYTES_MAX: u64 = 128 << 20;
const PAGE_BYTES_MAX: u64 = 32 << 20;

fn schema() -> StreamSchema {
    elements::schema(&[("n", FieldType::Integer), ("t", FieldType::Text)])
}

async fn store(node: &Node, numbers: Range<i64>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_nanos()).unwrap();
    let element = |n: i64| {
        let values = vec![Value::Integer(n), Value::Text("x".repeat(TEXT_BYTES))];
        elements::element(now, values)
    };
    for first in numbers.clone().step_by(10) {
        let batch: Vec<_> = (first..(first + 10).min(numbers.end))
            .map(element)
            .collect();
        node.store("ward.large", &schema(), &batch).await.unwrap();
    }
}

fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// The rise of the peak of resident memory.
async fn growth<T>(question: impl Future<Output = T>) -> (T, u64) {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS:");
    let answer = question.await;
    (answer, status_bytes("VmHWM:").saturating_sub(before))
}

/// Reads an answer to its end and discards it; returns its length, and its last bytes.
async fn read_away(node: &Node, path: &str) -> (u64, String) {
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    let host = node.address();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut length, mut end) = (0, Vec::new());
    let mut bytes = vec![0; 64 << 10];
    loop {
        match stream.read(&mut bytes).await.unwrap() {
            0 => return (length, String::from_utf8_lossy(&end).into_owned()),
            count => {
                length += count as u64;
                end.extend_from_slice(&bytes[..count]);
                end.drain(..end.len().saturating_sub(300));
            }
        }
    }
}

async fn sql(node: &Node, sql: &str, partial: bool) -> crate::common::Answer {
    let body = serde_json::json!({ "sql": sql, "partial": partial }).to_string();
    send(node, "POST", "/api/v1/streams/query", &[], body.as_bytes()).await
}

#[test]
fn a_question_costs_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.limits.query_time_ms = 120_000;
        let node = Node::start(config).await.unwrap();
        store(&node, 0..ELEMENTS).await;

        for which in [
            "newest=6000",
            "after=0:0&limit=10000",
            "from=1970-01-01T00:00:00Z&limit=10000",
        ] {
            let path = format!("/api/v1/streams/ward.large/elements?{which}");
            let ((length, end), grown) = growth(read_away(&node, &path)).await;
            assert!(
                length > ELEMENTS as u64 * TEXT_BYTES as u64,
                "{which}: {length}, {end}"
            );
            assert!(end.contains("\"truncated\":false"), "{which}: {end}");
            println!("{which}: {} KiB", grown >> 10);
            assert!(grown < PAGE_BYTES_MAX, "{which}: {grown}");
        }

        let last = format!("{:016x}:0", 0);
        let mut live = Live::open(&node, &format!("after=ward.large@{last}"), None).await;
        let read = async {
            let mut count = 0;
            while count < 2_000 {
                let event = live.next_of("elements").await;
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                count += data["elements"].as_array().unwrap().len();
            }
        };
        let ((), grown) = growth(read).await;
        println!("live data: {} KiB", grown >> 10);
        assert!(grown < PAGE_BYTES_MAX, "{grown}");

        let numbers = "select count(*), min(n), max(n) from ward_large";
        let (answer, grown) = growth(sql(&node, numbers, false)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(
            answer.json()["rows"][0],
            serde_json::json!([ELEMENTS, 0, ELEMENTS - 1])
        );
        println!("sql over numbers: {} KiB", grown >> 10);
        assert!(grown < SQL_BYTES_MAX, "{grown}");

        let texts = "select count(*), sum(length(t)) from ward_large";
        let (answer, grown) = growth(sql(&node, texts, false)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let bytes = ELEMENTS * TEXT_BYTES as i64;
        assert_eq!(
            answer.json()["rows"][0],
            serde_json::json!([ELEMENTS, bytes])
        );
        println!("sql over all texts: {} KiB", grown >> 10);
        assert!(grown < PAGE_BYTES_MAX, "{grown}");

        // Twice the texts do not fit into tables: both are read from the log.
        let twice = "select count(*), (select sum(length(t)) from ward_large) from ward_large";
        let (answer, grown) = growth(sql(&node, twice, false)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(
            answer.json()["rows"][0],
            serde_json::json!([ELEMENTS, bytes])
        );
        println!("sql over all texts, read twice: {} KiB", grown >> 10);
        assert!(grown < SQL_BYTES_MAX, "{grown}");

        let range = "/api/v1/streams/ward.large/range?from=1970-01-01T00:00:00Z&buckets=10000";
        let ((length, _), grown) = growth(read_away(&node, range)).await;
        assert!(length > 10_000, "{length}");
        println!("a range: {} KiB", grown >> 10);
        assert!(grown < PAGE_BYTES_MAX, "{grown}");
        node.shutdown().await.unwrap();
    });
}
