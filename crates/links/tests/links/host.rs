//! A node, as far as links need one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chappe_identity::{AddressPolicy, Prefix};
use chappe_links::http::KeptSubscription;
use chappe_links::*;
use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::*;
use tokio::sync::watch;

/// The time at all nodes of these tests.
pub(crate) const NOW: Timestamp = Timestamp(1_000);

/// How long something may take that has to happen; generous, since tests share a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// An address of this host that nothing else uses: a port of it that was given back is still free when
/// it is taken again.
pub(crate) fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU32 = AtomicU32::new(1);
    // Each process has 4,096 addresses from 127.1.0.0 on.
    let process = std::process::id() & 0x7FF;
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    assert!(number < 1 << 12, "this process has used all its addresses");
    Ipv4Addr::from_bits(0x7F01_0000 + (process << 12 | number))
}

/// A node with a store of its own.
pub(crate) struct Node {
    pub(crate) store: StreamStore,
    pub(crate) links: Links,
    pub(crate) host: Arc<Host>,
    pub(crate) disk: SimDisk,
}

pub(crate) struct Host {
    store: StreamStore,
    pub(crate) notices: Mutex<Vec<LinkNotice>>,
    pub(crate) drops: Mutex<Vec<String>>,
    pub(crate) contact: Mutex<Option<String>>,
    /// The subscriptions by contact point that are to be kept.
    pub(crate) kept: Mutex<Vec<KeptSubscription>>,
    /// What was lost, by stream and reason.
    pub(crate) lost: Mutex<BTreeMap<(String, LossReason), u64>>,
    /// Rises with all that a host is told.
    news: watch::Sender<u64>,
    random: Mutex<u64>,
}

/// Elements are counted by what is stored.
struct Uncounted;

impl Arrivals for Uncounted {
    fn came(&self, _: u64, _: Timestamp) {}
}

impl Node {
    pub(crate) fn new(seed: u64) -> Self {
        Self::on(SimDisk::new(seed), seed, LinksConfig::default())
    }

    pub(crate) fn on(disk: SimDisk, seed: u64, config: LinksConfig) -> Self {
        Self::with(Options::default(), disk, seed, config)
    }

    /// A node whose log has these options.
    pub(crate) fn with(options: Options, disk: SimDisk, seed: u64, config: LinksConfig) -> Self {
        let options = Options {
            cursor_of: Some(origin_cursor),
            ..options
        };
        let (store, _) = Store::open(Box::new(disk.clone()), options, seed).expect("opens");
        let store = StreamStore::new(store);
        let host = Arc::new(Host {
            store: store.clone(),
            notices: Mutex::default(),
            drops: Mutex::default(),
            contact: Mutex::default(),
            kept: Mutex::default(),
            lost: Mutex::default(),
            news: watch::Sender::new(0),
            random: Mutex::new(seed),
        });
        let links = Links::new(host.clone(), store.clone(), config, ZeromqConfig::default());
        Self {
            store,
            links,
            host,
            disk,
        }
    }

    /// A stream with elements numbered from 0 in their one value.
    pub(crate) fn stream(&self, name: &str, count: i64) -> StreamLog {
        let log = self.empty(name, &schema("v", FieldType::Integer));
        append(&log, 0..count);
        log
    }

    pub(crate) fn empty(&self, name: &str, schema: &StreamSchema) -> StreamLog {
        self.store
            .stream(name, Level::Power, schema, None)
            .expect("made")
    }

    /// Waits until the stream has `count` elements; those.
    pub(crate) async fn wait_for(&self, name: &str, count: usize) -> Vec<StreamElement> {
        let wait = async {
            self.told(|| self.store.existing(name).expect("reads").is_some())
                .await;
            let log = self.store.existing(name).expect("reads").expect("there");
            let mut follower = log.follow(log.log().last() + 1);
            loop {
                let elements = log.newest(1_000_000).expect("reads");
                if elements.len() >= count {
                    return elements;
                }
                follower.next().await.expect("reads");
            }
        };
        let found = tokio::time::timeout(PATIENCE, wait).await;
        found.unwrap_or_else(|_| {
            let log = self.store.existing(name).expect("reads");
            let have = log.map(|log| log.newest(1_000_000).expect("reads").len());
            panic!(
                "{name} has {have:?} of {count}; {:?}; {:?}; {:?}",
                self.host.notices.lock().unwrap(),
                self.host.drops.lock().unwrap(),
                self.links.list(),
            )
        })
    }

    /// Waits until something is so that the host is told of.
    pub(crate) async fn told(&self, mut is_so: impl FnMut() -> bool) {
        let mut news = self.host.news.subscribe();
        let told = async {
            while !is_so() {
                news.changed().await.expect("the host is there");
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        assert!(told.is_ok(), "{:?}; {:?}", self.notices(), self.drops());
    }

    pub(crate) fn notices(&self) -> Vec<LinkNotice> {
        self.host.notices.lock().unwrap().clone()
    }

    pub(crate) fn drops(&self) -> Vec<String> {
        self.host.drops.lock().unwrap().clone()
    }
}

impl Host {
    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }
}

impl LinkHost for Host {
    fn open(
        &self,
        link: &str,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<Opened, HostError> {
        if name.starts_with("taken") {
            return Err(HostError {
                text: format!("{name} belongs to somebody else"),
                transient: false,
            });
        }
        let level = level.unwrap_or(Level::Power);
        let log = self.store.stream(name, level, schema, Some(link));
        self.tell();
        let log = log.map_err(|error| HostError {
            text: error.to_string(),
            transient: false,
        })?;
        let arrivals = Arc::new(Uncounted);
        Ok(Opened { log, arrivals })
    }

    fn stream(&self, name: &str, _: &Reader) -> Option<StreamLog> {
        if name.starts_with("secret") {
            return None;
        }
        self.store.existing(name).expect("reads")
    }

    fn directory(&self, _: &Reader) -> Vec<DirectoryEntry> {
        let streams = self.store.streams();
        let open = streams
            .iter()
            .filter(|log| !log.name().starts_with("secret"));
        open.map(DirectoryEntry::of).collect()
    }

    fn lost(&self, _: &str, stream: &str, reason: LossReason, elements: u64, _: (Position, u64)) {
        let key = (stream.to_owned(), reason);
        *self.lost.lock().unwrap().entry(key).or_default() += elements;
        self.tell();
    }

    fn keep_subscriptions(&self, subscriptions: &[KeptSubscription]) {
        *self.kept.lock().unwrap() = subscriptions.to_vec();
        self.tell();
    }

    fn notice(&self, notice: LinkNotice) {
        self.notices.lock().unwrap().push(notice);
        self.tell();
    }

    fn dropped(&self, reason: &'static str, peer: &str, detail: String, _: Option<String>) {
        let drop = format!("{reason}: {peer}: {detail}");
        self.drops.lock().unwrap().push(drop);
        self.tell();
    }

    fn address_policy(&self) -> AddressPolicy {
        // A server at an address of its own is called from another of this host.
        let loopback: Prefix = "127.0.0.0/8".parse().expect("a prefix");
        AddressPolicy::default().allow(loopback)
    }

    fn contact_base(&self) -> Option<String> {
        self.contact.lock().unwrap().clone()
    }

    fn now(&self) -> Timestamp {
        NOW
    }

    fn random(&self) -> u64 {
        let mut random = self.random.lock().unwrap();
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *random
    }
}

/// Looks until something is so of which nobody is told.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looked = async {
        while !is_so() {
            // What is waited for needs the processor more.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looked).await;
    assert!(looked.is_ok(), "{what}: not within {PATIENCE:?}");
}

pub(crate) fn schema(name: &str, field_type: FieldType) -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: name.into(),
            field_type,
            unit: Some("Cel".into()),
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

pub(crate) fn element(value: Value) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(7),
        receive_time: Timestamp(9),
        key: Some("bed 1".into()),
        values: vec![value],
        quality: Quality::Questionable,
        origin: None,
    }
}

pub(crate) fn append(log: &StreamLog, range: std::ops::Range<i64>) {
    let elements: Vec<_> = range.map(|n| element(Value::Integer(n))).collect();
    if !elements.is_empty() {
        let appended = log.append(&elements).expect("queued");
        appended.wait().expect("stored");
    }
}

/// A text that is found in a file.
pub(crate) fn text(number: i64) -> String {
    format!("a {number:06} {}", "x".repeat(40))
}

/// Texts, each in a batch of its own: what is damaged takes one with it.
pub(crate) fn append_texts(log: &StreamLog, range: std::ops::Range<i64>) {
    for number in range {
        let appended = log.append(&[element(Value::Text(text(number)))]);
        appended.expect("queued").wait().expect("stored");
    }
}

pub(crate) fn link(kind: LinkKind, address: String, streams: &[&str]) -> LinkConfig {
    let mut config: LinkConfig = serde_json::from_value(serde_json::json!({
        "name": "test",
        "kind": kind.as_str(),
        "address": address,
        "streams": streams,
    }))
    .expect("a link");
    config.limits.directory_s = 1;
    config
}

/// All elements of the origin are here, once, in order, each with its origin, and received by this node's
/// clock.
pub(crate) fn assert_same(origin: &StreamLog, copy: &[StreamElement]) {
    let sent = origin.newest(1_000_000).expect("reads");
    let positions = |element: &StreamElement| Some(element.position);
    let expected: Vec<_> = sent.iter().map(positions).collect();
    let found: Vec<_> = copy.iter().map(|element| element.origin).collect();
    assert_eq!(found, expected);
    for (sent, copy) in sent.iter().zip(copy) {
        let (position, origin) = (copy.position, copy.origin);
        let expected = StreamElement {
            position,
            origin,
            receive_time: NOW,
            ..sent.clone()
        };
        assert_eq!(copy, &expected);
    }
}
