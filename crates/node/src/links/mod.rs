//! Links: streams of other nodes, brought here; and what other nodes read here.
//!
//! `chappe-links` speaks the links. Here they are wired: those of the configuration and those
//! added while the node runs, what the node is to them ([`host`]), the addresses at which others
//! read.

mod host;
mod kept;
mod listen;
mod measure;

use std::sync::{Arc, Mutex, PoisonError};

use chappe_links::{LinkConfig, LinkError, Links, LinksConfig, PeerStatus, Reader, ZeromqConfig};
use chappe_transport::{Hop, key_file};

use crate::error::StartError;
use crate::notices::NoticeKind;

use crate::shared::App;
use tokio::task::AbortHandle;

use host::{Host, Opening};
pub(crate) use kept::{Kept, LINKS, SUBSCRIPTIONS};
pub(crate) use listen::{Listening, Sockets, bind};

/// The key of a link in the registry, which is the source of the streams that it brings.
pub(crate) fn key_of(link: &str) -> String {
    format!("urn:chappe:link:{link}")
}

/// The name of the link with this key in the registry.
pub(crate) fn name_of_key(key: &str) -> Option<&str> {
    key.strip_prefix("urn:chappe:link:")
}

/// Whether there is no link of this name; false before the node has started its links.
pub(crate) fn is_removed(app: &App, link: &str) -> bool {
    let links = app.exchange.get().map(Exchange::links);
    links.is_some_and(|links| links.show(link).is_err())
}

/// The links of a node, and which of them the configuration names.
pub(crate) struct Exchange {
    links: Links,
    configured: Vec<String>,
    listening: Listening,
    /// What serves others over ZeroMQ.
    serving: Mutex<Vec<AbortHandle>>,
    kept: Kept<LinkConfig>,
    opening: Arc<Opening>,
    /// Those added while the node runs, as they are kept; locked while the file is written.
    added: Mutex<Vec<LinkConfig>>,
}

/// Why a link is not added or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The configuration names it.
    #[error("the link {0:?} stands in the node's configuration")]
    Configured(String),
    /// The node has not started its links yet.
    #[error("the node is starting its links")]
    Starting,
    /// The file of its token cannot be used.
    #[error(transparent)]
    TokenFile(#[from] key_file::Error),
    /// The links refuse.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// What was changed cannot be kept.
    #[error("the change cannot be kept over a restart: {0}")]
    NotKept(#[from] std::io::Error),
}

impl ChangeError {
    /// What can be done.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Configured(_) => {
                Some("change it under [[links]] in node.toml and start the node anew".to_owned())
            }
            Self::Starting => Some("try again in a moment".to_owned()),
            Self::TokenFile(error) => error.hint(),
            Self::Link(error) => error.hint(),
            Self::NotKept(_) => Some("make room on the disk of the data directory".to_owned()),
        }
    }
}

impl Exchange {
    /// Ends all links and what is served to others.
    pub(crate) fn close(&self) {
        self.links.close();
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        for task in serving.drain(..) {
            task.abort();
        }
    }

    /// The links.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Who reads here.
    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        self.links.peers()
    }

    /// Where others can read here.
    pub(crate) fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Whether the configuration names a link.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|known| known == name)
    }

    /// Adds a link and keeps it.
    fn add(&self, link: LinkConfig) -> Result<(), ChangeError> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.links.add(with_token(&link)?)?;
        let mut wanted = added.clone();
        wanted.push(link.clone());
        if let Err(error) = self.kept.write(&wanted) {
            // What would be gone after a restart is not there now either.
            let _ = self.links.remove(&link.name);
            return Err(error.into());
        }
        *added = wanted;
        Ok(())
    }

    /// Removes a link and keeps it no more.
    fn remove(&self, name: &str) -> Result<(), ChangeError> {
        if self.is_configured(name) {
            return Err(ChangeError::Configured(name.to_owned()));
        }
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.links.show(name)?;
        let mut wanted = added.clone();
        wanted.retain(|link| link.name != name);
        self.kept.write(&wanted)?;
        *added = wanted;
        Ok(self.links.remove(name)?)
    }
}

/// Adds a link, which begins at once, is registered, and outlives restarts.
pub(crate) async fn add(app: &App, link: LinkConfig) -> Result<(), ChangeError> {
    let entity = host::entity(&link);
    change(
        app,
        |exchange| exchange.add(link),
        |app| async move {
            app.registrar.publish(vec![entity]).await;
        },
    )
    .await
}

/// Ends and forgets a link; what it brought stays.
pub(crate) async fn remove(app: &App, name: &str) -> Result<(), ChangeError> {
    let exchange = app.exchange.get().ok_or(ChangeError::Starting)?;
    exchange.links.show(name)?;
    let key = key_of(name);
    let name = name.to_owned();
    change(
        app,
        move |exchange| exchange.remove(&name),
        |app| async move {
            if let Some(exchange) = app.exchange.get() {
                exchange.opening.forget(&key);
            }
            // Its streams stay in the log, and are registered no more.
            let entries = app.catalogue.entries();
            let streams = entries.iter().filter(|entry| entry.source() == key);
            let mut keys: Vec<String> = streams.map(|entry| entry.key()).collect();
            keys.push(key);
            app.registrar.remove(keys).await;
        },
    )
    .await
}

/// Changes the links, which writes and syncs a file, on a thread that may wait for the disk; then the
/// registry. Also when nobody waits for the result any more.
async fn change<F: Future<Output = ()> + Send>(
    app: &App,
    links: impl FnOnce(&Exchange) -> Result<(), ChangeError> + Send + 'static,
    registry: impl FnOnce(App) -> F + Send + 'static,
) -> Result<(), ChangeError> {
    let app = app.clone();
    let changing = tokio::spawn(async move {
        let of = app.clone();
        let changed = tokio::task::spawn_blocking(move || {
            links(of.exchange.get().ok_or(ChangeError::Starting)?)
        });
        changed.await.map_err(std::io::Error::other)??;
        registry(app).await;
        Ok(())
    });
    changing.await.map_err(std::io::Error::other)?
}

/// Starts the links of the configuration and those that were added before.
///
/// # Errors
/// A link of the configuration that cannot be one.
pub(crate) async fn start(app: &App, sockets: Sockets) -> Result<(), StartError> {
    let limits = &app.config.exchange;
    let bounds = LinksConfig {
        links: limits.max_links as usize,
        sessions: limits.max_sessions as usize,
        sessions_per_peer: limits.max_sessions_per_peer as usize,
        linger: std::time::Duration::from_millis(u64::from(limits.linger_ms)),
        ..LinksConfig::default()
    };
    let subscriptions = Kept::new(&app.config.data_directory, SUBSCRIPTIONS);
    let subscribed = subscriptions.read().unwrap_or_else(|error| {
        let text = format!("the subscriptions made before are not there: {error}");
        app.observability
            .notices
            .tell(NoticeKind::Health, &app.identity.name, text);
        Vec::new()
    });
    let opening = Arc::<Opening>::default();
    let host = Arc::new(Host::new(app, subscriptions, opening.clone()));
    let zeromq = ZeromqConfig {
        secret: Some(app.identity.key.curve()),
        ..ZeromqConfig::default()
    };
    let links = Links::new(host, app.catalogue.store(), bounds, zeromq);
    let kept = Kept::new(&app.config.data_directory, LINKS);
    let configured: Vec<String> = app
        .config
        .links
        .iter()
        .map(|link| link.name.clone())
        .collect();
    let added = kept.read().unwrap_or_else(|error| {
        let text = format!("the links that were added before are not there: {error}");
        app.observability
            .notices
            .tell(NoticeKind::Health, &app.identity.name, text);
        Vec::new()
    });
    let exchange = Exchange {
        listening: sockets.listening.clone(),
        serving: Mutex::new(serve(&links, sockets)),
        links,
        configured,
        kept,
        opening,
        added: Mutex::new(added.clone()),
    };
    // Links ask for it as soon as they run.
    let exchange = app.exchange.get_or_init(|| exchange);
    for link in &app.config.links {
        let ready = with_token(link).and_then(|link| Ok(exchange.links.add(link)?));
        ready.map_err(|error| StartError::Link {
            link: link.name.clone(),
            hint: error.hint(),
            reason: error.to_string(),
        })?;
    }
    for link in added {
        let name = link.name.clone();
        if let Err(error) = with_token(&link).and_then(|link| Ok(exchange.links.add(link)?)) {
            let (reason, detail) = ("link not started", error.to_string());
            app.observability.drops.record(
                Hop::Exchange,
                reason,
                &name,
                detail.clone(),
                error.hint(),
            );
            let text = format!("it is not started: {detail}");
            app.observability
                .notices
                .tell(NoticeKind::Link, &name, text);
        }
    }
    exchange.links.http_restore(subscribed);
    let statuses = exchange.links.list();
    let entities = statuses.iter().map(|link| host::entity(&link.config));
    app.registrar.publish(entities.collect()).await;
    Ok(())
}

/// Hands what listens to the links.
fn serve(links: &Links, sockets: Sockets) -> Vec<AbortHandle> {
    let mut serving = Vec::new();
    if let Some(router) = sockets.sessions {
        let links = links.clone();
        let task = tokio::spawn(async move { links.serve_zeromq(router).await });
        serving.push(task.abort_handle());
    }
    if let Some(publisher) = sockets.publisher {
        let links = links.clone();
        let reader = Reader {
            address: None,
            key: None,
        };
        let task = tokio::spawn(async move { links.publish_zeromq(publisher, reader).await });
        serving.push(task.abort_handle());
    }
    if let Some(reply) = sockets.directory {
        let links = links.clone();
        let task = tokio::spawn(async move { links.serve_directory(reply).await });
        serving.push(task.abort_handle());
    }
    serving
}

/// The link with the token that its file holds, if it names one.
fn with_token(link: &LinkConfig) -> Result<LinkConfig, ChangeError> {
    let mut link = link.clone();
    if let Some(path) = link.token_file.take() {
        let text = key_file::read_secret(&path)?;
        link.token = Some(text.trim().to_owned());
    }
    Ok(link)
}
