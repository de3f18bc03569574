//! Goal: retention by age is applied soon after a start, so that frequent restarts do not extend it.
//! Method: a node starts on a log with expired elements and is queried over REST.

use std::time::Duration;

use crate::common::devices::until;
use crate::common::{block, config, elements, prepare_log};
use chappe_log::Level;
use chappe_node::Node;
use chappe_stream::StreamSchema;

/// Less than the minute between two checks: without the first of them it takes longer.
const SOON: Duration = Duration::from_secs(58);

#[test]
fn expired_elements_are_removed_soon_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    prepare_log(directory.path(), |streams| {
        let schema = StreamSchema::default();
        let log = streams.stream("ward.old", Level::Power, &schema, Some("urn:uuid:1"));
        let two = [1, 2].map(|time| elements::element(time, Vec::new()));
        log.unwrap().append(&two).unwrap().wait().unwrap();
    });
    let mut config = config(directory.path());
    config.log.keep_age_s = 3600;
    block(async {
        let node = Node::start(config).await.unwrap();
        let gone = until(&node, "/api/v1/streams/ward.old", |it| it["first"] == 3);
        let gone = tokio::time::timeout(SOON, gone).await;
        assert!(gone.is_ok(), "the elements are there after {SOON:?}");
        node.shutdown().await.unwrap();
    });
}
