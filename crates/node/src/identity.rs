//! The name, keys and address of the node.

use std::net::SocketAddr;
use std::sync::Arc;

use chappe_identity::Key;
use chappe_stream::Timestamp;
use chappe_transport::http::Security;
use chappe_transport::tls;

use crate::config::Config;
use crate::{clock, data};

/// Digits of the key in the name of the host.
const LOCAL_HOST_DIGITS: usize = 16;

/// Name, keys and address of a node.
pub(crate) struct Identity {
    /// Its name.
    pub(crate) name: String,
    /// Its key pair.
    pub(crate) key: Arc<Key>,
    /// Its public key, hexadecimal.
    pub(crate) public_key: String,
    /// The start time.
    pub(crate) started_at: Timestamp,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// TLS of its HTTP server; `None`: plain HTTP.
    pub(crate) tls: Option<tls::Server>,
    /// TLS with devices.
    pub(crate) device_tls: Security,
}

impl Identity {
    /// The identity of a node that starts now.
    pub(crate) fn new(
        config: &Config,
        key: Key,
        address: SocketAddr,
        tls: Option<tls::Server>,
        device_tls: Security,
    ) -> Self {
        Self {
            name: name(config),
            public_key: key.public().to_string(),
            key: Arc::new(key),
            started_at: clock::now(),
            address,
            tls,
            device_tls,
        }
    }

    /// The URL of its REST interface and its console.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Its name as a host in multicast DNS, without `.local`: no other node has it.
    pub(crate) fn local_host(&self) -> String {
        format!("chappe-{}", &self.public_key[..LOCAL_HOST_DIGITS])
    }

    /// The fingerprint (SHA-256, hexadecimal) of its certificate, if TLS is on.
    pub(crate) fn fingerprint(&self) -> Option<String> {
        let tls = self.tls.as_ref();
        tls.map(|tls| tls.fingerprint().to_string())
    }
}

/// The configured name, or the name of the host.
pub(crate) fn name(config: &Config) -> String {
    if !config.name.is_empty() {
        return config.name.clone();
    }
    match data::host_name().trim() {
        "" => "chappe".to_owned(),
        host => host.chars().take(63).collect(),
    }
}
