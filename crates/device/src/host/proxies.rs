//! Announcements to discovery proxies by HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::discovery::target_service::Command;
use chappe_identity::Contact;
use chappe_transport::Hop;
use chappe_transport::udp::Order;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;

/// A discovery proxy at which a device registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyAddress {
    /// By UDP: datagrams are not confirmed, so an HTTP address is better where there is one.
    Udp(SocketAddr),
    /// By HTTP or HTTPS.
    Http(Contact),
}

/// Time after which an announcement that failed is repeated. Reason: a proxy that restarted has its devices
/// again within this time, and one that is away gets a request of each device in it.
const RETRY: Duration = Duration::from_secs(5);
/// Time for the Byes to proxies.
const BYE_DEADLINE: Duration = Duration::from_secs(2);

/// The announcements that are on their way.
pub(super) struct Posts {
    shared: Arc<Shared>,
    proxies: Vec<Contact>,
    /// Each returns whether the proxy accepted it.
    under_way: JoinSet<bool>,
    retry: Option<Instant>,
}

impl Posts {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            proxies: by_http(&shared.options.proxies),
            under_way: JoinSet::new(),
            retry: None,
        }
    }

    /// Sends an announcement to each proxy.
    pub(super) fn send(&mut self, action: &str, text: &str) {
        for proxy in self.proxies.clone() {
            let (shared, action) = (Arc::clone(&self.shared), action.to_owned());
            let text = text.to_owned();
            self.under_way
                .spawn(async move { post(&shared, &proxy, &action, text).await });
        }
    }

    /// Handles results, and has failed announcements repeated. Never ends; it may be dropped.
    pub(super) async fn handle(&mut self) {
        loop {
            let retry = self.retry.unwrap_or_else(Instant::now);
            tokio::select! {
                Some(posted) = self.under_way.join_next() => {
                    if !matches!(posted, Ok(true)) {
                        self.retry.get_or_insert_with(|| Instant::now() + RETRY);
                    }
                }
                () = sleep_until(retry), if self.retry.is_some() => {
                    self.retry = None;
                    // A closed host has nothing to announce.
                    let _ = self.shared.orders.try_send(Order::Command(Command::Renew));
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for the last announcements.
    pub(super) async fn end(&mut self) {
        let last = async { while self.under_way.join_next().await.is_some() {} };
        let _ = timeout(BYE_DEADLINE, last).await;
    }
}

/// The proxies that are reached by HTTP.
pub(super) fn by_http(proxies: &[ProxyAddress]) -> Vec<Contact> {
    let contacts = proxies.iter().filter_map(|proxy| match proxy {
        ProxyAddress::Http(contact) => Some(contact.clone()),
        ProxyAddress::Udp(_) => None,
    });
    contacts.collect()
}

/// The proxies that are reached by UDP.
pub(super) fn by_udp(proxies: &[ProxyAddress]) -> Vec<SocketAddr> {
    let addresses = proxies.iter().filter_map(|proxy| match proxy {
        ProxyAddress::Udp(address) => Some(*address),
        ProxyAddress::Http(_) => None,
    });
    addresses.collect()
}

async fn post(shared: &Shared, proxy: &Contact, action: &str, text: String) -> bool {
    let (detail, hint) = match shared.http.post_text(proxy, action, text).await {
        Ok(answer) if answer.status.is_success() => return true,
        Ok(answer) => (format!("{proxy}: status {}", answer.status), None),
        Err(error) => (format!("{proxy}: {error}"), error.hint()),
    };
    let reason = "discovery proxy not told";
    shared
        .drops
        .record(Hop::Discovery, reason, proxy.address.ip(), detail, hint);
    false
}
