//! Goal: a stream published to a topic with `acknowledge = "stored"` is in the log of the node that subscribes to it,
//! each element once and in order, even if either side ends at any point and restarts; delivered elements are not
//! published again.
//! Method: topics of two nodes in one process, with logs in memory, on loopback; each side is dropped and restarted
//! on the same log while elements flow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use chappe_dds::topics::{DdsConfig, Topics, TopicsHost, TopicsStatus};
use chappe_log::{Level, MemoryDisk, Options, Store};
use chappe_stream::{
    Field, FieldType, StreamElement, StreamLog, StreamSchema, StreamStore, Timestamp, Value,
    origin_cursor,
};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(240);

/// A node with only a log.
struct Node {
    store: StreamStore,
    key: &'static str,
    messages: Mutex<Vec<String>>,
    /// The streams opened by topics.
    opened: watch::Sender<BTreeSet<String>>,
    /// The threads that opened them.
    openers: Mutex<Vec<ThreadId>>,
}

impl Node {
    fn new(key: &'static str) -> Arc<Self> {
        let disk = Box::new(MemoryDisk::new());
        let options = Options {
            cursor_of: Some(origin_cursor),
            ..Options::default()
        };
        let (store, _) = Store::open(disk, options, 1).unwrap();
        Arc::new(Self {
            store: StreamStore::new(store),
            key,
            messages: Mutex::default(),
            opened: watch::Sender::default(),
            openers: Mutex::default(),
        })
    }

    fn start(self: &Arc<Self>, config: &str) -> Topics {
        // Below 101 its ports are below the ephemeral range.
        let domain = 1 + std::process::id().wrapping_mul(7) % 100;
        let config = config.replace(TOPIC, &topic());
        let config = format!("domain = {domain}\n{config}");
        let config: DdsConfig = toml::from_str(&config).unwrap();
        Topics::start(&config, self.clone(), self.store.clone()).unwrap()
    }
}

impl TopicsHost for Node {
    fn open(
        &self,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<StreamLog, String> {
        self.openers.lock().unwrap().push(thread::current().id());
        let level = level.unwrap_or(Level::Power);
        let log = self.store.stream(name, level, schema, None);
        let log = log.map_err(|error| error.to_string())?;
        self.opened.send_modify(|names| {
            names.insert(name.to_owned());
        });
        Ok(log)
    }
    fn stream(&self, name: &str) -> Option<StreamLog> {
        let mut all = self.store.streams().into_iter();
        all.find(|log| log.has_name(|known| known == name))
    }
    fn received(&self, _: &str, _: u64, _: Timestamp) {}
    fn notice(&self, text: String) {
        self.messages.lock().unwrap().push(text);
    }
    fn dropped(&self, reason: &'static str, _: &str, detail: String) {
        self.messages
            .lock()
            .unwrap()
            .push(format!("{reason}: {detail}"));
    }
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }
    fn key(&self) -> String {
        self.key.to_owned()
    }
}

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "value".into(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(value: i64) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(value),
        receive_time: Timestamp(0),
        key: None,
        values: vec![Value::Integer(value)],
        quality: Default::default(),
        origin: None,
    }
}

/// The topic in the configurations below.
const TOPIC: &str = "chappe/test/ab";
const PUBLISH: &str = "[[publish]]\nstream = \"a.b\"\ntopic = \"chappe/test/ab\"\nstart = \"first\"\n\
                       stalled_after_s = 1\n";
const SUBSCRIBE: &str = "[[subscribe]]\ntopic = \"chappe/test/ab\"\nstream = \"c.d\"\nsource = \"a.b\"\n\
                         fields = [{ name = \"value\", type = \"integer\" }]\n";

/// The topic of this process: other processes may be in its domain.
fn topic() -> String {
    format!("{TOPIC}/{}", std::process::id())
}

/// Waits for `what` within the time limit; `so_far` describes the state after a timeout.
async fn within<T>(what: impl Future<Output = T>, so_far: impl FnOnce() -> String) -> T {
    match tokio::time::timeout(PATIENCE, what).await {
        Ok(came) => came,
        Err(_) => panic!("{}", so_far()),
    }
}

/// Waits until the reader has stored this many elements.
async fn stored(node: &Node, count: u64, status: impl Fn() -> TopicsStatus) {
    let so_far = || {
        let last = node.stream("c.d").map_or(0, |log| log.log().last());
        format!("{last} of {count}, {:?}", status())
    };
    let all = async {
        let mut opened = node.opened.subscribe();
        opened
            .wait_for(|names| names.contains("c.d"))
            .await
            .unwrap();
        let log = node.stream("c.d").unwrap();
        let mut follower = log.follow(0);
        while log.log().last() < count {
            follower.next().await.unwrap();
        }
    };
    within(all, so_far).await;
}

/// Waits until the stored cursor of a topic has this value.
async fn kept(node: &Node, topic: &str, delivered: u64, status: impl Fn() -> TopicsStatus) {
    let cursor = node.store.store();
    let name = format!("dds-cursor/a.b/{topic}");
    let cursor = cursor.stream(&name, Level::Power, &[1]);
    let mut follower = cursor.unwrap().follow(0);
    let said = async {
        loop {
            let records = match follower.next().await {
                Ok(records) => records,
                // Older records are trimmed.
                Err(chappe_log::Error::Gap { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let wanted = delivered.to_le_bytes();
            if records.iter().any(|one| one.payload.ends_with(&wanted)) {
                return;
            }
        }
    };
    within(said, || format!("{:?}", status())).await;
}

#[tokio::test]
async fn published_elements_are_stored_once_over_restarts_of_both_sides() {
    let (source, sink) = (Node::new("aa"), Node::new("bb"));
    let log = source
        .store
        .stream("a.b", Level::Power, &schema(), None)
        .unwrap();
    let append = async |values: std::ops::Range<i64>| {
        let elements: Vec<_> = values.map(element).collect();
        log.append(&elements).unwrap().await.unwrap();
    };
    append(0..100).await;
    let publishing = source.start(PUBLISH);
    let reading = sink.start(SUBSCRIBE);
    stored(&sink, 100, || publishing.status()).await;
    // The reader ends while elements flow; those in its library are published again.
    append(100..600).await;
    stored(&sink, 101, || publishing.status()).await;
    drop(reading);
    append(600..700).await;
    let reading = sink.start(SUBSCRIBE);
    stored(&sink, 700, || publishing.status()).await;
    // The writer ends; its delivered elements are not published again.
    kept(&source, &topic(), 700, || publishing.status()).await;
    drop(publishing);
    append(700..800).await;
    let publishing = source.start(PUBLISH);
    stored(&sink, 800, || publishing.status()).await;
    let all = sink.stream("c.d").unwrap().read(0, 10_000).unwrap();
    let values: Vec<_> = all
        .iter()
        .map(|element| element.values[0].clone())
        .collect();
    let wanted: Vec<_> = (0..800).map(Value::Integer).collect();
    assert_eq!(values, wanted);
    let origins = all.iter().map(|element| element.origin.unwrap().sequence);
    assert!(origins.eq(1..=800));
    assert_eq!(reading.status().subscriptions[0].malformed, 0);
    let sent = publishing.status().participant.writers;
    let sent = sent.iter().find(|writer| writer.end.topic == topic());
    assert!(sent.unwrap().sent < 800, "{sent:?}");
    assert!(reading.status().participant.readers[0].lost == 0);
}

/// A topic has one type: from elements of another schema the values with a field are published, and the others are
/// counted.
#[tokio::test]
async fn values_of_an_older_schema_that_a_topic_lacks_are_counted() {
    let (source, sink) = (Node::new("aa"), Node::new("bb"));
    let mut older = schema();
    older.fields[0].name = "older".to_owned();
    let log = source
        .store
        .stream("a.b", Level::Power, &older, None)
        .unwrap();
    for (of, values) in [(older, 0..3), (schema(), 3..5)] {
        log.set_schema(&of).unwrap();
        let elements: Vec<_> = values.map(element).collect();
        log.append(&elements).unwrap().await.unwrap();
    }
    let topic = format!("{TOPIC}/schemas");
    let publishing = source.start(&PUBLISH.replace(TOPIC, &topic));
    let _reading = sink.start(&SUBSCRIBE.replace(TOPIC, &topic));
    stored(&sink, 5, || publishing.status()).await;
    let all = sink.stream("c.d").unwrap().read(0, 10).unwrap();
    let values: Vec<_> = all.into_iter().map(|it| it.values).collect();
    let null = || vec![Value::Null];
    let of = |value| vec![Value::Integer(value)];
    assert_eq!(values, [null(), null(), null(), of(3), of(4)]);
    let dropped = source.messages.lock().unwrap().clone();
    let counted = dropped
        .iter()
        .filter(|it| it.starts_with("values not published"));
    assert_eq!(counted.count(), 3, "{dropped:?}");
}

/// A topic carries the name of its configuration, and the cursor is the stream's, whatever its name.
#[tokio::test]
async fn a_renamed_stream_goes_on_where_it_was_by_either_name() {
    let (source, sink) = (Node::new("aa"), Node::new("bb"));
    let log = source
        .store
        .stream("a.b", Level::Power, &schema(), None)
        .unwrap();
    let append = async |values: std::ops::Range<i64>| {
        let elements: Vec<_> = values.map(element).collect();
        log.append(&elements).unwrap().await.unwrap();
    };
    append(0..100).await;
    let own = |config: &str| config.replace(TOPIC, &format!("{TOPIC}/renamed"));
    let topic = format!("{}/renamed", topic());
    let publishing = source.start(&own(PUBLISH));
    let reading = sink.start(&own(SUBSCRIBE));
    stored(&sink, 100, || publishing.status()).await;
    log.rename("x.y").unwrap();
    append(100..200).await;
    stored(&sink, 200, || publishing.status()).await;
    kept(&source, &topic, 200, || publishing.status()).await;
    drop((publishing, reading));
    append(200..300).await;
    let renamed = |config: &str| own(config).replace("\"a.b\"", "\"x.y\"");
    let publishing = source.start(&renamed(PUBLISH));
    let _reading = sink.start(&renamed(SUBSCRIBE));
    stored(&sink, 300, || publishing.status()).await;
    kept(&source, &topic, 300, || publishing.status()).await;
    let all = sink.stream("c.d").unwrap().read(0, 10_000).unwrap();
    let values = all.iter().map(|element| element.values[0].clone());
    assert!(values.eq((0..300).map(Value::Integer)));
    let sent = publishing.status().participant.writers;
    let sent = sent.iter().find(|writer| writer.end.topic == topic);
    assert!(sent.unwrap().sent < 300, "{sent:?}");
}

/// Opening a stream may wait for the disk, so it must not block a thread of the runtime.
#[tokio::test]
async fn a_stream_is_opened_on_a_thread_that_may_wait() {
    let node = Node::new("aa");
    let topic = format!("{TOPIC}/opened");
    let reading = node.start(&SUBSCRIBE.replace(TOPIC, &topic));
    let mut opened = node.opened.subscribe();
    let there = opened.wait_for(|names| names.contains("c.d"));
    within(there, || format!("{:?}", reading.status()))
        .await
        .unwrap();
    let openers = node.openers.lock().unwrap().clone();
    assert!(!openers.contains(&thread::current().id()));
}

#[test]
fn invalid_topics_are_refused() {
    let config = |text: &str| toml::from_str::<DdsConfig>(text).unwrap().check();
    assert!(config(PUBLISH).is_ok() && config(SUBSCRIBE).is_ok());
    let bad = SUBSCRIBE.replace("value", "Value");
    assert!(config(&bad).unwrap_err().to_string().starts_with("fields"));
    let bad = PUBLISH.replace("chappe/test/ab", "a b");
    assert!(config(&bad).unwrap_err().to_string().contains("topic"));
    assert!(config("domain = 300").is_err());
    assert!(config("interfaces = []").is_err());
    assert!(config("interfaces = [\"::1\"]").is_err());
}
