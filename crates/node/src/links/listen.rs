//! The addresses at which other nodes read here over ZeroMQ.

use std::net::SocketAddr;

use chappe_identity::{CurvePublic, CurveSecret};
use chappe_links::{QUESTION_MESSAGE_BYTES_MAX, SESSION_MESSAGE_BYTES_MAX};
use chappe_transport::Drops;
use chappe_transport::zeromq::{
    Allowed, Endpoint, Error, Limits, Publisher, Reply, Router, Security,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::config::Exchange;
use crate::error::StartError;

/// The addresses at which other nodes read here.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Listening {
    /// Address of sessions.
    pub(crate) sessions: Option<String>,
    /// Address of PUB.
    pub(crate) publish: Option<String>,
    /// Address of the directory.
    pub(crate) directory: Option<String>,
    /// The node's public CURVE key (Z85), where CURVE is spoken.
    pub(crate) curve_key: Option<String>,
}

/// What listens, before it is handed to the links.
pub(crate) struct Sockets {
    /// For sessions.
    pub(crate) sessions: Option<Router>,
    /// For best effort.
    pub(crate) publisher: Option<Publisher>,
    /// For questions about streams.
    pub(crate) directory: Option<Reply>,
    /// The addresses that were taken.
    pub(crate) listening: Listening,
}

/// Listens where the configuration says.
pub(crate) async fn bind(
    config: &Exchange,
    secret: &CurveSecret,
    drops: &Drops,
) -> Result<Sockets, StartError> {
    let mut sockets = Sockets {
        sessions: None,
        publisher: None,
        directory: None,
        listening: Listening::default(),
    };
    for (key, address) in config.addresses() {
        let failed = |source: Error| StartError::Exchange { key, source };
        let security = security(config, address, secret)
            .map_err(|text| StartError::Config(format!("exchange.allowed_keys: {text}")))?;
        let curve = matches!(security, Security::CurveServer { .. });
        let mut limits = limits(config);
        let endpoint = Endpoint::from(address).to_string();
        let listening = &mut sockets.listening;
        match key {
            "exchange.listen" => {
                limits.max_received_bytes = SESSION_MESSAGE_BYTES_MAX;
                let router = Router::bind(&endpoint, security, limits, drops.clone()).await;
                let router = router.map_err(failed)?;
                listening.sessions = Some(router.local_endpoint().to_string());
                sockets.sessions = Some(router);
            }
            "exchange.publish" => {
                let publisher = Publisher::bind(&endpoint, security, limits, drops.clone()).await;
                let publisher = publisher.map_err(failed)?;
                let local = publisher.local_endpoint();
                listening.publish = local.map(|local| local.to_string());
                sockets.publisher = Some(publisher);
            }
            _ => {
                limits.max_received_bytes = QUESTION_MESSAGE_BYTES_MAX;
                let reply = Reply::bind(&endpoint, security, limits, drops.clone()).await;
                let reply = reply.map_err(failed)?;
                listening.directory = Some(reply.local_endpoint().to_string());
                sockets.directory = Some(reply);
            }
        }
        if curve {
            listening.curve_key = Some(secret.public().to_z85());
        }
    }
    Ok(sockets)
}

/// How an address is secured.
fn security(
    config: &Exchange,
    address: SocketAddr,
    secret: &CurveSecret,
) -> Result<Security, String> {
    if !config.curve(address) {
        return Ok(Security::Null);
    }
    let keys = &config.allowed_keys;
    let allowed = match keys.iter().any(|key| key == "*") {
        true => Allowed::Any,
        false => {
            let keys: Result<_, _> = keys.iter().map(|key| key.parse::<CurvePublic>()).collect();
            Allowed::Keys(keys.map_err(|error| error.to_string())?)
        }
    };
    Ok(Security::CurveServer {
        secret: secret.clone(),
        allowed,
    })
}

fn limits(config: &Exchange) -> Limits {
    Limits {
        connections: config.max_sessions as usize,
        connections_per_address: config.max_sessions_per_peer as usize,
        ..Limits::default()
    }
}
