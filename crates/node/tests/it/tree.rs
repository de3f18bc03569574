//! Goal: a stream fed by a device's notification tree has the same elements as one fed by standard
//! notifications; and nobody can replay an old event after a restart of the node.
//! Method: a real device of this process on loopback with scripted events, a node, a plain client, and a
//! hand-made sink that records its messages and repeats them.

#[path = "../../../device/tests/it/common/insider.rs"]
mod insider;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::devices::{described, host_options, looking, unique, until};
use crate::common::{block, get};
use chappe_device::client::Seen;
use chappe_device::file::FileDevice;
use chappe_device::host::HostTree;
use chappe_device::mapping::rules::Rules;
use chappe_device::{ClientOptions, DeviceClient, HostOptions, Selection};
use chappe_identity::{Key, PublicKey};
use chappe_node::Node;
use chappe_notification_tree::{Membership, Spread};
use chappe_stream::StreamElement;
use chappe_transport::Drops;
use chappe_wrappers::dpws::{Attachment, AttachmentEvent};
use chappe_xml::{Element, Name};
use insider::Insider;
use serde_json::{Value, json};

/// A device with a tree that sends on request, and the node's stream of it.
struct Source {
    device: FileDevice,
    namespace: String,
    action: String,
    path: String,
}

impl Source {
    fn start(directory: &tempfile::TempDir, address: &str) -> Self {
        let name = format!("spread-{}", unique());
        // It sends unsolicited messages at its start, and a day later.
        let file = described(
            directory.path(),
            &name,
            "urn:example:temperature",
            86_400_000,
        );
        let (namespace, action) = (file.namespace.clone(), file.action(&file.events[0]));
        let key = Key::from_seed(chappe_transport::seed().unwrap());
        let options = HostOptions {
            tree: Some(HostTree::new(key)),
            ..host_options(address)
        };
        let device = file.start(options, Drops::default()).unwrap();
        let path = device.host().endpoint().replace(':', "%3A");
        Self {
            device,
            namespace,
            action,
            path: format!("/api/v1/devices/{path}"),
        }
    }

    async fn say(&self, celsius: u32) {
        let name = |local: &str| Name::owned(self.namespace.clone(), local.to_owned());
        let value = Element::new(name("celsius")).with_text(celsius.to_string());
        let event = Element::new(name("Reading")).with_child(value);
        let said = self.device.host().notify(self.action.clone(), event);
        said.await.unwrap();
    }

    /// The path of the node's stream.
    async fn stream(&self, node: &Node) -> String {
        let shown = until(node, &self.path, |device| device["state"] == "usable").await;
        format!("/api/v1/streams/{}", shown["streams"][0].as_str().unwrap())
    }
}

async fn start(directory: &tempfile::TempDir) -> Node {
    let mut config = looking(directory.path());
    config.discovery.tree = true;
    Node::start(config).await.unwrap()
}

/// The elements of a stream, once there are this many.
async fn elements(node: &Node, stream: &str, count: usize) -> Vec<Value> {
    let path = format!("{stream}/elements?after=0:0&limit=1000");
    let there = |page: &Value| {
        page["elements"]
            .as_array()
            .is_some_and(|all| all.len() >= count)
    };
    let page = until(node, &path, there).await;
    page["elements"].as_array().unwrap().clone()
}

fn celsius(elements: &[Value]) -> Vec<u64> {
    let one = |element: &Value| element["values"]["celsius"].as_f64().unwrap() as u64;
    elements.iter().map(one).collect()
}

/// The value of a counter in the node's metrics.
async fn counted(node: &Node, counter: &str) -> u64 {
    let metrics = get(node, "/metrics").await.body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(counter));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

/// A device as a client without tree and node sees it, once its events are subscribed.
async fn attached(client: &DeviceClient, endpoint: &str) -> Attachment {
    let mut seen = client.discover().await.unwrap();
    let found = loop {
        match seen.next().await.expect("the client runs") {
            Seen::Found(found) if found.endpoint == endpoint => break found,
            _ => {}
        }
    };
    let description = client.describe(&found).await.unwrap();
    let mut attachment = Attachment::new(client, &description, &Rules::default()).await;
    while !attachment.is_subscribed() {
        attachment.next().await.unwrap();
    }
    attachment
}

async fn events(attachment: &mut Attachment, count: usize) -> Vec<StreamElement> {
    let mut events = Vec::new();
    while events.len() < count {
        let yields = attachment.next().await.expect("it is subscribed");
        events.extend(yields.into_iter().filter_map(|one| match one {
            AttachmentEvent::Element(_, element) => Some(element),
            _ => None,
        }));
    }
    events
}

#[test]
fn a_stream_fed_by_a_tree_has_the_elements_of_the_typed_events() {
    /// This many must have arrived by the tree; others may arrive as standard notifications, until
    /// the device has confirmed the node's address, or on a slow machine.
    const BY_TREE: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let source = Source::start(&directory, "127.0.9.21");
        let node = start(&directory).await;
        let stream = source.stream(&node).await;
        let options = ClientOptions {
            selection: Selection::Addresses(vec!["127.0.0.1".parse().unwrap()]),
            liveness_period: None,
            ..ClientOptions::default()
        };
        let client = DeviceClient::start(options, Drops::default()).unwrap();
        let mut plain = attached(&client, source.device.host().endpoint()).await;
        let mut said = 0;
        while counted(&node, r#"chappe_tree_events_total{outcome="delivered"}"#).await < BY_TREE {
            said += 1;
            source.say(said).await;
            elements(&node, &stream, said as usize).await;
        }
        let stored = elements(&node, &stream, said as usize).await;
        let typed = events(&mut plain, said as usize).await;
        assert_eq!(stored.len(), said as usize, "each once");
        for ((number, typed), stored) in (1..).zip(&typed).zip(&stored) {
            assert_eq!(
                typed.values,
                [chappe_stream::Value::Double(f64::from(number))]
            );
            assert_eq!(stored["values"], json!({ "celsius": f64::from(number) }));
            assert_eq!(stored["key"], json!(typed.key));
            assert_eq!(stored["quality"], json!(typed.quality));
        }
        node.shutdown().await.unwrap();
        source.device.stop().await;
    });
}

#[test]
fn an_old_event_is_not_taken_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let source = Source::start(&directory, "127.0.9.22");
        let of = ("/service", source.action.as_str());
        let mut insider = Insider::subscribe(source.device.host(), of, ("127.0.0.1", 0)).await;
        let node = start(&directory).await;
        let stream = source.stream(&node).await;
        let key: PublicKey = node.key().parse().unwrap();
        let mut said = 0;
        let old = next_with(&source, &mut insider, &key, None, &mut said).await;
        elements(&node, &stream, said as usize).await;
        node.shutdown().await.unwrap();

        let node = start(&directory).await;
        source.stream(&node).await;
        // It is refused, or there again.
        let refused = r#"chappe_dropped_total{hop="event",reason="event too old"}"#;
        while counted(&node, refused).await == 0 {
            let new = next_with(&source, &mut insider, &key, Some(&old), &mut said).await;
            let list = new.event.list().unwrap().unwrap();
            let victim = list.sink(place(&list, &key).unwrap()).unwrap();
            // Numbers are those of the list that the event has: sinks of other tests come and go.
            let before = old.event.list().unwrap().unwrap();
            let to = place(&before, &key).unwrap();
            let own = place(&before, &insider.key.public()).unwrap();
            insider.forward(own, (to, victim), old.clone()).await;
            let all = celsius(&elements(&node, &stream, 1).await);
            let once: BTreeSet<u64> = all.iter().copied().collect();
            assert_eq!(once.len(), all.len(), "twice: {all:?}");
        }
        node.shutdown().await.unwrap();
        source.device.stop().await;
    });
}

/// The position of the sink with this key in a list.
fn place(list: &Membership, key: &PublicKey) -> Option<u32> {
    let mut sinks = list.sinks().iter();
    let at = sinks.position(|sink| sink.key == *key.as_bytes())?;
    u32::try_from(at).ok()
}

/// An event sent to the insider, newer than `before`, once it and the sink with this key are on the
/// tree.
async fn next_with(
    source: &Source,
    insider: &mut Insider,
    key: &PublicKey,
    before: Option<&Spread>,
    said: &mut u32,
) -> Spread {
    let newer = |spread: &Spread| {
        before.is_none_or(|before| spread.event.id().sequence > before.event.id().sequence)
    };
    loop {
        *said += 1;
        source.say(*said).await;
        // Until it is on the tree it is sent nothing here.
        let patience = Duration::from_millis(200);
        while let Ok((_, _, spread)) = tokio::time::timeout(patience, insider.event()).await {
            let list = spread.event.list().expect("of two sinks, it is inside");
            if newer(&spread) && place(&list.unwrap(), key).is_some() {
                return spread;
            }
        }
    }
}
