//! Goal: losses between two nodes are counted exactly: at the subscriber, the sum of `chappe_lost_total`
//! over all reasons equals the elements that the origin stored and the subscriber never received; by
//! reason, the trimmed and the damaged ones; and this still holds after the link restarts.
//! Method: real nodes on loopback; while the subscriber is away, the origin's log loses its oldest elements to
//! a trim, and a bit of a file in its middle is flipped.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::linked::{block, fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{elements, get};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};

/// Total number of elements stored, in batches, and the number that the subscriber receives at
/// first.
const ALL: i64 = 200;
const BATCH: i64 = 5;
const FIRST: i64 = 20;
/// The first number kept by the trim.
const KEPT_FROM: u64 = 41;
const STREAM: &str = "ward.bed1";

fn schema() -> StreamSchema {
    elements::schema(&[("n", FieldType::Integer), ("text", FieldType::Text)])
}

async fn produce(node: &Node, numbers: std::ops::Range<i64>) {
    let elements: Vec<StreamElement> = numbers
        .map(|number| {
            let values = vec![Value::Integer(number), Value::Text("word ".repeat(800))];
            elements::element(number, values)
        })
        .collect();
    for batch in elements.chunks(BATCH as usize) {
        node.store(STREAM, &schema(), batch).await.unwrap();
    }
}

fn number(element: &StreamElement) -> i64 {
    match element.values[0] {
        Value::Integer(number) => number,
        _ => panic!("{element:?}"),
    }
}

/// The counts of a metric of the stream, by reason.
async fn counted(node: &Node, metric: &str) -> BTreeMap<String, u64> {
    let metrics = get(node, "/metrics").await.body;
    let beginning = format!("{metric}{{stream=\"{STREAM}\"");
    let lines = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&beginning));
    let counts = lines.map(|line| {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let reason = labels.split('"').nth(1).unwrap_or_default();
        (reason.to_owned(), count.parse().unwrap())
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

fn counts_exact_losses(kind: &'static str) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = origin_config(there.path());
        at_origin.log.segment_bytes = 65_536;
        // Found by reading, not by passing.
        at_origin.log.scrub_bytes_per_s = 0;
        let origin = Node::start(at_origin.clone()).await.unwrap();
        fix(&mut at_origin, &origin);
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link(kind, &origin)];
        produce(&origin, 0..FIRST).await;
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        at_subscriber.http.listen = subscriber.address();
        stored(&subscriber, STREAM, |held| held.len() as i64 == FIRST).await;
        assert_eq!(
            counted(&subscriber, "chappe_lost_total").await,
            BTreeMap::new()
        );
        subscriber.shutdown().await.unwrap();
        produce(&origin, FIRST..ALL).await;
        let log = origin.stream(STREAM).unwrap();
        log.log().trim(KEPT_FROM).unwrap().await.unwrap();
        drop(log);
        origin.shutdown().await.unwrap();
        let segment = there.path().join("data/log/0000000006.segment");
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[40_000] ^= 2;
        std::fs::write(&segment, bytes).unwrap();

        let origin = Node::start(at_origin.clone()).await.unwrap();
        let subscriber = Node::start(at_subscriber).await.unwrap();
        let newest = |held: &[StreamElement]| held.last().is_some_and(|it| number(it) == ALL - 1);
        let held = stored(&subscriber, STREAM, newest).await;
        let held: BTreeSet<i64> = held.iter().map(number).collect();
        let missing: Vec<i64> = (0..ALL).filter(|number| !held.contains(number)).collect();
        let trimmed = KEPT_FROM - 1 - FIRST as u64;
        let damaged = missing.len() as u64 - trimmed;
        assert!(damaged >= 1, "the flip hit an element: {missing:?}");
        let wanted = BTreeMap::from([
            ("corrupt_at_origin".to_owned(), damaged),
            ("trimmed".to_owned(), trimmed),
        ]);
        let lost = counted(&subscriber, "chappe_lost_total").await;
        assert_eq!(lost, wanted, "{kind}: missing {missing:?}");
        assert_eq!(lost.values().sum::<u64>(), missing.len() as u64);
        let at_origin_missing = counted(&origin, "chappe_missing").await;
        assert_eq!(at_origin_missing.values().sum::<u64>(), damaged);
        assert_eq!(
            counted(&origin, "chappe_lost_total").await["damaged"],
            damaged
        );

        // Nothing is counted again when the link begins again.
        origin.shutdown().await.unwrap();
        let origin = Node::start(at_origin).await.unwrap();
        produce(&origin, ALL..ALL + 10).await;
        let newest = |held: &[StreamElement]| held.last().is_some_and(|it| number(it) == ALL + 9);
        stored(&subscriber, STREAM, newest).await;
        assert_eq!(counted(&subscriber, "chappe_lost_total").await, wanted);
        let status = get(&subscriber, "/api/v1/links/origin").await.json();
        assert_eq!(status["lost"]["trimmed"], trimmed, "{status}");
        assert_eq!(status["streams"][0]["rollbacks"], 0, "{status}");
        until("no lag", || async {
            let status = get(&subscriber, "/api/v1/links/origin").await.json();
            // By a pull it cannot be known.
            let lag = &status["lag_elements"];
            (*lag == 0 || lag.is_null() && kind == "http_pull") && status["held_bytes"] == 0
        })
        .await;
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn sessions_count_what_is_missing() {
    counts_exact_losses("zeromq");
}

#[test]
fn http_pull_counts_what_is_missing() {
    counts_exact_losses("http_pull");
}

#[test]
fn http_push_counts_what_is_missing() {
    counts_exact_losses("http_push");
}
