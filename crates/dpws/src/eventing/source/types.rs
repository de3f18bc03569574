//! What the event source takes and gives.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use chappe_soap::Envelope;
use chappe_xml::{Element, Str};

use crate::eventing::{EndStatus, Token, TreePeer, TreeSink};

/// Names a subscription; secret between source and subscriber.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub(super) u128);

impl SubscriptionId {
    /// The form in addresses: 32 hexadecimal digits.
    pub(super) fn path(self) -> String {
        format!("{:032x}", self.0)
    }

    pub(super) fn from_path(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

/// Only the first digits: who knows all may renew and unsubscribe.
impl fmt::Debug for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.0 >> 96)
    }
}

/// A request to the source or to a subscription manager.
#[derive(Debug, Clone)]
pub struct Request {
    /// Names the open connection.
    pub token: Token,
    /// Who asks.
    pub peer: SocketAddr,
    /// Scheme, host and port under which the request came in, without last slash.
    pub base: Str,
    /// The path of the request, with its first slash.
    pub path: Str,
    /// The message.
    pub envelope: Envelope,
}

/// What arrives at the source.
#[derive(Debug, Clone)]
pub enum SourceReceive {
    /// A request; each gets one [`SourceTransmit::Response`].
    Request(Box<Request>),
    /// A notification was taken (HTTP status 200 or 202).
    Delivered {
        /// Which.
        delivery: u64,
    },
    /// A notification was not taken.
    Failed {
        /// Which.
        delivery: u64,
        /// Why.
        failure: Failure,
    },
    /// What [`SourceTransmit::Prove`] found out.
    Proven {
        /// Who was asked.
        peer: TreePeer,
        /// Whether the holder of its key answered at its address.
        there: bool,
    },
    /// What became of a [`SourceTransmit::Spread`].
    Spread {
        /// Which.
        delivery: u64,
        /// How many sinks have it for certain.
        delivered: u64,
        /// The others.
        missed: Vec<TreePeer>,
    },
    /// A [`SourceTransmit::Spread`] did not go: too large, or too many under way.
    NotSpread {
        /// Which.
        delivery: u64,
    },
}

/// Why a notification was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection, no answer, or a failure of the sink's (HTTP status 5xx): worth repeating.
    Unreachable,
    /// The sink refuses it (HTTP status 4xx): not repeated.
    Refused,
}

/// What the device asks of its event source.
#[derive(Debug, Clone)]
pub enum SourceCommand {
    /// Something happened: tell whoever wants to know.
    Notify {
        /// The action of the event.
        action: Str,
        /// The child of the body.
        body: Element,
    },
    /// End one subscription.
    Cancel {
        /// Which.
        subscription: SubscriptionId,
        /// Why, for a person to read.
        reason: Str,
    },
    /// The device stops: end all, take no new ones.
    Shutdown,
}

/// What goes out of the source.
#[derive(Debug, Clone)]
pub enum SourceTransmit {
    /// The answer to a request.
    Response {
        /// Whose.
        token: Token,
        /// The message; a fault when it refuses.
        envelope: Box<Envelope>,
    },
    /// A message to a sink; what became of it is told by [`SourceReceive::Delivered`] or
    /// [`SourceReceive::Failed`].
    Notify(Box<Notification>),
    /// Ask whether this sink is where it says; answered by [`SourceReceive::Proven`]. Nothing else is
    /// sent to the address before.
    Prove {
        /// An action that it has subscribed to.
        action: Str,
        /// The sink.
        peer: TreePeer,
    },
    /// The sinks of an action's tree have changed.
    Members {
        /// The action.
        action: Str,
        /// All of them now, each once, with the most that its subscriptions say of how critical it is.
        sinks: Vec<TreeSink>,
    },
    /// An event for the sinks on the tree of its action; what became of it is told by
    /// [`SourceReceive::Spread`] or [`SourceReceive::NotSpread`].
    Spread(Box<Spread>),
}

/// An event for a tree.
#[derive(Debug, Clone)]
pub struct Spread {
    /// Names it in the result.
    pub delivery: u64,
    /// The action.
    pub action: Str,
    /// The identifier that a standard notification of it has, too: `urn:uuid:…`.
    pub message_id: Str,
    pub(super) body: SharedBody,
}

impl Spread {
    /// The child of the body.
    #[must_use]
    pub fn body(&self) -> &Element {
        &self.body.0.0
    }
}

/// A message to a sink. Its body is shared by all sinks of the event.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Names it in the result.
    pub delivery: u64,
    /// Of which subscription.
    pub subscription: SubscriptionId,
    head: Envelope,
    body: SharedBody,
}

/// An element, and its text once that is needed.
#[derive(Debug, Clone)]
pub(super) struct SharedBody(Arc<(Element, OnceLock<String>)>);

impl SharedBody {
    pub(super) fn new(element: Element) -> Self {
        Self(Arc::new((element, OnceLock::new())))
    }
}

impl Notification {
    pub(super) fn new(
        delivery: u64,
        subscription: SubscriptionId,
        head: Envelope,
        body: SharedBody,
    ) -> Self {
        Self {
            delivery,
            subscription,
            head,
            body,
        }
    }

    /// The address to post to.
    #[must_use]
    pub fn to(&self) -> &str {
        self.head.addressing.to.as_deref().unwrap_or_default()
    }

    /// The action.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.head.addressing.action
    }

    /// The message as a value.
    #[must_use]
    pub fn to_envelope(&self) -> Envelope {
        self.head.clone().with_body(self.body.0.0.clone())
    }

    /// The message as text. The body's text is made once for all sinks of the event.
    #[must_use]
    pub fn to_text(&self) -> String {
        const EMPTY: &str = "<soap:Body/>";
        let head = self.head.to_text();
        let (element, text) = &*self.body.0;
        let Some((before, after)) = head.rsplit_once(EMPTY) else {
            return self.to_envelope().to_text();
        };
        let body = text.get_or_init(|| element.to_text());
        format!("{before}<soap:Body>{body}</soap:Body>{after}")
    }
}

/// What the device is told by its event source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceEvent {
    /// Somebody subscribed.
    Subscribed {
        /// The new subscription.
        subscription: SubscriptionId,
        /// Who.
        peer: SocketAddr,
        /// What is wanted.
        actions: Vec<Str>,
    },
    /// A subscriber is still interested.
    Renewed {
        /// Which.
        subscription: SubscriptionId,
    },
    /// A subscriber is no longer interested.
    Unsubscribed {
        /// Which.
        subscription: SubscriptionId,
    },
    /// A lease passed without renewal.
    Expired {
        /// Which.
        subscription: SubscriptionId,
    },
    /// The source ended a subscription.
    Ended {
        /// Which.
        subscription: SubscriptionId,
        /// Why.
        status: EndStatus,
    },
    /// Notifications will not be delivered.
    Dropped {
        /// Of which subscription.
        subscription: SubscriptionId,
        /// Why.
        reason: DropReason,
        /// How many.
        count: usize,
    },
    /// A sink that asked for the tree gets standard notifications, for now or for good.
    OffTree {
        /// Of which subscription.
        subscription: SubscriptionId,
        /// Why, for a person to read.
        reason: &'static str,
    },
    /// A request was refused with a fault.
    Refused {
        /// Who asked.
        peer: SocketAddr,
        /// Why.
        reason: SourceRefusal,
        /// More about it.
        detail: String,
    },
}

/// Why notifications are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The sink is slower than the events: the oldest waiting one made place.
    QueueFull,
    /// The sink refused it.
    Refused,
    /// Its subscription ended before it was delivered.
    Ended,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SourceRefusal {
    /// As many subscriptions as permitted.
    Full,
    /// As many subscriptions of this peer as permitted.
    PeerFull,
    /// Another delivery mode than push.
    DeliveryMode,
    /// Another filter dialect than that of actions.
    FilterDialect,
    /// No wanted action is offered here.
    FilterAction,
    /// More actions than permitted.
    FilterSize,
    /// An expiration that cannot be.
    Expiration,
    /// Expiration by date without a clock.
    ExpirationType,
    /// A message that is not what its action says.
    Malformed,
    /// An address that must not be contacted.
    Address,
    /// No such subscription.
    Unknown,
    /// An action that is none of WS-Eventing's requests.
    Action,
    /// Nothing can be subscribed to at this path.
    Path,
    /// The device stops.
    Stopping,
}
