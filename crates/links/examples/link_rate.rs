//! What reliable links cost: 24 streams of 100 elements a second from one store to another, over 24
//! sessions of ZeroMQ on loopback, stored at level `power`; then a backlog as fast as it goes.
//!
//! That is what one node of the exchange experiment sends and receives. Usage:
//! `link_rate [SECONDS] [LINGER_MS] [BACKLOG] [DIRECTORY]`; without a directory the stores are in
//! memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chappe_identity::AddressPolicy;
use chappe_links::*;
use chappe_log::{Disk, Level, MemoryDisk, Options, Store};
use chappe_stream::*;
use chappe_transport::zeromq::{Limits, Router, Security};
use chappe_transport::{Drops, FileDisk};

const STREAMS: usize = 24;

struct Host {
    store: StreamStore,
    latencies_ns: Arc<Latencies>,
    random: AtomicU64,
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(since.as_nanos() as i64)
}

#[derive(Default)]
struct Latencies(Mutex<Vec<u64>>);

impl Arrivals for Latencies {
    fn came(&self, _: u64, newest: Timestamp) {
        let late = now().0.saturating_sub(newest.0).unsigned_abs();
        self.0.lock().expect("whole").push(late);
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
        let level = level.unwrap_or(Level::Power);
        let made = self.store.stream(name, level, schema, Some(link));
        let log = made.map_err(|error| HostError {
            text: error.to_string(),
            transient: false,
        })?;
        let arrivals = self.latencies_ns.clone();
        Ok(Opened { log, arrivals })
    }
    fn stream(&self, name: &str, _: &Reader) -> Option<StreamLog> {
        self.store.existing(name).ok().flatten()
    }
    fn directory(&self, _: &Reader) -> Vec<DirectoryEntry> {
        Vec::new()
    }
    fn lost(&self, _: &str, _: &str, _: LossReason, _: u64, _: (Position, u64)) {}
    fn notice(&self, notice: LinkNotice) {
        if !matches!(notice, LinkNotice::Connected { .. }) {
            println!("{notice}");
        }
    }
    fn dropped(&self, reason: &'static str, peer: &str, detail: String, _: Option<String>) {
        println!("{reason}: {peer}: {detail}");
    }
    fn address_policy(&self) -> AddressPolicy {
        AddressPolicy::default()
    }
    fn now(&self) -> Timestamp {
        now()
    }
    fn random(&self) -> u64 {
        self.random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }
}

fn node(path: Option<&Path>, seed: u64, config: LinksConfig) -> (Links, Arc<Host>) {
    let disk: Box<dyn Disk> = match path {
        Some(path) => {
            let path = path.join(seed.to_string());
            std::fs::create_dir_all(&path).expect("a directory");
            Box::new(FileDisk::open(&path).expect("opens"))
        }
        None => Box::new(MemoryDisk::new()),
    };
    let options = Options {
        cursor_of: Some(chappe_stream::origin_cursor),
        ..Options::default()
    };
    let (store, _) = Store::open(disk, options, seed).expect("opens");
    let store = StreamStore::new(store);
    let host = Arc::new(Host {
        store: store.clone(),
        latencies_ns: Arc::default(),
        random: AtomicU64::new(seed),
    });
    let links = Links::new(host.clone(), store, config, ZeromqConfig::default());
    (links, host)
}

fn element(n: u64) -> StreamElement {
    let time = now();
    StreamElement {
        position: Position::default(),
        source_time: time,
        receive_time: time,
        key: None,
        values: vec![
            Value::Double(n as f64),
            Value::Double(0.5),
            Value::Double(-1e9),
        ],
        quality: Quality::Good,
        origin: None,
    }
}

/// Seconds of processor that this process has used.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |index: usize| fields.get(index).and_then(|it| it.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

fn stored(host: &Host) -> u64 {
    (0..STREAMS)
        .filter_map(|n| host.store.existing(&format!("s{n}")).ok().flatten())
        .map(|log| log.log().last())
        .sum()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .and_then(|it| it.parse().ok())
            .unwrap_or(default)
    };
    let (seconds, linger, backlog) = (number(0, 10), number(1, 5), number(2, 20_000));
    let path = arguments.get(3).map(Path::new);
    let config = LinksConfig {
        linger: Duration::from_millis(linger),
        ..LinksConfig::default()
    };
    let (origin, from) = node(path, 1, config.clone());
    let (subscriber, to) = node(path, 2, config);
    let field = |name: &str| Field {
        name: name.into(),
        field_type: FieldType::Double,
        unit: None,
        observed_property: None,
        description: None,
    };
    let schema = StreamSchema {
        fields: ["a", "b", "c"].map(field).into(),
        key: None,
    };
    let logs: Vec<StreamLog> = (0..STREAMS)
        .map(|n| {
            from.store
                .stream(&format!("s{n}"), Level::Power, &schema, None)
                .expect("made")
        })
        .collect();
    let router = Router::bind(
        "tcp://127.0.0.1:0",
        Security::Null,
        Limits::default(),
        Drops::default(),
    );
    let router = router.await.expect("bound");
    let address = router.local_endpoint().to_string();
    let serving = origin.clone();
    tokio::spawn(async move { serving.serve_zeromq(router).await });
    let add = |n: usize| {
        let link = serde_json::json!({
            "name": format!("l{n}"), "kind": "zeromq", "address": address,
            "streams": [format!("s{n}")],
        });
        subscriber
            .add(serde_json::from_value(link).expect("a link"))
            .expect("added");
    };
    (0..STREAMS).for_each(add);
    let live = STREAMS as u64 * seconds * 100;
    let (begin, cpu) = (Instant::now(), cpu_s());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    for n in 0..seconds * 100 {
        tick.tick().await;
        for log in &logs {
            drop(log.append(&[element(n)]).expect("queued"));
        }
    }
    while stored(&to) < live {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (wall, used) = (begin.elapsed().as_secs_f64(), cpu_s() - cpu);
    let mut latencies = std::mem::take(&mut *to.latencies_ns.0.lock().expect("whole"));
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    println!(
        "live: {live} elements in {wall:.2} s, {used:.2} s of processor, {:.1} us an element, {} \
         batches; arrival of a batch's newest p50 {:.2} ms, p99 {:.2} ms",
        used * 1e6 / live as f64,
        latencies.len(),
        at(0.5),
        at(0.99),
    );
    (0..STREAMS).for_each(|n| subscriber.remove(&format!("l{n}")).expect("there"));
    for log in &logs {
        for chunk in 0..backlog / 1_000 {
            let elements: Vec<_> = (0..1_000).map(|n| element(chunk * 1_000 + n)).collect();
            log.append(&elements)
                .expect("queued")
                .await
                .expect("stored");
        }
    }
    let more = STREAMS as u64 * (backlog / 1_000) * 1_000;
    let (begin, cpu) = (Instant::now(), cpu_s());
    (0..STREAMS).for_each(add);
    while stored(&to) < live + more {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (wall, used) = (begin.elapsed().as_secs_f64(), cpu_s() - cpu);
    println!(
        "backlog: {more} elements in {wall:.2} s ({:.0} a second), {used:.2} s of processor, {:.2} us \
         an element, both ends",
        more as f64 / wall,
        used * 1e6 / more as f64,
    );
}
