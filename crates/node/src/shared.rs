//! What all parts of a running node share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use chappe_device::DeviceClient;
use chappe_identity::{CurveSecret, Key, Prefix, TokenHash};
use chappe_log::{Disk, Health, Store};
use chappe_registry::Registry;
use chappe_stream::Timestamp;
use chappe_transport::{Drops, Hop, Parsers, tls};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::devices::{DeviceQuotas, Devices};
use crate::http::Problem;
use crate::links::Exchange;
use crate::metrics::{DropLabels, LostLabels, Metrics, StateLabel, StreamLabel};
use crate::notices::Notices;
use crate::register::Registrations;
use crate::sensors::Sensors;

/// A running node, as its parts see it.
pub(crate) type App = Arc<Shared>;

/// What all parts of a running node share.
pub(crate) struct Shared {
    /// Its configuration.
    pub(crate) config: Config,
    /// Its name.
    pub(crate) name: String,
    /// Its public key, hexadecimal.
    pub(crate) key: String,
    /// Its CURVE key.
    pub(crate) curve: CurveSecret,
    /// When it was started.
    pub(crate) started_at: Timestamp,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// TLS of its HTTP, if it is spoken.
    pub(crate) tls: Option<tls::Server>,
    /// The proxies whose word on their clients counts.
    pub(crate) trusted_proxies: Vec<Prefix>,
    /// What recognizes its token.
    pub(crate) token: TokenHash,
    /// The disk of its log, for its free space.
    pub(crate) disk: Box<dyn Disk>,
    /// The log.
    pub(crate) store: Store,
    /// The log of the registry.
    pub(crate) registry_store: Store,
    /// The registry.
    pub(crate) registry: Registry,
    /// The streams.
    pub(crate) catalogue: Catalogue,
    /// The devices.
    pub(crate) devices: Devices,
    /// What devices may bring.
    pub(crate) device_quotas: DeviceQuotas,
    /// The client of devices, once it is started.
    pub(crate) device_client: OnceLock<Weak<DeviceClient>>,
    /// This node's key, when it takes events by notification trees.
    pub(crate) tree: Option<Arc<Key>>,
    /// The virtual sensors.
    pub(crate) sensors: Sensors,
    /// The links to and from other nodes, once they are started.
    pub(crate) exchange: OnceLock<Exchange>,
    /// The node of the distributed hash table, if there is one.
    pub(crate) kad: OnceLock<chappe_transport::kad::KadNode>,
    /// The DDS topics, once they are started, if there are any.
    #[cfg(feature = "dds")]
    pub(crate) topics: OnceLock<chappe_wrappers::dds::Topics>,
    /// When each entity was registered.
    pub(crate) registrations: Registrations,
    /// Asks that the sensors' directory be looked at now.
    pub(crate) rescan: Notify,
    /// What was dropped.
    pub(crate) drops: Drops,
    /// What happened.
    pub(crate) notices: Notices,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Becomes true when the node ends.
    pub(crate) drain: watch::Receiver<bool>,
    /// Room for queries.
    pub(crate) queries: Arc<Semaphore>,
    /// Room for clients of live data.
    pub(crate) live_clients: Arc<Semaphore>,
    /// The threads on which large events of live data are read and written.
    pub(crate) live_readers: Parsers,
    /// Places for endless answers to other nodes.
    pub(crate) pulls: Arc<Semaphore>,
}

impl Shared {
    /// The address of its REST interface and its console, with the scheme.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The fingerprint of its certificate, if it speaks TLS.
    pub(crate) fn fingerprint(&self) -> Option<String> {
        let tls = self.tls.as_ref();
        tls.map(|tls| tls.fingerprint().to_string())
    }

    /// The links to and from other nodes.
    pub(crate) fn exchange(&self) -> Result<&Exchange, Problem> {
        let exchange = self.exchange.get();
        exchange.ok_or_else(|| Problem::unavailable("the node is starting its links"))
    }

    /// Bytes that can still be written under the data directory.
    pub(crate) fn disk_free_bytes(&self) -> u64 {
        self.disk.free_bytes().unwrap_or(0)
    }

    /// Notes what was dropped at the HTTP face.
    pub(crate) fn count_drop(
        &self,
        reason: &'static str,
        peer: &str,
        detail: &str,
        hint: Option<String>,
    ) {
        self.drops
            .record(Hop::Http, reason, peer, detail.to_owned(), hint);
    }

    /// Room for one more query.
    pub(crate) fn query_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.queries.clone().try_acquire_owned().map_err(|_| {
            Problem::unavailable("as many queries as allowed are running")
                .hint("try again in a moment; the limit is limits.queries")
        })
    }

    /// Why the node takes no data; empty when it does.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for (name, store) in [("log", &self.store), ("registry", &self.registry_store)] {
            match store.health() {
                Health::Ok => {}
                Health::Full => reasons.push(format!("{name}: the disk is full")),
                Health::Failed(reason) => reasons.push(format!("{name}: {reason}")),
            }
        }
        if *self.drain.borrow() {
            reasons.push("the node ends".to_owned());
        }
        reasons
    }

    /// Brings up to date what is measured rather than counted.
    pub(crate) fn measure(&self) {
        let metrics = &self.metrics;
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        metrics.disk_free.set(gauge(self.disk_free_bytes()));
        metrics.resident.set(gauge(resident_bytes()));
        metrics.start_time.set(self.started_at.0 as f64 / 1e9);
        let healthy = self.store.health() == Health::Ok;
        metrics.log_healthy.set(i64::from(healthy));
        let counters = self.store.counters();
        metrics.log_bytes.inner().store(counters.bytes, RELAXED);
        metrics.log_records.inner().store(counters.records, RELAXED);
        metrics.log_syncs.inner().store(counters.syncs, RELAXED);
        for (state, count) in self.devices.counts() {
            let label = StateLabel { state };
            metrics.devices.get_or_create(&label).set(count);
        }
        let client = self.device_client.get().and_then(Weak::upgrade);
        if let Some(counts) = client.map(|client| client.tree_counts()) {
            metrics.measure_tree(counts);
        }
        for (state, count) in self.sensors.counts() {
            let label = StateLabel { state };
            metrics.sensors.get_or_create(&label).set(count);
        }
        for (hop, reason, count) in self.drops.totals() {
            let label = DropLabels {
                hop: hop.as_str(),
                reason,
            };
            let counter = metrics.dropped.get_or_create(&label);
            counter.inner().store(count, RELAXED);
        }
        let scrubbed = counters.scrubbed_bytes + self.registry_store.counters().scrubbed_bytes;
        metrics.scrubbed.inner().store(scrubbed, RELAXED);
        self.measure_streams();
        if let Some(exchange) = self.exchange.get() {
            exchange.measure(&self.metrics, &self.config.limits);
        }
        crate::kad::measure(self);
        #[cfg(feature = "dds")]
        if let Some(topics) = self.topics.get() {
            crate::dds::measure(topics, &self.metrics.topics);
        }
    }

    /// What the node has lost of what it stored, in words; empty when nothing.
    pub(crate) fn damage(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (name, store) in [("log", &self.store), ("registry", &self.registry_store)] {
            let lost = store.lost();
            let missing = lost.iter().filter(|it| it.missing > 0);
            let records: u64 = missing.clone().map(|it| it.missing).sum();
            if records > 0 {
                let streams = missing.count();
                said.push(format!(
                    "{name}: {records} records of {streams} streams are damaged"
                ));
            }
        }
        said
    }

    fn measure_streams(&self) {
        let entries = self.catalogue.entries();
        let streams = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        self.metrics.streams.set(streams);
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for entry in entries {
            let label = self.metrics.stream_label(&entry.name, &self.config.limits);
            *counts.entry(label).or_default() += entry.log.log().last();
        }
        for (stream, count) in counts {
            let counter = self.metrics.elements.get_or_create(&StreamLabel { stream });
            counter.inner().store(count, RELAXED);
        }
        self.measure_losses();
    }

    /// What the log itself has lost: damaged, or removed by the limit of its size.
    fn measure_losses(&self) {
        let mut lost: BTreeMap<(String, &str), u64> = BTreeMap::new();
        let mut restored: BTreeMap<String, u64> = BTreeMap::new();
        let mut missing: BTreeMap<String, i64> = BTreeMap::new();
        for one in self.store.lost() {
            let stream = self.metrics.stream_label(&one.stream, &self.config.limits);
            for (reason, count) in [("damaged", one.corrupt), ("size_limit", one.size_limit)] {
                if count > 0 {
                    *lost.entry((stream.clone(), reason)).or_default() += count;
                }
            }
            let missing = missing.entry(stream.clone()).or_default();
            *missing = missing.saturating_add_unsigned(one.missing);
            if one.filled > 0 {
                *restored.entry(stream).or_default() += one.filled;
            }
        }
        for ((stream, reason), count) in lost {
            let counter = self
                .metrics
                .lost
                .get_or_create(&LostLabels { stream, reason });
            counter.inner().store(count, RELAXED);
        }
        for (stream, count) in missing {
            let gauge = self.metrics.missing.get_or_create(&StreamLabel { stream });
            gauge.set(count);
        }
        for (stream, count) in restored {
            let counter = self.metrics.restored.get_or_create(&StreamLabel { stream });
            counter.inner().store(count, RELAXED);
        }
    }
}

/// Waits until the node ends.
pub(crate) async fn ended(drain: &mut watch::Receiver<bool>) {
    // An error says that the node itself is gone.
    let _ = drain.wait_for(|drain| *drain).await;
}

/// Steps of a long loop after which other tasks of the node get their turn; reason: a step takes
/// microseconds, and an answer should not wait for thousands of them.
const TURN: usize = 32;

/// Lets other tasks run now and then, in step `index` of a long loop.
pub(crate) async fn take_turns(index: usize) {
    if index % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Resident memory of this process; 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
