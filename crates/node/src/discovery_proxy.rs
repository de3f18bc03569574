//! The node as discovery proxy: it offers the devices that it has described, and those that register with it.
//!
//! Each device that registers is followed like one that was found by multicast. Once it was described at its own
//! address, it is offered until it no longer listens; a Bye that may be forged makes the node look.

use std::sync::Arc;

use chappe_device::client::{Description, Found};
use chappe_device::proxy::{ProxyNews, ProxyOptions};
use chappe_device::{DeviceClient, DiscoveryProxy, Selection};
use chappe_transport::Hop;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use utoipa::ToSchema;

use crate::error::StartError;
use crate::shared::{App, Shared};
use crate::tasks::shutdown;

/// The path of requests by HTTPS at the node's own server.
pub(crate) const PATH: &str = "/discovery";
/// Hints that are looked into at the same time. Reason: the client bounds those of one host further.
const HINTS_MAX: usize = 64;

/// Starts the proxy, if configured.
///
/// # Errors
/// The node cannot listen on the address.
pub(crate) fn start(app: &App) -> Result<(), StartError> {
    let discovery = &app.config.discovery;
    let Some(listen) = discovery.proxy.address() else {
        return Ok(());
    };
    let selection = match discovery.interfaces.as_slice() {
        _ if !discovery.multicast => Selection::Nowhere,
        [] => Selection::All,
        names => Selection::Named(names.to_vec()),
    };
    let own = app.identity.url();
    let options = ProxyOptions {
        selection,
        listen: Some(listen),
        // One at loopback is of no use to others.
        addresses: (own.starts_with("https") && !app.identity.address.ip().is_unspecified())
            .then(|| format!("{own}{PATH}"))
            .into_iter()
            .collect(),
        policy: discovery.contact_policy(),
        tls: Some(app.identity.device_tls.clone()),
        plain: !discovery.proxy.tls,
        ..ProxyOptions::new(chappe_device::host::endpoint_from(&[
            "discovery proxy",
            &app.identity.public_key,
        ]))
    };
    let proxy = DiscoveryProxy::start(options, app.observability.drops.clone());
    let proxy = proxy.map_err(|error| StartError::DiscoveryProxy {
        hint: error.hint(),
        reason: error.to_string(),
    })?;
    app.discovery_proxy.get_or_init(|| proxy);
    Ok(())
}

/// Runs until shutdown, then says Bye.
pub(crate) async fn run(app: App) {
    let Some(proxy) = app.discovery_proxy.get() else {
        return;
    };
    shutdown(&mut app.drain.clone()).await;
    proxy.stop().await;
}

/// Looks into what unauthenticated messages say, until it is aborted.
pub(crate) async fn watch(app: App, client: Arc<DeviceClient>) {
    let Some(proxy) = app.discovery_proxy.get() else {
        return;
    };
    let mut news = proxy.news();
    let mut hints = JoinSet::new();
    loop {
        let one = match news.recv().await {
            Ok(one) => one,
            // Devices repeat their Hello, and those that left are found gone.
            Err(RecvError::Lagged(missed)) => {
                let reason = "hint to discovery proxy missed";
                let drops = &app.observability.drops;
                drops.count(missed, Hop::Discovery, reason);
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        while hints.try_join_next().is_some() {}
        if hints.len() >= HINTS_MAX {
            hints.join_next().await;
        }
        let client = Arc::clone(&client);
        hints.spawn(async move {
            match one {
                ProxyNews::Registered(found) => client.hear(found).await,
                ProxyNews::Bye { endpoint, from } => client.verify_bye(&endpoint, from).await,
            }
        });
    }
}

/// Offers a device that was described, at those of its addresses that it may name.
pub(crate) async fn described(app: &App, description: &Description) {
    let Some(proxy) = app.discovery_proxy.get() else {
        return;
    };
    let found = &description.found;
    let policy = app.config.discovery.contact_policy();
    let reached = description.contact.to_string();
    let others = found.xaddrs.iter().filter(|xaddr| {
        let is_allowed = policy.check(xaddr, found.from).is_ok();
        is_allowed && **xaddr != reached
    });
    let others = others.cloned().collect::<Vec<_>>();
    let found = Found {
        xaddrs: std::iter::once(reached).chain(others).collect(),
        from: description.contact.address,
        ..found.clone()
    };
    proxy.learn(&found).await;
}

/// No longer offers a device.
pub(crate) async fn gone(app: &App, endpoint: &str) {
    if let Some(proxy) = app.discovery_proxy.get() {
        proxy.unlearn(endpoint).await;
    }
}

/// The node's part in managed discovery.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = DiscoveryProxyStatus)]
pub(crate) struct Status {
    /// The address at which this node answers as discovery proxy; null if it is none.
    listening: Option<String>,
    /// Devices that it offers as discovery proxy.
    offered: usize,
    /// The discovery proxies that it asks.
    asked: Vec<Asked>,
}

/// A discovery proxy that the node asks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AskedDiscoveryProxy)]
pub(crate) struct Asked {
    /// Its address.
    address: String,
    /// Whether it is configured or proven by its certificate; while such a one answers, multicast is silent.
    trusted: bool,
    /// Whether it answers.
    answers: bool,
}

/// The status.
pub(crate) fn status(app: &Shared) -> Status {
    let proxy = app.discovery_proxy.get();
    let asked = app
        .devices
        .discovery_proxies()
        .into_iter()
        .map(|one| Asked {
            address: one.contact.to_string(),
            trusted: one.is_trusted,
            answers: one.answers,
        });
    Status {
        listening: proxy
            .and_then(DiscoveryProxy::address)
            .map(|at| at.to_string()),
        offered: proxy.map_or(0, |proxy| proxy.state().devices),
        asked: asked.collect(),
    }
}
