//! Links over HTTP: push to a contact point, and pull by an endless response.
//!
//! Both carry the documents of [`serialization`](super::serialization), and both deliver each
//! element exactly once: an element carries its position at the origin, and the receiver knows the
//! newest it has stored. The functions of [`Links`](super::Links) handle requests; the program with
//! the HTTP server calls them after it has authorized the reader:
//!
//! | request | function |
//! |---|---|
//! | `POST /api/v1/exchange/subscriptions` | `http_subscribe` |
//! | `PUT`, `DELETE /api/v1/exchange/subscriptions/ID` | `http_renew`, `http_end` |
//! | `PUT`, `POST /api/v1/exchange/contact-points/LINK/SECRET` | `http_take` |
//! | `GET /api/v1/exchange/streams/NAME` | `http_pull` |
//! | `GET /api/v1/directory?streams=NAMES&serialization=WORD` | `http_directory` |
//!
//! **Push**: the subscriber names an address for elements, its contact point. The address is
//! untrusted: the address policy checks it, and it has to return a token before the first element
//! is sent. An `https` contact point comes with the fingerprint of its certificate, the only one
//! trusted there. Requests are sequential; a status of 2xx means *stored*, another 4xx makes the
//! element a dead letter of the origin, and any other status is retried. An XML request has one
//! element, or as many as the last response allowed, each a document; several that are refused
//! together are sent again in halves. A subscription lives as long as it is renewed, which needs
//! the secret that its subscriber received.
//!
//! **Pull**: the response never ends. After 15 seconds of silence it sends a keep-alive.

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
pub(crate) use subscriptions::PushSubscriptions;

use super::{LinkStart, Serialization};

/// The path for new subscriptions.
pub const SUBSCRIPTIONS_PATH: &str = "/api/v1/exchange/subscriptions";
/// The prefix of the link's name and secret in the path of its contact point.
pub const CONTACT_POINTS_PATH: &str = "/api/v1/exchange/contact-points";
/// The header with a subscription's secret. It is not in the path because proxies log paths.
pub const SECRET_HEADER: &str = "chappe-subscription-secret";
/// The header of a contact point's response with the largest number of elements of a request.
/// Without it an XML request has one.
pub const ELEMENTS_MAX_HEADER: &str = "chappe-elements-max";
/// The value that contact points of this program send; reason: a follower reads as many from the
/// log at once.
pub const CONTACT_ELEMENTS_MAX: usize = 256;
/// The prefix of a pulled stream's name.
pub const STREAMS_PATH: &str = "/api/v1/exchange/streams";
/// The path of the directory.
pub const DIRECTORY_PATH: &str = "/api/v1/directory";

/// Follows the media type of elements that an operator sends again; they may follow newer ones.
pub(crate) const SENT_AGAIN: &str = "; sent-again=1";

/// A request for elements at a contact point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// The stream.
    pub stream: String,
    /// The address for its elements: an `https` or `http` address with a literal IP host.
    pub contact_point: String,
    /// The SHA-256 of the certificate at an `https` contact point, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The newest element that the subscriber has; overrides `start`.
    #[serde(default)]
    pub after: Option<String>,
    /// With `after`, the newest element that the subscriber has of each earlier epoch, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The start position.
    #[serde(default)]
    pub start: LinkStart,
    /// The serialization of elements. Default: XML, one element per request.
    #[serde(default = "xml")]
    pub serialization: Serialization,
}

fn xml() -> Serialization {
    Serialization::Xml
}

/// The response to a new subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionAnswer {
    /// The subscription's id.
    pub id: String,
    /// Proves who subscribed: renewing and ending need it. Empty from an origin that requires none.
    #[serde(default)]
    pub secret: String,
    /// Lifetime in seconds without renewal.
    pub lease_s: u64,
    /// The subscription starts after this position, `EPOCH:NUMBER`.
    #[serde(default)]
    pub after: Option<String>,
}

/// Authorizes renewing or ending a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// The secret that the subscriber received.
    Secret(&'a str),
    /// A request of this node's operator.
    Operator,
}

/// The confirmation request to a contact point before the first element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    /// The token to return.
    pub(crate) confirm: String,
}

/// A request for an endless response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequest {
    /// The stream.
    pub stream: String,
    /// The newest element that the subscriber has; overrides `start`.
    pub after: Option<Position>,
    /// With `after`, the newest element that the subscriber has of each earlier epoch, the newest first.
    pub earlier: Vec<Position>,
    /// The start position.
    pub start: LinkStart,
    /// The serialization of elements; `None`: XML.
    pub serialization: Option<Serialization>,
}

/// Parses positions separated by commas, at most as many as the epochs that are remembered.
///
/// # Errors
/// One that is not a position.
pub fn positions(text: &str) -> Result<Vec<Position>, PositionError> {
    let positions = text.split(',').filter(|at| !at.is_empty());
    positions.take(EPOCHS_MAX).map(str::parse).collect()
}

/// The response of a contact point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The HTTP status: 200 with a body, 204 without.
    pub status: u16,
    /// The body, JSON.
    pub body: Option<String>,
}
