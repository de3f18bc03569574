//! Links: streams of other nodes, brought here; and what other nodes read here.
//!
//! `chappe-links` speaks the links. Here they are wired: those of the configuration and those
//! added while the node runs, what the node is to them ([`host`]), the addresses at which others
//! read.

mod exchange;
mod host;
mod kept;
mod listen;
mod measure;
mod opening;

use std::sync::{Arc, Mutex};

use chappe_links::{LinkConfig, Links, LinksConfig, Reader, ZeromqConfig};
use chappe_transport::Hop;

use crate::error::StartError;
use crate::notices::NoticeKind;

use crate::shared::App;
use tokio::task::AbortHandle;

use exchange::with_token;
pub(crate) use exchange::{ChangeError, Exchange};
use host::Host;
pub(crate) use kept::{Kept, LINKS, SUBSCRIPTIONS};
pub(crate) use listen::{Listening, Sockets, bind};
use opening::Opening;

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
