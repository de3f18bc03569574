//! Devices: discovery, description, registration, streaming, and removal when they leave.
//!
//! Discovery runs in one client; each device has a task of its own, so that a slow device does not
//! delay others. Discovery messages are hints: a device counts as gone only after it did not answer
//! the client.

mod announced;
mod charge;
mod claims;
mod device;
mod entities;
mod exclusion;
mod follow;
mod follower;
mod followers;
mod identity;
mod kept_list;
mod key;
mod lineage;
mod offered;
mod operation;
mod output;
mod places;
mod profiles;
mod quota;
mod replace;
mod rule;
mod services;
mod succession;
mod table;
mod task;

use std::sync::Arc;
use std::time::Duration;

use chappe_device::client::{ClientTree, Seen};
use chappe_device::{ClientOptions, DeviceClient, Selection};

pub(crate) use announced::announced_key;
pub(crate) use claims::PlaceClaim;
pub(crate) use device::{Device, DeviceState};
pub(crate) use entities::of_device as device_entities;
pub(crate) use exclusion::{EXCLUSIONS, Exclusion, ExclusionError};
use followers::Followers;
pub(crate) use key::{DEVICE_KEYS, device_key, former_key};
pub(crate) use operation::{DeviceOperation, OperationArgument};
pub(crate) use places::{PLACES, Place};
pub(crate) use profiles::PROFILES;
pub(crate) use replace::{ReplaceError, replace};
pub(crate) use services::publish_business;
pub(crate) use succession::place_claims;
pub(crate) use table::Devices;

use crate::notices::NoticeKind;
use crate::shared::App;
use crate::signatures;
use crate::tasks::shutdown;

/// Pause before discovery is retried after it could not start.
const RETRY: Duration = Duration::from_secs(5);
/// Finds and follows devices until the node shuts down.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut told = String::new();
    loop {
        match DeviceClient::start(options(&app), app.observability.drops.clone()) {
            Ok(client) => return follow_all(&app, client).await,
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    let hint = error
                        .hint()
                        .map_or(String::new(), |hint| format!(" ({hint})"));
                    let notice = format!("cannot search for devices: {text}{hint}");
                    app.observability
                        .notices
                        .notify(NoticeKind::Health, "discovery", notice);
                    told = text;
                }
            }
        }
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn options(app: &App) -> ClientOptions {
    let discovery = &app.config.discovery;
    let selection = match discovery.interfaces.as_slice() {
        _ if !discovery.multicast => Selection::Nowhere,
        [] => Selection::All,
        names => Selection::Named(names.to_vec()),
    };
    ClientOptions {
        selection,
        policy: discovery.contact_policy(),
        proxies: discovery.proxy_contacts(),
        tree: discovery
            .tree
            .then(|| app.identity.key.clone())
            .map(|key| ClientTree {
                criticality: discovery.tree_criticality,
                windows: Some(app.config.data_directory.join("tree-windows")),
                ..ClientTree::new(key)
            }),
        signing: signatures::signing(app, app.config.signatures.devices),
        tls: Some(app.identity.device_tls.clone()),
        plain: app.config.devices.tls.plain || !app.config.devices.tls.trusts(),
        event_signing: signatures::signing(app, app.config.signatures.events),
        ..ClientOptions::default()
    }
}

async fn follow_all(app: &App, client: DeviceClient) {
    let client = Arc::new(client);
    app.devices.set_client(&client);
    let mut drain = app.drain.clone();
    let searching = tokio::spawn(crate::kad::search(app.clone(), client.clone()));
    let watching = tokio::spawn(crate::discovery_proxy::watch(app.clone(), client.clone()));
    let ruling = tokio::spawn(succession::watch(app.clone(), client.clone()));
    let mut seen = match client.discover().await {
        Ok(seen) => seen,
        Err(_) => {
            for task in [searching, watching, ruling] {
                task.abort();
            }
            return;
        }
    };
    let mut followers = Followers::new(app.clone(), client.clone());
    // This loop awaits no device, because a slow one would block the discovery of all others.
    loop {
        let event = tokio::select! {
            () = shutdown(&mut drain) => break,
            () = followers.departed() => continue,
            event = seen.next() => match event {
                Some(event) => event,
                None => break,
            },
        };
        match event {
            Seen::Found(found) | Seen::Changed(found) | Seen::Hello(found)
                if crate::kad::is_entrance(app, &found).await => {}
            Seen::Found(found) | Seen::Changed(found) => followers.found(found),
            Seen::Hello(found) => followers.hello(found),
            Seen::Gone { endpoint, reason } => {
                crate::discovery_proxy::gone(app, &endpoint).await;
                followers.gone(&endpoint, reason);
            }
            _ => {}
        }
    }
    // They hold the client as well.
    for task in [searching, watching, ruling] {
        task.abort();
        let _ = task.await;
    }
    followers.end().await;
    drop(seen);
    // All tasks have ended, so nothing else holds the client.
    if let Ok(client) = Arc::try_unwrap(client) {
        client.close().await;
    }
}
