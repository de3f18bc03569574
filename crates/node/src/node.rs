//! A node: started, run, ended in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_log::{Appended, CorruptRange, Level, Options, QueueFull, Recovery, Store};
use chappe_registry::{Entity, EntityKind, LogJournal, Registry, vocabulary};
use chappe_stream::{StoreError, StreamElement, StreamLog, StreamSchema};
use chappe_transport::{Drops, FileDisk, RECEIVE_BUFFER_BYTES, ReceiveBuffer, key_file};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::catalogue::Catalogue;
use crate::config::{Config, DurabilityLevel};
use crate::data::{self, Lock, log_directory, registry_directory};
use crate::devices::{DeviceQuotas, Devices};
use crate::error::StartError;
use crate::metrics::Metrics;
use crate::notices::{NoticeKind, Notices};
use crate::shared::{App, Shared};
use crate::size_limit::SizeLimit;
use crate::{clock, http};

/// Records that a follower of the log takes at once; reason: a client of live data holds one batch.
const FOLLOW_RECORDS: usize = 256;
/// Tasks that run before the sockets are asked again; reason: with hundreds of links and sensors that
/// have something to do at once, asking every 61 costs a twentieth of the thread.
const EVENT_INTERVAL: u32 = 256;
/// Bytes that wait for the log; more is refused, and whoever brings elements waits.
const QUEUE_BYTES: usize = 4 << 20;

/// A running node. Dropping it ends it without order; see [`Node::shutdown`].
pub struct Node {
    app: App,
    token: Option<String>,
    size_limit: SizeLimit,
    drain: watch::Sender<bool>,
    tasks: JoinSet<()>,
    _lock: Lock,
}

impl Node {
    /// Starts a node: takes its data directory, opens its logs, listens, looks for devices.
    ///
    /// # Errors
    /// What keeps it from starting, with a hint.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let directory = config.data_directory.clone();
        let lock = Lock::take(&directory)?;
        data::check_secrets(&directory)?;
        let (key, _) = key_file::read_or_create(&directory.join("key.pem"))?;
        let (token, new_token) = data::token(&directory)?;
        let tls = data::tls(&config, &name(&config), &key)?;
        let listener = listen(config.http.listen).await?;
        let address = listener.local_addr().map_err(|source| StartError::Listen {
            address: config.http.listen,
            source,
        })?;
        let drops = Drops::default();
        let sockets = crate::links::bind(&config.exchange, &key.curve(), &drops).await?;
        let size_limit = SizeLimit::of(&config).map_err(|source| StartError::Directory {
            path: log_directory(&directory),
            source,
        })?;
        let pause = Duration::from_millis(u64::from(config.log.commit_pause_ms));
        let log = Options {
            retain_bytes: size_limit.bytes,
            commit_pause: pause,
            cursor_of: Some(chappe_stream::origin_cursor),
            ..log_options(&config)
        };
        let (store, recovery) = open_log(&log_directory(&directory), log)?;
        let (registry_store, registry_recovery) =
            open_log(&registry_directory(&directory), log_options(&config))?;
        let registry = open_registry(&registry_directory(&directory), &registry_store)?;
        let catalogue =
            Catalogue::open(store.clone(), level(config.log.level), &config).map_err(|error| {
                StartError::Streams {
                    path: log_directory(&directory),
                    reason: error.to_string(),
                }
            })?;
        let disk = FileDisk::open_unlocked(&directory);
        let disk = disk.map_err(|source| StartError::Directory {
            path: directory.clone(),
            source,
        })?;
        let (drain, draining) = watch::channel(false);
        let app = Arc::new(Shared {
            name: name(&config),
            key: key.public().to_string(),
            curve: key.curve(),
            started_at: clock::now(),
            address,
            tls,
            trusted_proxies: config.http.proxies().collect(),
            token,
            disk: Box::new(disk),
            store,
            registry_store,
            registry,
            catalogue,
            devices: Devices::new(&config.discovery),
            device_quotas: DeviceQuotas::new(&config, size_limit.bytes),
            device_client: std::sync::OnceLock::new(),
            tree: config.discovery.tree.then(|| Arc::new(key)),
            sensors: crate::sensors::Sensors::default(),
            exchange: std::sync::OnceLock::new(),
            kad: std::sync::OnceLock::new(),
            #[cfg(feature = "dds")]
            topics: std::sync::OnceLock::new(),
            registrations: crate::register::Registrations::default(),
            rescan: tokio::sync::Notify::new(),
            drops,
            notices: Notices::default(),
            metrics: Arc::new(Metrics::default()),
            drain: draining.clone(),
            queries: Arc::new(Semaphore::new(config.limits.queries as usize)),
            live_clients: Arc::new(Semaphore::new(config.http.max_live_clients as usize)),
            live_readers: chappe_transport::Parsers::default(),
            // The other half of the connections stays for those who ask and go.
            pulls: Arc::new(Semaphore::new(
                config.http.max_connections.div_ceil(2) as usize
            )),
            config,
        });
        tell_recovery(&app, "log", &recovery);
        tell_recovery(&app, "registry", &registry_recovery);
        tell_receive_buffer(&app);
        if size_limit.exceeded.is_some() {
            let text = size_limit.to_string();
            tracing::warn!("{text}");
            app.notices.tell(NoticeKind::Health, "log", text);
        }
        crate::register::forget(&app).await;
        publish_node(&app).await;
        crate::links::start(&app, sockets).await?;
        crate::kad::start(&app)?;
        #[cfg(feature = "dds")]
        crate::dds::start(&app)?;
        let mut tasks = JoinSet::new();
        let serving = http::Serving {
            router: http::router(app.clone()),
            tls: app.tls.clone(),
            limits: app.config.http.clone(),
            metrics: app.metrics.clone(),
            drops: app.drops.clone(),
            drain: draining,
        };
        tasks.spawn(http::serve(listener, serving));
        tasks.spawn(crate::sensors::watch(app.clone()));
        if app.config.discovery.enabled {
            tasks.spawn(crate::devices::watch(app.clone()));
        }
        tasks.spawn(crate::kad::run(app.clone()));
        if app.config.kad.publish {
            tasks.spawn(crate::kad::publish(app.clone()));
        }
        tasks.spawn(crate::health::watch(app.clone()));
        tasks.spawn(crate::scrub::watch(app.clone()));
        tasks.spawn(crate::certificate::watch(app.clone()));
        Ok(Self {
            app,
            token: new_token.map(|token| token.reveal()),
            size_limit,
            drain,
            tasks,
            _lock: lock,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.app.address
    }

    /// The address of its REST interface and its console, with the scheme.
    #[must_use]
    pub fn url(&self) -> String {
        self.app.url()
    }

    /// Its links, both ways. What is added here does not outlive a restart.
    #[must_use]
    pub fn links(&self) -> Option<&chappe_wrappers::links::Links> {
        self.app.exchange.get().map(crate::links::Exchange::links)
    }

    /// Where other nodes read here over ZeroMQ: what (sessions, publish, directory), and the address.
    #[must_use]
    pub fn listening(&self) -> Vec<(&'static str, String)> {
        let listening = self
            .app
            .exchange
            .get()
            .map(crate::links::Exchange::listening);
        let listening = listening.unwrap_or_default();
        let all = [
            ("sessions", listening.sessions),
            ("publish", listening.publish),
            ("directory", listening.directory),
        ];
        let taken = all
            .into_iter()
            .filter_map(|(what, address)| Some((what, address?)));
        taken.collect()
    }

    /// Where it takes part in the distributed hash table (UDP), if it does.
    #[must_use]
    pub fn kad_address(&self) -> Option<SocketAddr> {
        self.app
            .kad
            .get()
            .map(chappe_transport::kad::KadNode::local_addr)
    }

    /// The fingerprint of its certificate, if it speaks TLS.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.app.fingerprint()
    }

    /// The token that changing needs, if it was made at this start: to be shown once.
    #[must_use]
    pub fn new_token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The size limit of its log.
    #[must_use]
    pub fn size_limit(&self) -> SizeLimit {
        self.size_limit
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.app.name
    }

    /// Its public key, hexadecimal.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.app.key
    }

    /// Stores elements that a part of this program yields, as the stream `name`; they are
    /// acknowledged when this returns. The stream is made and registered at first.
    ///
    /// # Errors
    /// Why they cannot be stored, in words.
    pub async fn store(
        &self,
        name: &str,
        schema: &StreamSchema,
        elements: &[StreamElement],
    ) -> Result<(), StoreFailure> {
        let offered = self.offer(name, schema, elements).await?;
        offered.await.map_err(|error| failure(error.into()))
    }

    /// Like [`Self::store`], but returns when they have their numbers: what it gives back resolves
    /// when they are acknowledged. Whoever yields elements faster than a disk syncs offers the next
    /// meanwhile.
    ///
    /// # Errors
    /// Why they cannot be stored, in words.
    pub async fn offer(
        &self,
        name: &str,
        schema: &StreamSchema,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreFailure> {
        let source = format!("urn:chappe:node:{}", self.app.key);
        let key = crate::catalogue::key(name);
        let registered = self.app.registrations.of(&key) != u64::MAX;
        if registered
            && let Some(entry) = self.app.catalogue.get(name)
            && entry.log.is_as(schema, &source)
        {
            return entry.append(elements).await.map_err(failure);
        }
        let known = self.app.catalogue.get(name).map(|entry| entry.log.schema());
        let made = self.app.catalogue.create(name, schema, &source, None).await;
        let entry = made.map_err(|error| StoreFailure(error.to_string()))?;
        if !registered || known.as_ref() != Some(schema) {
            let entity = crate::devices::of_stream(name, schema, &source, None);
            crate::register::publish(&self.app, vec![entity]).await;
        }
        entry.append(elements).await.map_err(failure)
    }

    /// A stream of the node by its name, to be read and followed.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<StreamLog> {
        self.app.catalogue.get(name).map(|entry| entry.log.clone())
    }

    /// What the writer of the log has counted since the start.
    #[must_use]
    pub fn log_counters(&self) -> chappe_log::Counters {
        self.app.store.counters()
    }

    /// Ends it in order: takes no more, ends its subscriptions, drains and closes the log.
    ///
    /// # Errors
    /// When the log could not be closed; what was acknowledged is safe nevertheless.
    pub async fn shutdown(mut self) -> Result<(), chappe_log::Error> {
        self.drain.send_replace(true);
        if let Some(exchange) = self.app.exchange.get() {
            exchange.close();
        }
        #[cfg(feature = "dds")]
        if let Some(topics) = self.app.topics.get() {
            topics.close();
        }
        while self.tasks.join_next().await.is_some() {}
        let stores = [self.app.store.clone(), self.app.registry_store.clone()];
        for store in stores {
            let closed = tokio::task::spawn_blocking(move || store.close()).await;
            closed.unwrap_or(Err(chappe_log::Error::Closed))?;
        }
        Ok(())
    }
}

fn failure(error: StoreError) -> StoreFailure {
    StoreFailure(error.to_string())
}

/// Why elements were not stored, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreFailure(String);

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.app.name)
            .field("address", &self.app.address)
            .finish_non_exhaustive()
    }
}

/// Resolves when the process is asked to end: SIGTERM or SIGINT.
///
/// # Errors
/// When the system does not let signals be waited for.
pub async fn end_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// The runtime of a node: one thread that serves, few that wait for the disk.
///
/// # Errors
/// When the system gives no threads.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(8)
        .thread_stack_size(1 << 20)
        .build()
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

fn name(config: &Config) -> String {
    if !config.name.is_empty() {
        return config.name.clone();
    }
    match data::host().trim() {
        "" => "chappe".to_owned(),
        host => host.chars().take(63).collect(),
    }
}

fn level(level: DurabilityLevel) -> Level {
    match level {
        DurabilityLevel::Memory => Level::Memory,
        DurabilityLevel::Process => Level::Process,
        DurabilityLevel::Power => Level::Power,
    }
}

/// The options that the log and the registry's journal share.
fn log_options(config: &Config) -> Options {
    Options {
        segment_bytes: config.log.segment_bytes,
        queue_bytes: QUEUE_BYTES,
        queue_full: QueueFull::Refuse,
        batch_bytes: QUEUE_BYTES,
        reserve_bytes: config.log.min_free_bytes,
        follow_records: FOLLOW_RECORDS,
        ..Options::default()
    }
}

fn open_log(directory: &Path, options: Options) -> Result<(Store, Recovery), StartError> {
    let disk = FileDisk::open(directory).map_err(|source| StartError::Directory {
        path: directory.to_owned(),
        source,
    })?;
    let seed = chappe_transport::seed_number().map_err(StartError::Random)?;
    Store::open(Box::new(disk), options, seed).map_err(|source| StartError::Log {
        path: directory.to_owned(),
        source,
    })
}

fn open_registry(directory: &Path, store: &Store) -> Result<Registry, StartError> {
    let path = || directory.to_owned();
    let existing = store.streams();
    let metadata = existing.iter().find(|info| info.name == "registry");
    let metadata = metadata.map_or(&[][..], |info| &info.metadata);
    let stream = store.stream("registry", Level::Power, metadata);
    let stream = stream.map_err(|source| StartError::Log {
        path: path(),
        source,
    })?;
    let journal = LogJournal::new(stream, || clock::now().0);
    Registry::open(journal).map_err(|source| StartError::Registry {
        path: path(),
        source,
    })
}

/// Damage in words: where, and what is missing by it.
pub(crate) fn damage(range: &CorruptRange) -> String {
    /// Streams that are named; more are counted.
    const NAMED: usize = 4;
    let mut text = format!(
        "{} bytes of {} are damaged: {}",
        range.bytes, range.segment, range.what
    );
    for (stream, first, last) in range.gaps.iter().take(NAMED) {
        text.push_str(&format!("; {stream} lacks {first} to {last}"));
    }
    if range.gaps.len() > NAMED {
        text.push_str(&format!("; so do {} more", range.gaps.len() - NAMED));
    }
    text
}

/// Tells what opening a log found that somebody should know.
fn tell_recovery(app: &App, name: &str, recovery: &Recovery) {
    let tell = |text: String| app.notices.tell(NoticeKind::Health, name, text);
    if recovery.copied {
        tell("the files are a copy: every stream goes on in a new epoch".to_owned());
    }
    if let Some(tail) = &recovery.torn_tail {
        tell(format!(
            "{} bytes at the end of {} were never complete and were cut",
            tail.bytes, tail.segment
        ));
    }
    for range in recovery.corrupt.iter().filter(|range| !range.settled) {
        tell(damage(range));
    }
    for epoch in recovery.new_epochs.iter().take(20) {
        tell(format!(
            "stream {} goes on in a new epoch: {}",
            epoch.stream,
            epoch.reason.text()
        ));
    }
}

/// Says when the operating system gives sockets less than bursts and large samples need.
fn tell_receive_buffer(app: &App) {
    let buffer = ReceiveBuffer::ask(RECEIVE_BUFFER_BYTES).ok();
    if let Some((buffer, text)) = buffer.and_then(|it| Some((it, it.complaint()?))) {
        let text = format!("{text}; remedy: {}", buffer.remedy());
        tracing::warn!("{text}");
        app.notices.tell(NoticeKind::Health, "receive buffer", text);
    }
}

/// Publishes the node itself.
async fn publish_node(app: &App) {
    use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
    let key = format!("urn:chappe:node:{}", app.key);
    let mut entity = Entity::new(key.clone(), EntityKind::Node, app.name.clone());
    let address = Literal::new_simple_literal(format!("{}/", app.url()));
    let subject = NamedNode::new_unchecked(key);
    entity
        .triples
        .push(Triple::new(subject, vocabulary::ADDRESS, address));
    crate::register::publish(app, vec![entity]).await;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs a test on a node that looks for no devices, with a configuration that it changes.
    pub(crate) fn on_node(change: impl FnOnce(&mut Config), test: impl AsyncFnOnce(&App)) {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_directory: directory.path().join("data"),
            sensors_directory: directory.path().join("sensors"),
            ..Config::default()
        };
        config.http.listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        config.discovery.enabled = false;
        config.log.min_free_bytes = 0;
        change(&mut config);
        crate::runtime().unwrap().block_on(async {
            let node = Node::start(config).await.unwrap();
            test(&node.app).await;
            node.shutdown().await.unwrap();
        });
    }
}
