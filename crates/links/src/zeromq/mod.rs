//! Links over ZeroMQ: reliable sessions over DEALER and ROUTER, best effort over PUB and SUB, and the
//! directory over REQ and REP.
//!
//! A message of a session is one frame. A message of two frames, the first of which is `D`, is a
//! query of the directory or its answer. A published message is the topic, `NAME SERIALIZATION`,
//! and one document of [`serialization`](super::serialization). A directory query is `NAME`,
//! `PREFIX*` or empty, then a line break and the serialization of the answer.

mod best_effort;
mod reliable;
mod serve;

pub(crate) use best_effort::subscribe as best_effort_link;
pub(crate) use reliable::RouterDialler;

use chappe_transport::zeromq::{CurvePublic, CurveSecret, Error, Limits, Security};

use super::session::ConnectionError;
use super::{LinkConfig, LinkError};

/// Bytes of a message from a subscriber: the largest frame of a session, `frame_bytes_max` of
/// [`SessionConfig`](chappe_flow::SessionConfig).
pub const SESSION_MESSAGE_BYTES_MAX: usize = (2 << 20) + (64 << 10);
/// Bytes of a message with a directory query: a name and a serialization.
pub const QUESTION_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The node's ZeroMQ configuration.
#[derive(Debug, Clone, Default)]
pub struct ZeromqConfig {
    /// This node's CURVE key; without it, only origins without CURVE can be read.
    pub secret: Option<CurveSecret>,
    /// The limits for each peer.
    pub limits: Limits,
}

impl ZeromqConfig {
    /// The security of connections to the link's origin.
    fn security(&self, config: &LinkConfig) -> Result<Security, LinkError> {
        let wrong = |why: String| LinkError::Config {
            key: "server_key",
            why,
        };
        let Some(key) = &config.server_key else {
            return Ok(Security::Null);
        };
        let server_key: CurvePublic = key
            .parse()
            .map_err(|error: chappe_identity::Error| wrong(error.to_string()))?;
        let secret = self.secret.clone();
        let secret = secret.ok_or_else(|| wrong("this node has no CURVE key of its own".into()))?;
        Ok(Security::CurveClient { secret, server_key })
    }
}

fn connection_error(error: &Error) -> ConnectionError {
    ConnectionError {
        text: error.to_string(),
        hint: error.hint(),
    }
}
