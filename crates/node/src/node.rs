//! A node: start, run, orderly shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use chappe_log::Appended;
use chappe_registry::{Attempts, Entity, EntityKind, vocabulary};
use chappe_stream::{StoreError, StreamElement, StreamLog, StreamSchema};
use chappe_transport::{Drops, RECEIVE_BUFFER_BYTES, ReceiveBuffer, key_file};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::catalogue::{self, Catalogue};
use crate::checkers::Checkers;
use crate::completeness::Ledger;
use crate::config::Config;
use crate::data::{self, Lock, log_directory};
use crate::devices::Devices;
use crate::error::StartError;
use crate::formats::check_formats;
use crate::http;
use crate::identity::{self, Identity};
use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::permits::Permits;
use crate::registrar::{NODE_OWNER, Registrar};
use crate::sensors::Sensors;
use crate::shared::{App, Shared};
use crate::signatures;
use crate::size_limit::SizeLimit;
use crate::storage::{Storage, open_registry};
use crate::streams::StreamSpec;
use crate::subscriptions::sources::Events;
use crate::subscriptions::stored::MailSubscriptions;
use crate::things::Things;
use crate::wrappers::{Exporters, Wrappers};
use crate::written::{self, Producers};

/// Tasks to run between two polls of the sockets; reason: with hundreds of busy links and sensors,
/// polling after every 61 tasks costs a twentieth of the thread.
const EVENT_INTERVAL: u32 = 256;

/// A running node. Dropping it aborts it; for an orderly end see [`Node::shutdown`].
pub struct Node {
    app: App,
    token: Option<String>,
    size_limit: SizeLimit,
    drain: watch::Sender<bool>,
    tasks: JoinSet<()>,
    http: AbortHandle,
    _lock: Lock,
}

impl Node {
    /// Starts a node: locks its data directory, opens its logs, listens, searches for devices.
    ///
    /// # Errors
    /// The reason why it cannot start, with a hint.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let directory = config.data_directory.clone();
        let lock = Lock::acquire(&directory)?;
        data::check_secrets(&directory)?;
        check_formats(&directory)?;
        let (key, _) = key_file::read_or_create(&directory.join("key.pem"))?;
        let (token, new_token) = data::read_or_create_token(&directory)?;
        let (accounts, owners) = data::accounts(&directory, token)?;
        let tls = data::tls(&config, &identity::name(&config), &key)?;
        let device_tls = data::device_tls(&config, &identity::name(&config), &key)?;
        let listener = listen(config.http.listen).await?;
        let address = listener.local_addr().map_err(|source| StartError::Listen {
            address: config.http.listen,
            source,
        })?;
        let drops = Drops::default();
        let sockets = crate::links::bind(&config.exchange, &key.curve(), &drops).await?;
        let ontologies = crate::ontologies::read(&config.registry.ontologies_directory)
            .map_err(|reason| StartError::Ontologies { reason })?;
        let value_sets = |reason| StartError::Taxonomies { reason };
        let taxonomies = http::taxonomies(&config.registry.taxonomies_directory);
        let taxonomies = taxonomies.map_err(value_sets)?;
        let checkers = Checkers::new(&config, &taxonomies).map_err(value_sets)?;
        let size_limit = SizeLimit::of(&config).map_err(|source| StartError::Directory {
            path: log_directory(&directory),
            source,
        })?;
        let (storage, recoveries) = Storage::open(&config, size_limit)?;
        let (registry, registry_outage) = open_registry(&config, &storage.registry_log)?;
        let catalogue =
            Catalogue::open(storage.log.clone(), config.log.level, &config).map_err(|source| {
                StartError::Streams {
                    path: log_directory(&directory),
                    source,
                }
            })?;
        let (drain, draining) = watch::channel(false);
        let ledger = Ledger::open(&directory, &storage.log, recoveries.of_streams());
        if let Some(state) = ledger.run_state() {
            catalogue.set_run_state(state.clone());
        }
        let ledger = Arc::new(ledger);
        let observability = Observability::new(drops, config.limits.clone(), ledger.clone());
        let observability = Arc::new(observability);
        let registrar = Registrar::new(
            registry.clone(),
            config.registry.max_bytes as usize,
            Registrar::owner_of(config.registry.store, key.public()),
            owners.clone(),
            catalogue.names().clone(),
            observability.clone(),
            draining.clone(),
        );
        let shares = data::shares(&config, size_limit.bytes, &storage.log)?;
        shares.start(&accounts, &catalogue);
        let identity = Identity::new(&config, key, address, tls, device_tls.security());
        #[cfg(feature = "dds")]
        let topics = crate::dds::topics(&config, &identity.public_key, &observability)?;
        let app = Arc::new(Shared {
            identity,
            trusted_proxies: config.http.proxies().collect(),
            accounts,
            shares,
            owners,
            permits: Permits::new(&config),
            devices: Devices::open(&config, size_limit.bytes)
                .map_err(|reason| StartError::Devices { reason })?
                .recorded_in(ledger.clone()),
            producers: Producers::default(),
            defining: tokio::sync::Mutex::default(),
            sensors: Sensors::default(),
            wrappers: Wrappers::default(),
            exporters: Exporters::default(),
            exchange: OnceLock::new(),
            kad: OnceLock::new(),
            discovery_proxy: OnceLock::new(),
            #[cfg(feature = "dds")]
            topics,
            drain: draining.clone(),
            storage,
            taxonomies,
            checkers,
            signatures: signatures::open(&config)?,
            registry,
            registry_outage,
            registrar,
            things: Things::default(),
            events: Events::new(&config.data_directory),
            mail: MailSubscriptions::new(&config.data_directory),
            catalogue,
            observability,
            config,
        });
        recoveries.notify(&app.observability.notices);
        notify_receive_buffer(&app);
        if size_limit.exceeded.is_some() {
            let text = size_limit.to_string();
            tracing::warn!("{text}");
            app.observability
                .notices
                .notify(NoticeKind::Health, "log", text);
        }
        // The registry alone knows the owners and titles of streams that clients write.
        let is_written = |key: &str| {
            let entry = catalogue::stream_name(key).and_then(|name| app.catalogue.get(name));
            entry.is_some_and(|entry| entry.source() == written::SOURCE)
        };
        app.registrar.remove_stale(is_written).await;
        publish_node(&app).await;
        publish_canonical_tmodels(&app).await;
        crate::devices::publish_business(&app).await;
        crate::ontologies::publish(&app, ontologies).await;
        crate::written::register(&app).await;
        crate::links::start(&app, sockets).await?;
        crate::kad::start(&app)?;
        crate::discovery_proxy::start(&app)?;
        let mut tasks = JoinSet::new();
        let serving = http::Serving {
            router: http::router(app.clone()),
            tls: app.identity.tls.clone(),
            limits: app.config.http.clone(),
            metrics: app.observability.metrics.clone(),
            drops: app.observability.drops.clone(),
            drain: draining,
        };
        crate::subscriptions::eventing::restore(&app);
        let http = tasks.spawn(http::serve(listener, serving));
        tasks.spawn(crate::sensors::watch(app.clone()));
        tasks.spawn(crate::wrappers::watch_wrappers(app.clone()));
        tasks.spawn(crate::wrappers::watch_exporters(app.clone()));
        if app.config.discovery.enabled {
            tasks.spawn(crate::devices::watch(app.clone()));
        }
        tasks.spawn(crate::links::watch_accounts(app.clone()));
        tasks.spawn(crate::kad::run(app.clone()));
        tasks.spawn(crate::discovery_proxy::run(app.clone()));
        if app.config.kad.publish {
            tasks.spawn(crate::kad::publish(app.clone()));
        }
        tasks.spawn(crate::health::watch(app.clone()));
        tasks.spawn(crate::things::watch(app.clone()));
        if app.config.discovery.dns_sd {
            tasks.spawn(crate::things::announce(app.clone()));
        }
        tasks.spawn(crate::leases::watch(app.clone()));
        tasks.spawn(crate::subscriptions::mail::watch_all(app.clone()));
        tasks.spawn(crate::subscriptions::eventing::finish(app.clone()));
        let logs = app.storage.logs().map(|(name, log)| (name, log.clone()));
        tasks.spawn(crate::scrub::watch(
            logs,
            app.config.log.scrub_bytes_per_s,
            app.observability.clone(),
            app.drain.clone(),
        ));
        tasks.spawn(crate::certificate::watch(app.clone()));
        tasks.spawn(ledger.keep(app.drain.clone()));
        Ok(Self {
            app,
            token: new_token.map(|token| token.reveal()),
            size_limit,
            drain,
            tasks,
            http,
            _lock: lock,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.app.identity.address
    }

    /// The address of its REST interface and its console, with the scheme.
    #[must_use]
    pub fn url(&self) -> String {
        self.app.identity.url()
    }

    /// The links in both directions. Links added through this handle do not survive a restart.
    #[must_use]
    pub fn links(&self) -> Option<&chappe_links::Links> {
        self.app.exchange.get().map(crate::links::Exchange::links)
    }

    /// The addresses at which other nodes read over ZeroMQ, by service: sessions, publish, directory.
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
        let open = all
            .into_iter()
            .filter_map(|(service, address)| Some((service, address?)));
        open.collect()
    }

    /// Its UDP address in the distributed hash table, if it takes part.
    #[must_use]
    pub fn kad_address(&self) -> Option<SocketAddr> {
        self.app
            .kad
            .get()
            .map(chappe_transport::kad::KadNode::local_addr)
    }

    /// The fingerprint of its certificate, if TLS is on.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.app.identity.fingerprint()
    }

    /// The token that write access needs, if this start created it. Don't log it:
    /// [`new_token_file`](Self::new_token_file) contains it too.
    #[must_use]
    pub fn new_token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The file, readable by its owner only, with the token that this start created.
    #[must_use]
    pub fn new_token_file(&self) -> Option<PathBuf> {
        let directory = &self.app.config.data_directory;
        self.token.as_ref().map(|_| data::new_token_path(directory))
    }

    /// The size limit of its log.
    #[must_use]
    pub fn size_limit(&self) -> SizeLimit {
        self.size_limit
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.app.identity.name
    }

    /// Its public key, hexadecimal.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.app.identity.public_key
    }

    /// Stores elements that the program itself produces in the stream `name`, and waits until they are
    /// acknowledged. The first call creates and registers the stream.
    ///
    /// # Errors
    /// The reason why they cannot be stored.
    pub async fn store(
        &self,
        name: &str,
        schema: &StreamSchema,
        elements: &[StreamElement],
    ) -> Result<(), StoreFailure> {
        let offered = self.offer(name, schema, elements).await?;
        offered.await.map_err(|error| failure(error.into()))
    }

    /// Like [`Self::store`], but returns as soon as the elements have their numbers; the returned future
    /// resolves when they are acknowledged. A producer faster than the disk can offer the next batch in
    /// the meantime.
    ///
    /// # Errors
    /// The reason why they cannot be stored.
    pub async fn offer(
        &self,
        name: &str,
        schema: &StreamSchema,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreFailure> {
        let stream = StreamSpec {
            name: name.to_owned(),
            schema: schema.clone(),
            source: format!("urn:chappe:node:{}", self.app.identity.public_key),
            level: None,
        };
        let stream = stream.of_renamed(&self.app);
        let entry = match stream.existing(&self.app) {
            Some(entry) => entry,
            None => {
                let opened = stream.open(&self.app, |_| false).await;
                opened.map_err(|error| StoreFailure(error.to_string()))?
            }
        };
        entry.append(elements).await.map_err(failure)
    }

    /// A stream of the node by its name, for reading and following.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<StreamLog> {
        self.app.catalogue.get(name).map(|entry| entry.log.clone())
    }

    /// The counters of the log's writer since the start.
    #[must_use]
    pub fn log_counters(&self) -> chappe_log::Counters {
        self.app.storage.log.counters()
    }

    /// Whether the task that accepts connections runs. A caller on the node's runtime learns as well
    /// that its thread is not blocked.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.http.is_finished()
    }

    /// Rereads the directories of sensors, wrappers and exporters now rather than within a second.
    pub fn reread(&self) {
        self.app.sensors.rescan.notify_one();
        self.app.wrappers.rescan.notify_one();
        self.app.exporters.rescan.notify_one();
    }

    /// Shuts the node down: stops accepting data, ends its subscriptions, drains and closes the log.
    ///
    /// # Errors
    /// The log cannot be closed; acknowledged elements are durable nevertheless.
    pub async fn shutdown(mut self) -> Result<(), chappe_log::Error> {
        self.drain.send_replace(true);
        if let Some(exchange) = self.app.exchange.get() {
            exchange.close();
        }
        while self.tasks.join_next().await.is_some() {}
        let ledger = self.app.observability.ledger.clone();
        // It waits for the disk; if it fails, the next start records the end.
        let _ = tokio::task::spawn_blocking(move || ledger.end()).await;
        self.app.storage.close().await
    }
}

fn failure(error: StoreError) -> StoreFailure {
    StoreFailure(error.to_string())
}

/// The reason why elements were not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreFailure(String);

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.app.identity.name)
            .field("address", &self.app.identity.address)
            .finish_non_exhaustive()
    }
}

/// Resolves when the process receives SIGTERM or SIGINT.
///
/// # Errors
/// The signal handlers cannot be installed.
pub async fn shutdown_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// The runtime of a node: one serving thread, and a few threads that may block on the disk.
///
/// # Errors
/// The system cannot create threads.
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

/// Warns if the operating system limits receive buffers to less than bursts and large samples need.
fn notify_receive_buffer(app: &App) {
    let buffer = ReceiveBuffer::ask(RECEIVE_BUFFER_BYTES).ok();
    if let Some((buffer, text)) = buffer.and_then(|it| Some((it, it.complaint()?))) {
        let text = format!("{text}; remedy: {}", buffer.remedy());
        tracing::warn!("{text}");
        app.observability
            .notices
            .notify(NoticeKind::Health, "receive buffer", text);
    }
}

/// Publishes the node itself in the registry.
async fn publish_node(app: &App) {
    use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
    let key = format!("urn:chappe:node:{}", app.identity.public_key.clone());
    let mut entity = Entity::new(key.clone(), EntityKind::Node, app.identity.name.clone());
    let address = Literal::new_simple_literal(format!("{}/", app.identity.url()));
    let subject = NamedNode::new_unchecked(key);
    entity
        .triples
        .push(Triple::new(subject, vocabulary::ADDRESS, address));
    app.registrar.publish(vec![entity]).await;
}

/// Publishes the tModels that every UDDI registry has. Without them, the node works all the same.
async fn publish_canonical_tmodels(app: &App) {
    let unix_ms = crate::clock::now().0 / 1_000_000;
    let mut attempts = Attempts::default();
    let done = async {
        loop {
            let published = app
                .registry
                .publish_canonical_tmodels(NODE_OWNER, unix_ms)?;
            if attempts.settle(published).await? {
                return Ok::<_, chappe_registry::uddi::Error>(());
            }
        }
    };
    if let Err(error) = done.await {
        tracing::warn!(%error, "cannot publish the canonical tModels of UDDI");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs a test on a node without discovery, with a changed configuration.
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
