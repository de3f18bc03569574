//! Goal: a client of live data receives every element once, in order, over any number of connections; a
//! slow client blocks no other; a client ahead of the node is notified of the rollback.
//! Method: elements stored by this program; clients that connect, disconnect and stop reading.

use std::path::Path;

use crate::common::{Live, block, config, elements, get, prepare_log, start};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};

fn schema() -> StreamSchema {
    elements::schema(&[("n", FieldType::Integer), ("padding", FieldType::Text)])
}

async fn store(node: &Node, stream: &str, numbers: std::ops::Range<i64>) {
    store_padded(node, stream, numbers, 0).await;
}

async fn store_padded(
    node: &Node,
    stream: &str,
    numbers: std::ops::Range<i64>,
    padding_bytes: usize,
) {
    let padding = "x".repeat(padding_bytes);
    let numbers: Vec<i64> = numbers.collect();
    for part in numbers.chunks(1_000) {
        let elements: Vec<StreamElement> = part
            .iter()
            .map(|n| {
                let values = vec![Value::Integer(*n), Value::Text(padding.clone())];
                elements::element(n * 1_000, values)
            })
            .collect();
        node.store(stream, &schema(), &elements).await.unwrap();
    }
}

/// Reads until `count` elements have arrived; returns their values, and the last event's id.
async fn take(live: &mut Live, count: usize) -> (Vec<i64>, String) {
    let (mut values, mut id) = (Vec::new(), String::new());
    while values.len() < count {
        let event = live.next_of("elements").await;
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        for element in data["elements"].as_array().unwrap() {
            values.push(element["values"]["n"].as_i64().unwrap());
        }
        id = event.id;
    }
    (values, id)
}

/// With many streams the id of an event is a place in the log, not the position of each.
#[test]
fn a_client_of_many_streams_loses_nothing_and_its_ids_stay_short() {
    const STREAMS: i64 = 200;
    /// A place, and 32 positions.
    const ID_BYTES_MAX: usize = 2_100;
    let directory = tempfile::tempdir().unwrap();
    let name = |number: i64| format!("many.s{number:03}");
    block(async {
        let mut node = start(directory.path()).await;
        for number in 0..STREAMS {
            store(&node, &name(number), 0..1).await;
        }
        let mut live = Live::open(&node, "streams=*", None).await;
        let mut id = live.next_of("elements").await.id;
        assert!(id.starts_with("log:"), "{id}");
        for round in 1..6 {
            // What arrives while nobody listens, and a new stream.
            drop(live);
            let expected = (0..STREAMS).filter(|number| number % 7 < round);
            for number in expected.clone() {
                store(&node, &name(number), round..round + 1).await;
            }
            store(&node, &format!("many.new{round}"), round..round + 1).await;
            if round % 2 == 0 {
                node.shutdown().await.unwrap();
                node = start(directory.path()).await;
            }
            live = Live::open(&node, "streams=*", Some(&id)).await;
            let mut missing: std::collections::BTreeSet<String> = expected.map(name).collect();
            missing.insert(format!("many.new{round}"));
            while !missing.is_empty() {
                let event = live.next_of("elements").await;
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                for element in data["elements"].as_array().unwrap() {
                    if element["values"]["n"] == round {
                        missing.remove(element["stream"].as_str().unwrap());
                    }
                }
                assert!(event.id.len() <= ID_BYTES_MAX, "{}", event.id);
                id = event.id;
            }
        }
        // An id of a log that is not this one.
        drop(live);
        let place = id.split(',').next().unwrap();
        let (place, _) = place.rsplit_once('.').unwrap();
        let mut live = Live::open(&node, "streams=*", Some(&format!("{place}.1"))).await;
        let notice = live.next_of("notice").await;
        assert!(notice.data.contains("the log went back"), "{}", notice.data);
        drop(live);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed_once() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        store(&node, "a.x", 0..10).await;
        let mut live = Live::open(&node, "streams=*", None).await;
        let greeting = live.next_of("elements").await;
        assert!(greeting.id.starts_with("a.x@") && greeting.id.ends_with(":10"));
        store(&node, "a.x", 10..20).await;
        let (values, id) = take(&mut live, 10).await;
        assert_eq!(values, (10..20).collect::<Vec<_>>(), "live data begins now");
        drop(live);
        // Without listeners the stream continues and another starts.
        store(&node, "a.x", 20..2_500).await;
        store(&node, "b.y", 0..5).await;
        let mut live = Live::open(&node, "streams=*", Some(&id)).await;
        let (mut values, id) = take(&mut live, 2_480 + 5).await;
        values.sort_unstable();
        let mut expected: Vec<i64> = (20..2_500).chain(0..5).collect();
        expected.sort_unstable();
        assert_eq!(values, expected);
        drop(live);
        // The same by the parameter, for clients that keep their own place.
        store(&node, "a.x", 2_500..2_510).await;
        let after = id.replace("b.y", "c.z");
        let mut live = Live::open(&node, &format!("streams=a.x&after={after}"), None).await;
        assert_eq!(
            take(&mut live, 10).await.0,
            (2_500..2_510).collect::<Vec<_>>()
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn streams_that_come_later_join_with_their_first_element() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let mut all = Live::open(&node, "streams=*", None).await;
        let mut named = Live::open(&node, "streams=late.x", None).await;
        let mut prefixed = Live::open(&node, "streams=none.x,late.*", None).await;
        prefixed.next_of("elements").await;
        assert_eq!(all.next_of("elements").await.id, "");
        named.next_of("elements").await;
        store(&node, "late.x", 0..3).await;
        assert_eq!(take(&mut all, 3).await.0, [0, 1, 2]);
        store(&node, "other.x", 7..8).await;
        // Across streams there is no order: the next element is stored when this one has arrived.
        assert_eq!(take(&mut all, 1).await.0, [7]);
        store(&node, "late.y", 3..4).await;
        assert_eq!(take(&mut all, 1).await.0, [3]);
        assert_eq!(take(&mut prefixed, 4).await.0, [0, 1, 2, 3]);
        assert_eq!(take(&mut named, 3).await.0, [0, 1, 2]);
        node.shutdown().await.unwrap();
        assert_eq!(
            all.next().await,
            None,
            "the end of the node ends the connection"
        );
    });
}

#[test]
fn a_client_ahead_of_the_node_is_notified_and_continues() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        store(&node, "a.x", 0..5).await;
        let epoch = get(&node, "/api/v1/streams/a.x").await.json()["epoch"].clone();
        let epoch = epoch.as_str().unwrap();
        for have in [format!("{epoch}:99"), "0000000000000001:3".to_owned()] {
            let mut live = Live::open(&node, &format!("streams=a.x&after=a.x@{have}"), None).await;
            let event = live.next().await.unwrap();
            assert_eq!(event.event, "rollback", "{event:?}");
            let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(data["stream"], "a.x");
            assert_eq!(data["have"], have);
            assert!(data["want"].as_str().unwrap().starts_with(epoch));
        }
        node.shutdown().await.unwrap();
    });
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let permissions = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, permissions).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn a_client_that_is_behind_an_epoch_misses_nothing() {
    let [original, restored] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let have = block(async {
        let node = start(original.path()).await;
        store(&node, "a.x", 0..10).await;
        let epoch = get(&node, "/api/v1/streams/a.x").await.json()["epoch"].clone();
        let have = format!("a.x@{}:5", epoch.as_str().unwrap());
        node.shutdown().await.unwrap();
        // A copy goes on in another epoch.
        copy(original.path(), restored.path());
        let node = start(restored.path()).await;
        store(&node, "a.x", 10..20).await;
        // The first event carries no elements, and a position.
        let mut live = Live::open(&node, "streams=*", Some(&have)).await;
        let first = live.next().await.unwrap();
        assert_eq!(first.event, "elements", "{first:?}");
        assert!(first.data.contains("[]"), "{first:?}");
        let have = first.id;
        drop(live);
        let mut live = Live::open(&node, "streams=*", Some(&have)).await;
        let first = live.next().await.unwrap();
        assert_eq!(first.event, "elements", "{first:?}");
        assert_eq!(take(&mut live, 15).await.0, (5..20).collect::<Vec<_>>());
        drop(live);
        node.shutdown().await.unwrap();
        have
    });
    // All of that is removed: the position after it is one that the log has, too.
    prepare_log(restored.path(), |store| {
        let log = store.existing("a.x").unwrap().unwrap();
        log.log().trim(21).unwrap().wait().unwrap();
    });
    block(async {
        let node = start(restored.path()).await;
        let mut live = Live::open(&node, "streams=*", Some(&have)).await;
        live.next_of("notice").await;
        store(&node, "b.y", 0..1).await;
        let (_, have) = take(&mut live, 1).await;
        drop(live);
        let mut live = Live::open(&node, "streams=*", Some(&have)).await;
        let first = live.next().await.unwrap();
        assert_eq!(first.event, "elements", "{first:?}");
        store(&node, "a.x", 20..22).await;
        assert_eq!(take(&mut live, 2).await.0, [20, 21]);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_slow_client_blocks_no_others_and_receives_everything() {
    // More than the buffers between node and client hold, and soon stored: a client that reads nothing
    // for 60 s is disconnected.
    const COUNT: i64 = 12_000;
    const PADDING_BYTES: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.log.level = chappe_log::Level::Process;
        let node = Node::start(config).await.unwrap();
        store(&node, "a.x", 0..1).await;
        // It reads its first event, and then nothing until all is stored.
        let mut slow = Live::open(&node, "streams=a.x", None).await;
        slow.next_of("elements").await;
        let mut quick = Live::open(&node, "streams=a.x", None).await;
        quick.next_of("elements").await;
        let (_, (values, _)) = tokio::join!(
            store_padded(&node, "a.x", 1..COUNT, PADDING_BYTES),
            take(&mut quick, COUNT as usize - 1)
        );
        assert_eq!(values, (1..COUNT).collect::<Vec<_>>());
        let mut values = Vec::new();
        let mut lagged = false;
        while values.len() < COUNT as usize - 1 {
            let event = slow.next().await.unwrap();
            lagged |= event.event == "notice" && event.data.contains("\"lag\"");
            if event.event == "elements" {
                let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
                let elements = data["elements"].as_array().unwrap().iter();
                values.extend(elements.map(|e| e["values"]["n"].as_i64().unwrap()));
            }
        }
        assert_eq!(values, (1..COUNT).collect::<Vec<_>>());
        assert!(lagged, "a client that lags far is notified");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn the_number_of_live_clients_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.max_live_clients = 2;
        let node = Node::start(config).await.unwrap();
        let first = Live::open(&node, "streams=*", None).await;
        let _second = Live::open(&node, "streams=*", None).await;
        let refused = get(&node, "/api/v1/live").await;
        assert_eq!(refused.status, 503);
        assert!(
            refused.json()["hint"]
                .as_str()
                .unwrap()
                .contains("max_live_clients")
        );
        drop(first);
        // The place is free as soon as the node has noticed.
        while Live::try_open(&node, "streams=*", None).await.is_none() {
            tokio::task::yield_now().await;
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn pages_of_elements_join_without_gap() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        store(&node, "a.x", 0..25).await;
        let mut after = "0:0".to_owned();
        let mut values = Vec::new();
        loop {
            let path = format!("/api/v1/streams/a.x/elements?after={after}&limit=10");
            let page = get(&node, &path).await.json();
            let elements = page["elements"].as_array();
            let elements = elements.unwrap_or_else(|| panic!("{path}: {page}")).clone();
            values.extend(elements.iter().map(|e| e["values"]["n"].as_i64().unwrap()));
            if page["truncated"] == false {
                break;
            }
            after = page["next_after"].as_str().unwrap().to_owned();
        }
        assert_eq!(values, (0..25).collect::<Vec<_>>());
        let newest = get(&node, "/api/v1/streams/a.x/elements?newest=2")
            .await
            .json();
        assert_eq!(newest["elements"][1]["values"]["n"], 24);
        let from = "from=1970-01-01T00:00:00.000005Z&to=1970-01-01T00:00:00.000007Z";
        let range = get(&node, &format!("/api/v1/streams/a.x/elements?{from}"))
            .await
            .json();
        assert_eq!(range["elements"].as_array().unwrap().len(), 2);
        assert_eq!(
            range["elements"][0]["source_time"],
            "1970-01-01T00:00:00.000005Z"
        );
        for wrong in [
            "newest=1&after=0:0",
            "after=x",
            "from=yesterday",
            "limit=99999999",
        ] {
            let answer = get(&node, &format!("/api/v1/streams/a.x/elements?{wrong}")).await;
            assert_eq!(answer.status, 400, "{wrong}");
        }
        let sql = br#"{"sql": "select sum(n) as total from \"a.x\""}"#;
        let answer = crate::common::send(&node, "POST", "/api/v1/streams/query", &[], sql)
            .await
            .json();
        assert_eq!(answer["columns"][0], "total");
        assert_eq!(answer["rows"][0][0], 300);
        node.shutdown().await.unwrap();
    });
}

/// Stores an element whose one value is a number, in the field `name`.
async fn store_in(node: &Node, name: &str, number: i64) {
    let schema = elements::schema(&[(name, FieldType::Integer)]);
    let element = elements::element(number, vec![Value::Integer(number)]);
    node.store("a", &schema, &[element]).await.unwrap();
}

#[test]
fn elements_keep_the_names_of_their_values_when_the_schema_changes() {
    const TURNS: i64 = 20;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = start(directory.path()).await;
        let mut live = Live::open(&node, "streams=*", None).await;
        live.next_of("elements").await;
        for turn in 0..TURNS {
            // Both come while the client gathers.
            store_in(&node, "even", 2 * turn).await;
            store_in(&node, "odd", 2 * turn + 1).await;
        }
        let mut count = 0;
        while count < 2 * TURNS {
            let event = live.next_of("elements").await;
            let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            for element in data["elements"].as_array().unwrap() {
                for (name, remainder) in [("even", 0), ("odd", 1)] {
                    // Null: it was read in the shape of the other schema.
                    let value = element["values"][name].as_i64();
                    assert!(
                        value.is_none_or(|value| value % 2 == remainder),
                        "{element}"
                    );
                }
                count += 1;
            }
        }
        node.shutdown().await.unwrap();
    });
}
