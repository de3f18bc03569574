//! The handle: the links of a node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::StreamStore;
use tokio::task::JoinHandle;

use super::dead_letters::DeadLetters;
use super::dial;
use super::http;
use super::link::Link;
use super::session::{self, ConnectionError, FrameConnection};
use super::shared::{PUSH_LETTERS, Shared};
use super::zeromq;
use super::{
    DeadLetter, Dialler, LinkConfig, LinkError, LinkHost, LinkKind, LinkState, LinkStatus,
    LinksConfig, PeerStatus, ZeromqConfig,
};

/// The links of a node, and what it serves to links of others. Clones share it.
#[derive(Clone)]
pub struct Links {
    shared: Arc<Shared>,
    running: Arc<Mutex<BTreeMap<String, Running>>>,
}

struct Running {
    link: Arc<Link>,
    task: JoinHandle<()>,
}

impl Links {
    /// Starts without links. `store` holds the streams and the dead letters.
    #[must_use]
    pub fn new(
        host: Arc<dyn LinkHost>,
        store: StreamStore,
        config: LinksConfig,
        zeromq: ZeromqConfig,
    ) -> Self {
        Self {
            shared: Arc::new(Shared::new(host, store, config, zeromq)),
            running: Arc::default(),
        }
    }

    /// Adds and starts a link. Requires a runtime.
    ///
    /// # Errors
    /// An invalid configuration, or the limit of links.
    pub fn add(&self, config: LinkConfig) -> Result<(), LinkError> {
        self.start(config, |link| tokio::spawn(run(link)))
    }

    /// Adds a reliable link whose connections the caller makes; its address is ignored.
    ///
    /// # Errors
    /// An invalid configuration, or the limit of links.
    pub fn add_over<D: Dialler>(&self, config: LinkConfig, dialler: D) -> Result<(), LinkError> {
        self.start(config, |link| tokio::spawn(dial::sessions(link, dialler)))
    }

    fn start(
        &self,
        config: LinkConfig,
        spawn: impl FnOnce(Arc<Link>) -> JoinHandle<()>,
    ) -> Result<(), LinkError> {
        config.check()?;
        if config.name == PUSH_LETTERS {
            let why = format!("{PUSH_LETTERS} is reserved for elements that contact points refuse");
            return Err(LinkError::Config { key: "name", why });
        }
        let mut running = self.running();
        if running.contains_key(&config.name) {
            return Err(LinkError::Exists(config.name));
        }
        if running.len() >= self.shared.config.links {
            return Err(LinkError::TooMany(running.len()));
        }
        let name = config.name.clone();
        let letters = DeadLetters::open(&self.shared.store, &config)?;
        let link = Arc::new(Link::new(self.shared.clone(), config, letters));
        let task = spawn(link.clone());
        running.insert(name, Running { link, task });
        Ok(())
    }

    /// Ends and forgets a link. Its stored elements and dead letters remain, and a later link of
    /// the same name continues from them.
    ///
    /// # Errors
    /// No link has this name.
    pub fn remove(&self, name: &str) -> Result<(), LinkError> {
        let removed = self.running().remove(name);
        let removed = removed.ok_or_else(|| LinkError::Unknown(name.to_owned()))?;
        removed.link.end(LinkState::Ended);
        removed.task.abort();
        Ok(())
    }

    /// All links, by name.
    #[must_use]
    pub fn list(&self) -> Vec<LinkStatus> {
        let links: Vec<Arc<Link>> = self.running().values().map(|it| it.link.clone()).collect();
        links.iter().map(|link| link.status()).collect()
    }

    /// The status of one link.
    ///
    /// # Errors
    /// No link has this name.
    pub fn show(&self, name: &str) -> Result<LinkStatus, LinkError> {
        Ok(self.link(name)?.status())
    }

    /// Discards the dead letters of a link with these numbers, or all.
    ///
    /// # Errors
    /// No link has this name, or an error of the log.
    pub fn discard(&self, name: &str, numbers: Option<&[u64]>) -> Result<(), LinkError> {
        if name == PUSH_LETTERS {
            return self.shared.push_letters()?.discard(numbers);
        }
        self.link(name)?.letters.discard(numbers)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Dead letters of a link from number `from` on (0: the oldest), at most `count`, without those
    /// that were sent again or discarded. Elements that contact points refuse (HTTP push) are under
    /// the name `http-push`.
    ///
    /// # Errors
    /// No link has this name, or an error of the log.
    pub fn dead_letters(
        &self,
        name: &str,
        from: u64,
        count: usize,
    ) -> Result<Vec<DeadLetter>, LinkError> {
        if name == PUSH_LETTERS {
            return self.shared.push_letters()?.list(from, count);
        }
        self.link(name)?.letters.list(from, count)
    }

    /// The number of dead letters under the name `http-push`.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn push_dead_letters(&self) -> Result<u64, LinkError> {
        Ok(self.shared.push_letters()?.count())
    }

    /// Retries to store a dead letter in its stream; returns when it is stored. A letter of
    /// `http-push` is sent to its contact point again, which has to be subscribed.
    ///
    /// # Errors
    /// An unknown link or letter, or a letter that still does not fit.
    pub async fn send_again(&self, name: &str, number: u64) -> Result<(), LinkError> {
        if name == PUSH_LETTERS {
            return self.push_again(number).await;
        }
        let link = self.link(name)?;
        link.send_again(number).await
    }

    /// The readers of this node's streams, the oldest first.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.shared.peers.list()
    }

    /// Ends subscriptions by contact point whose account may not read their stream any more. The host calls
    /// it when accounts change; sessions ask by themselves.
    pub fn review(&self) {
        let shared = self.shared();
        shared.pushes.review(&*shared.host);
    }

    /// Serves a session on this connection until it ends.
    ///
    /// # Errors
    /// The reason for the end, or the limit of readers.
    pub async fn serve<C: FrameConnection>(&self, connection: C) -> Result<(), ConnectionError> {
        let reader = connection.peer();
        let (shared, kind) = (self.shared.clone(), LinkKind::Zeromq);
        let now = shared.host.now();
        let place = shared.peers.place(&reader, kind, &shared.config, now);
        let place = place.map_err(|error| {
            let (peer, text) = (reader.label(), error.to_string());
            shared
                .host
                .dropped("too many readers", &peer, text.clone(), None);
            ConnectionError { text, hint: None }
        })?;
        session::serve(shared, connection, place.peer.clone()).await
    }

    /// Ends all links and all serving.
    pub fn close(&self) {
        self.shared.pushes.close(&*self.shared.host);
        for (_, removed) in std::mem::take(&mut *self.running()) {
            removed.link.end(LinkState::Ended);
            removed.task.abort();
        }
    }

    pub(crate) fn link(&self, name: &str) -> Result<Arc<Link>, LinkError> {
        let running = self.running();
        let found = running.get(name).map(|it| it.link.clone());
        found.ok_or_else(|| LinkError::Unknown(name.to_owned()))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a link until it is removed.
async fn run(link: Arc<Link>) {
    let node = link.shared.zeromq.clone();
    match link.config.kind {
        LinkKind::HttpPull => http::pull_link(link).await,
        LinkKind::HttpPush => http::push_link(link).await,
        LinkKind::ZeromqBestEffort => zeromq::best_effort_link(link, node).await,
        LinkKind::Zeromq => match zeromq::RouterDialler::new(&link.config, &node) {
            Ok(dialler) => dial::sessions(link, dialler).await,
            Err(error) => link.disconnected(error.to_string(), error.hint()),
        },
    }
}
