//! Links, which copy streams of other nodes to this node, and access of other nodes to this one.
//!
//! `chappe-links` implements links. This module wires them to the node: configured links and links
//! added at run time, the node as their host ([`host`]), and the listening addresses.

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
pub(crate) use kept::{LINKS, SUBSCRIPTIONS, StateFile, newer_version};
pub(crate) use listen::{Listening, Sockets, bind};
use opening::PendingOpens;

/// The key of a link in the registry, which is also the source of its streams.
pub(crate) fn link_key(link: &str) -> String {
    format!("urn:chappe:link:{link}")
}

/// The name of the link with this key in the registry.
pub(crate) fn link_name(key: &str) -> Option<&str> {
    key.strip_prefix("urn:chappe:link:")
}

/// Whether no link has this name; false before the node has started its links.
pub(crate) fn is_removed(app: &App, link: &str) -> bool {
    let links = app.exchange.get().map(Exchange::links);
    links.is_some_and(|links| links.show(link).is_err())
}

/// Adds a link of the account `owner`, which starts at once, is registered, and survives restarts.
pub(crate) async fn add(app: &App, link: LinkConfig, owner: &str) -> Result<(), ChangeError> {
    let entity = host::entity(&link.name, &link.address);
    let (of, key, owner) = (app.clone(), link_key(&link.name), owner.to_owned());
    change(
        app,
        move |exchange| {
            let is_owned = of.owners.set(&key, &owner)?;
            let added = exchange.add(link);
            if added.is_err() && is_owned {
                of.owners.forget(&key)?;
            }
            added
        },
        |app| async move {
            app.registrar.publish(vec![entity]).await;
        },
    )
    .await
}

/// Removes a link; its streams are kept.
pub(crate) async fn remove(app: &App, name: &str) -> Result<(), ChangeError> {
    let exchange = app.exchange.get().ok_or(ChangeError::Starting)?;
    exchange.links.show(name)?;
    let key = link_key(name);
    let name = name.to_owned();
    let (of, owned) = (app.clone(), key.clone());
    change(
        app,
        move |exchange| {
            exchange.remove(&name)?;
            Ok(of.owners.forget(&owned)?)
        },
        |app| async move {
            if let Some(exchange) = app.exchange.get() {
                exchange.opening.forget(&key);
            }
            // The streams stay in the log but are unregistered.
            let entries = app.catalogue.entries();
            let streams = entries.iter().filter(|entry| entry.source() == key);
            let mut keys: Vec<String> = streams.map(|entry| entry.key()).collect();
            keys.push(key);
            app.registrar.remove(keys).await;
        },
    )
    .await
}

/// Changes the links, which syncs a file, on a thread that may block on the disk, then the registry.
/// The change completes even if its caller is dropped.
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

/// Starts the configured links and those added in earlier runs.
///
/// # Errors
/// A configured link is invalid.
pub(crate) async fn start(app: &App, sockets: Sockets) -> Result<(), StartError> {
    let limits = &app.config.exchange;
    let bounds = LinksConfig {
        links: limits.max_links as usize,
        sessions: limits.max_sessions as usize,
        sessions_per_peer: limits.max_sessions_per_peer as usize,
        linger: std::time::Duration::from_millis(u64::from(limits.linger_ms)),
        ..LinksConfig::default()
    };
    let subscriptions = StateFile::new(&app.config.data_directory, SUBSCRIPTIONS);
    let subscribed = subscriptions.read().unwrap_or_else(|error| {
        let text = format!("cannot restore subscriptions of earlier runs: {error}");
        app.observability
            .notices
            .notify(NoticeKind::Health, &app.identity.name, text);
        Vec::new()
    });
    let opening = Arc::<PendingOpens>::default();
    let host = Arc::new(Host::new(app, subscriptions, opening.clone()));
    let zeromq = ZeromqConfig {
        secret: Some(app.identity.key.curve()),
        ..ZeromqConfig::default()
    };
    let links = Links::new(host, app.catalogue.store(), bounds, zeromq);
    let kept = StateFile::new(&app.config.data_directory, LINKS);
    let configured: Vec<String> = app
        .config
        .links
        .iter()
        .map(|link| link.name.clone())
        .collect();
    let added = kept.read().unwrap_or_else(|error| {
        let text = format!("cannot restore links added in earlier runs: {error}");
        app.observability
            .notices
            .notify(NoticeKind::Health, &app.identity.name, text);
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
    // Links use it as soon as they start.
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
            let text = format!("cannot start: {detail}");
            app.observability
                .notices
                .notify(NoticeKind::Link, &name, text);
        }
    }
    exchange.links.http_restore(subscribed);
    let statuses = exchange.links.list();
    let entities = statuses
        .iter()
        .map(|link| host::entity(&link.name, &link.address));
    app.registrar.publish(entities.collect()).await;
    Ok(())
}

/// Ends subscriptions by contact point of accounts that have ended.
pub(crate) async fn watch_accounts(app: App) {
    /// Accounts expire, and devices in the scopes of accounts leave, without a change of accounts.
    const PERIOD: std::time::Duration = std::time::Duration::from_millis(500);
    let (mut changes, mut drain) = (app.accounts.changes(), app.drain.clone());
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(PERIOD) => {}
            () = crate::tasks::shutdown(&mut drain) => return,
        }
        if let Some(exchange) = app.exchange.get() {
            exchange.links().review();
        }
    }
}

/// Starts serving on the listening sockets.
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
            account: None,
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
