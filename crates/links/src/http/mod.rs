//! Links over HTTP: push to a contact point, and pull by an endless answer.
//!
//! Both carry the documents of [`serialization`](super::serialization), and both give each element
//! exactly once: it carries its position at the origin, and the receiver knows the newest it has
//! stored. The functions on [`Links`](super::Links) answer requests; the program with the HTTP server calls
//! them after it has decided who may read:
//!
//! | request | function |
//! |---|---|
//! | `POST /api/v1/exchange/subscriptions` | `http_subscribe` |
//! | `PUT`, `DELETE /api/v1/exchange/subscriptions/ID` | `http_renew`, `http_end` |
//! | `PUT`, `POST /api/v1/exchange/contact-points/LINK/SECRET` | `http_take` |
//! | `GET /api/v1/exchange/streams/NAME` | `http_pull` |
//! | `GET /api/v1/directory?streams=NAMES&serialization=WORD` | `http_directory` |
//!
//! **Push**: the subscriber names the address for elements (its contact point). A contact point is
//! untrusted: the address policy judges it, and it has to give back a token before the first
//! element goes there. One of `https` comes with the fingerprint of its certificate, which is the only
//! one trusted there. Requests go one after another; a status of 2xx means *stored*, another one of
//! 4xx makes the element a dead letter of the origin, and anything else is tried again. A request of
//! XML has one element, or as many as the last answer allowed, each a document; several that are
//! refused together are sent again in halves. A subscription lives as long as it is renewed, which
//! needs the secret that its subscriber was given.
//!
//! **Pull**: the answer never ends. After 15 seconds of silence it sends a sign of life.

mod contact;
mod contact_point;
mod delivery;
mod directory;
mod kept;
mod outflow;
mod pull;
mod push;
mod request;
mod secret;
mod storing;
mod subscriber;
mod subscriptions;

use chappe_link::EPOCHS_MAX;
use chappe_stream::{Position, PositionError};
use serde::{Deserialize, Serialize};

pub use super::host::KeptSubscription;
pub use super::shared::PUSH_LETTERS;
pub use pull::PullBody;

pub(crate) use contact_point::ContactPoint;
pub(crate) use subscriber::{pull_link, push_link};
pub(crate) use subscriptions::Pushes;

use super::{LinkStart, Serialization};

/// Where subscriptions are made.
pub const SUBSCRIPTIONS_PATH: &str = "/api/v1/exchange/subscriptions";
/// Before the link's name and secret in the path of its contact point.
pub const CONTACT_POINTS_PATH: &str = "/api/v1/exchange/contact-points";
/// The header with a subscription's secret. It is not part of the path, which proxies log.
pub const SECRET_HEADER: &str = "chappe-subscription-secret";
/// The header of a contact point's answer with the largest number of elements of a request.
/// Without it a request of XML has one.
pub const ELEMENTS_MAX_HEADER: &str = "chappe-elements-max";
/// The value that this program's contact points send; reason: the log reads as many at once for a follower.
pub const CONTACT_ELEMENTS_MAX: usize = 256;
/// Before the name of a stream that is pulled.
pub const STREAMS_PATH: &str = "/api/v1/exchange/streams";
/// The directory.
pub const DIRECTORY_PATH: &str = "/api/v1/directory";

/// Follows the media type of elements that an operator sends again, which follow newer ones.
pub(crate) const SENT_AGAIN: &str = "; sent-again=1";

/// A subscriber wants elements at its contact point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// The stream.
    pub stream: String,
    /// Where its elements are to be sent: an `https` or `http` address with a literal IP host.
    pub contact_point: String,
    /// The SHA-256 of the certificate at an `https` contact point, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The newest element that the subscriber has; with it, `start` is not looked at.
    #[serde(default)]
    pub after: Option<String>,
    /// With `after`, the newest element that the subscriber has of each earlier epoch, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// Where to begin.
    #[serde(default)]
    pub start: LinkStart,
    /// How elements are to be written. Default: XML, one element a request.
    #[serde(default = "xml")]
    pub serialization: Serialization,
}

fn xml() -> Serialization {
    Serialization::Xml
}

/// A subscription is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionAnswer {
    /// Its id, which names it.
    pub id: String,
    /// Proves who made it: renewing and ending it need this. Empty: an origin that asks for none.
    #[serde(default)]
    pub secret: String,
    /// Seconds that it lives without being renewed.
    pub lease_s: u64,
    /// It starts after this position, `EPOCH:NUMBER`.
    #[serde(default)]
    pub after: Option<String>,
}

/// Proves that a subscription may be renewed or ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// The secret that was answered to the subscriber.
    Secret(&'a str),
    /// The operator of this node asks.
    Operator,
}

/// What a contact point is asked before the first element comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    /// To be given back.
    pub(crate) confirm: String,
}

/// A request for an endless answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequest {
    /// The stream.
    pub stream: String,
    /// The newest element that the subscriber has; with it, `start` is not looked at.
    pub after: Option<Position>,
    /// With `after`, the newest element that the subscriber has of each earlier epoch, the newest first.
    pub earlier: Vec<Position>,
    /// Where to begin.
    pub start: LinkStart,
    /// How elements are to be written; `None`: XML.
    pub serialization: Option<Serialization>,
}

/// Positions in a text, with commas between; at most as many as epochs are remembered.
///
/// # Errors
/// One that is no position.
pub fn positions(text: &str) -> Result<Vec<Position>, PositionError> {
    let positions = text.split(',').filter(|at| !at.is_empty());
    positions.take(EPOCHS_MAX).map(str::parse).collect()
}

/// A contact point has taken what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The status to be answered: 200 with a body, 204 without.
    pub status: u16,
    /// The body, JSON.
    pub body: Option<String>,
}
