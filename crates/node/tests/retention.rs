//! Goal: retention by age is applied soon after a start, so that a node that is started often keeps
//! nothing longer for it.
//! Method: elements that are too old in a log that a node is then started over, asked over REST.

mod common;

use std::time::Duration;

use chappe_log::{Level, Options, Store};
use chappe_node::Node;
use chappe_stream::{StreamElement, StreamSchema, StreamStore, Timestamp};
use chappe_transport::FileDisk;
use common::{block, config, get, start};

/// Less than the minute between two looks.
const SOON: Duration = Duration::from_secs(40);

#[test]
fn what_is_too_old_goes_soon_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    // The node makes its directories.
    block(async { start(directory.path()).await.shutdown().await.unwrap() });
    let disk = FileDisk::open(directory.path().join("data/log")).unwrap();
    let (store, _) = Store::open(Box::new(disk), Options::default(), 7).unwrap();
    let streams = StreamStore::new(store.clone());
    let schema = StreamSchema::default();
    let log = streams.stream("ward.old", Level::Power, &schema, Some("urn:uuid:1"));
    let log = log.unwrap();
    let element = StreamElement {
        position: Default::default(),
        source_time: Timestamp(1),
        receive_time: Timestamp(2),
        key: None,
        values: Vec::new(),
        quality: Default::default(),
        origin: None,
    };
    log.append(&[element.clone(), element])
        .unwrap()
        .wait()
        .unwrap();
    drop((streams, log));
    store.close().unwrap();
    let mut config = config(directory.path());
    config.log.keep_age_s = 3600;
    block(async {
        let node = Node::start(config).await.unwrap();
        let gone = async {
            while get(&node, "/api/v1/streams/ward.old").await.json()["first"] != 3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let gone = tokio::time::timeout(SOON, gone).await;
        assert!(gone.is_ok(), "the elements are there after {SOON:?}");
        node.shutdown().await.unwrap();
    });
}
