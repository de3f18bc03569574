//! Inputs and outputs of the event source.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chappe_soap::{Body, Envelope};
use chappe_xml::{Element, Str};

use crate::eventing::{EndStatus, Offer, Token, TreePeer, TreeSink};

/// Identifies a subscription; known only to source and subscriber.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub(super) u128);

impl SubscriptionId {
    /// The form in paths: 32 hexadecimal digits. It permits Renew and Unsubscribe, so it is confidential.
    #[must_use]
    pub fn path(self) -> String {
        format!("{:032x}", self.0)
    }

    /// Reads the form in paths.
    #[must_use]
    pub fn from_path(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

/// Prints only the first digits, since the full identifier permits Renew and Unsubscribe.
impl fmt::Debug for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.0 >> 96)
    }
}

/// A request to the source or to a subscription manager.
#[derive(Debug, Clone)]
pub struct Request {
    /// The open connection.
    pub token: Token,
    /// The sender.
    pub peer: SocketAddr,
    /// Scheme, host and port of the request, without trailing slash.
    pub base: Str,
    /// The path of the request, with its leading slash.
    pub path: Str,
    /// The message.
    pub envelope: Envelope,
}

/// An input of the source.
#[derive(Debug, Clone)]
pub enum SourceReceive {
    /// A request; each gets one [`SourceTransmit::Response`].
    Request(Box<Request>),
    /// A notification was accepted (HTTP status 200 or 202).
    Delivered {
        /// The delivery's number.
        delivery: u64,
    },
    /// A notification was not accepted.
    Failed {
        /// The delivery's number.
        delivery: u64,
        /// The reason.
        failure: Failure,
    },
    /// The result of [`SourceTransmit::Prove`].
    Proven {
        /// The sink.
        peer: TreePeer,
        /// Whether the holder of its key answered at its address.
        is_reachable: bool,
    },
    /// The result of a [`SourceTransmit::Spread`].
    Spread {
        /// The delivery's number.
        delivery: u64,
        /// Sinks that confirmed the event.
        delivered: u64,
        /// Sinks that did not.
        missed: Vec<TreePeer>,
    },
    /// A [`SourceTransmit::Spread`] was not sent: too large, or too many in flight.
    NotSpread {
        /// The delivery's number.
        delivery: u64,
    },
}

/// The reason why a notification was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection, no answer, or an error of the sink (HTTP status 5xx): retried.
    Unreachable,
    /// The sink rejects it (HTTP status 4xx): not retried.
    Refused,
    /// This host has no file, port or buffer left for a connection: retried, and never the end of the subscription,
    /// since the sink is not to blame.
    Local,
}

impl Failure {
    /// That of a message without an answer: of this host, or of the sink and the way to it.
    #[must_use]
    pub fn of(is_local: bool) -> Self {
        match is_local {
            true => Self::Local,
            false => Self::Unreachable,
        }
    }
}

/// A command of the device.
#[derive(Debug, Clone)]
pub enum SourceCommand {
    /// Notify the subscribers of an action.
    Notify {
        /// The action of the event.
        action: Str,
        /// The child of the body.
        body: Body,
    },
    /// Notify the subscribers of a state, of which only the latest counts. It replaces a notification
    /// with the same key that still waits for a sink, which is not counted as dropped.
    NotifyLatest {
        /// The subject of the state.
        key: Str,
        /// The action of the event.
        action: Str,
        /// The child of the body.
        body: Body,
    },
    /// End one subscription.
    Cancel {
        /// The subscription.
        subscription: SubscriptionId,
        /// The reason, for people.
        reason: Str,
    },
    /// Replace the services with events. Subscriptions keep the actions that are still offered, and end
    /// without any.
    Offer(Vec<Offer>),
    /// End all subscriptions and accept no new ones.
    Shutdown,
    /// Go on with a subscription of an earlier run, which is reported like a new one.
    Restore {
        /// The identifier that it has.
        subscription: SubscriptionId,
        /// The Subscribe that it was made by. It gets no response.
        request: Box<Request>,
        /// What is left of its lease.
        lease: Duration,
    },
}

/// An output of the source.
#[derive(Debug, Clone)]
pub enum SourceTransmit {
    /// The answer to a request.
    Response {
        /// The open connection.
        token: Token,
        /// The message, possibly a fault.
        envelope: Box<Envelope>,
    },
    /// A message to a sink; the result is reported with [`SourceReceive::Delivered`] or
    /// [`SourceReceive::Failed`].
    Notify(Box<Notification>),
    /// Prove that this sink is at its address; the result is reported with
    /// [`SourceReceive::Proven`]. The tree sends nothing else to the address before.
    Prove {
        /// A subscribed action of the sink.
        action: Str,
        /// The sink.
        peer: TreePeer,
    },
    /// The sinks of an action's tree have changed.
    Members {
        /// The action.
        action: Str,
        /// All current members, each once, with the highest criticality of its subscriptions.
        sinks: Vec<TreeSink>,
    },
    /// An event for the members of its action's tree; the result is reported with
    /// [`SourceReceive::Spread`] or [`SourceReceive::NotSpread`].
    Spread(Box<Spread>),
}

/// An event for a tree.
#[derive(Debug, Clone)]
pub struct Spread {
    /// The delivery's number.
    pub delivery: u64,
    /// The action.
    pub action: Str,
    /// The identifier, common with the event's standard notifications: `urn:uuid:…`.
    pub message_id: Str,
    pub(super) body: SharedBody,
}

impl Spread {
    /// The child of the body.
    #[must_use]
    pub fn body(&self) -> &Element {
        self.body.element()
    }
}

/// A message to a sink. Its body is shared by all sinks of the event.
#[derive(Debug, Clone)]
pub struct Notification {
    /// The delivery's number.
    pub delivery: u64,
    /// The subscription.
    pub subscription: SubscriptionId,
    headers: Envelope,
    body: SharedBody,
}

/// The body of an event, and once needed its tree and its text.
#[derive(Debug, Clone)]
pub(super) struct SharedBody(Arc<(Body, OnceLock<Element>, OnceLock<String>)>);

impl SharedBody {
    pub(super) fn new(body: Body) -> Self {
        Self(Arc::new((body, OnceLock::new(), OnceLock::new())))
    }

    /// Its tree, which filters and notification trees need.
    pub(super) fn element(&self) -> &Element {
        match &*self.0 {
            (Body::Tree(element), ..) => element,
            // A message that was written by its type is a document within the limits.
            (body, tree, _) => tree.get_or_init(|| body.clone().into_element().unwrap_or_default()),
        }
    }

    /// Its text with the declarations that it needs.
    fn text(&self) -> &str {
        let (body, _, text) = &*self.0;
        match body.text() {
            Some(text) => text,
            None => text.get_or_init(|| self.element().to_text()),
        }
    }
}

impl Notification {
    pub(super) fn new(
        delivery: u64,
        subscription: SubscriptionId,
        headers: Envelope,
        body: SharedBody,
    ) -> Self {
        Self {
            delivery,
            subscription,
            headers,
            body,
        }
    }

    /// The address to post to.
    #[must_use]
    pub fn to(&self) -> &str {
        self.headers.addressing.to.as_deref().unwrap_or_default()
    }

    /// The action.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.headers.addressing.action
    }

    /// The message as a value.
    #[must_use]
    pub fn to_envelope(&self) -> Envelope {
        self.headers.clone().with_body(self.body.element().clone())
    }

    /// The message as text. All sinks of the event share the body's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        const EMPTY: &str = "<soap:Body/>";
        let headers = self.headers.to_text();
        let Some((before, after)) = headers.rsplit_once(EMPTY) else {
            return self.to_envelope().to_text();
        };
        let body = self.body.text();
        format!("{before}<soap:Body>{body}</soap:Body>{after}")
    }
}

/// An event for the device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A sink subscribed.
    Subscribed {
        /// The new subscription.
        subscription: SubscriptionId,
        /// The subscriber.
        peer: SocketAddr,
        /// The subscribed actions.
        actions: Vec<Str>,
    },
    /// A subscription was renewed.
    Renewed {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// A sink unsubscribed.
    Unsubscribed {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// A lease ended without renewal.
    Expired {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// The source ended a subscription.
    Ended {
        /// The subscription.
        subscription: SubscriptionId,
        /// The status code.
        status: EndStatus,
    },
    /// Notifications were dropped.
    Dropped {
        /// The subscription.
        subscription: SubscriptionId,
        /// The reason.
        reason: DropReason,
        /// The number of notifications.
        count: usize,
    },
    /// A sink that supports trees gets standard notifications.
    OffTree {
        /// The subscription.
        subscription: SubscriptionId,
        /// The reason, for people.
        reason: &'static str,
    },
    /// A request was rejected with a fault.
    Refused {
        /// The sender.
        peer: SocketAddr,
        /// The reason.
        reason: SourceRefusal,
        /// The fault's text.
        detail: String,
    },
}

/// The reason why notifications are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The sink is slower than the events: the oldest waiting one made place.
    QueueFull,
    /// The sink rejected it.
    Refused,
    /// Its subscription ended before the delivery.
    Ended,
}

/// The reason why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SourceRefusal {
    /// The limit of subscriptions is reached, and no host has enough more than the sender's to lose one.
    Full,
    /// The limit of subscriptions of the sender's host is reached.
    PeerFull,
    /// A delivery mode other than push.
    DeliveryMode,
    /// A filter dialect other than that of actions.
    FilterDialect,
    /// The path offers none of the requested actions.
    FilterAction,
    /// The filter has too many actions.
    FilterSize,
    /// The expiration is invalid.
    Expiration,
    /// An expiration by date, but the source has no clock.
    ExpirationType,
    /// The message does not fit its action.
    Malformed,
    /// The address check refused an address.
    Address,
    /// The subscription does not exist.
    Unknown,
    /// The action is not a request of WS-Eventing.
    Action,
    /// The path offers no events.
    Path,
    /// The device is shutting down.
    Stopping,
}
