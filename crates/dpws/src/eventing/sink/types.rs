//! Inputs and outputs of the event sink.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Str};

use crate::eventing::{EndStatus, EventingFault, Token, TreeOffer, TreeSink};
use crate::exchange::Reply;

/// Identifies a subscription of the sink; chosen by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionKey(pub u64);

/// The source of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The hosted service with the events.
    pub endpoint: EndpointReference,
    /// The host that announced the endpoint; the manager's address is checked against it.
    pub peer: SocketAddr,
    /// The requested actions; empty means all.
    pub actions: Vec<Str>,
    /// The requested lease.
    pub lease: Duration,
    /// Scheme, host and port of this sink for the source, without trailing slash.
    pub base: Str,
    /// The sink's address and criticality in notification trees; used if the source has trees and
    /// `actions` is not empty.
    pub tree: Option<TreeSink>,
}

/// A command of the application.
#[derive(Debug, Clone)]
pub enum SinkCommand {
    /// Subscribe, and keep the subscription alive until unsubscribed.
    Subscribe {
        /// A new key; an existing one replaces its subscription.
        key: SubscriptionKey,
        /// The source.
        source: Box<Source>,
    },
    /// Query the source's status because it may have lost the subscription, for example by a
    /// restart. It is queried at most once a second.
    Verify {
        /// The subscription.
        key: SubscriptionKey,
    },
    /// End a subscription.
    Unsubscribe {
        /// The subscription.
        key: SubscriptionKey,
    },
    /// End all subscriptions.
    Stop,
}

/// An input of the sink.
#[derive(Debug, Clone)]
pub enum SinkReceive {
    /// The result of a [`SinkTransmit::Request`]: the answer, possibly a fault, or the error.
    Answer {
        /// The request's number.
        request: u64,
        /// The answer.
        answer: Result<Box<Envelope>, Str>,
    },
    /// A message posted to this sink; it gets one [`SinkTransmit::Reply`].
    Posted {
        /// The open connection.
        token: Token,
        /// The sender.
        peer: SocketAddr,
        /// The path, with its leading slash.
        path: Str,
        /// The message.
        envelope: Box<Envelope>,
    },
    /// A verified event from the tree.
    Spread {
        /// The subscription.
        key: SubscriptionKey,
        /// Its message identifier: `urn:uuid:…`.
        message_id: Str,
        /// Its action.
        action: Str,
        /// The child of its body.
        body: Box<Element>,
    },
}

/// An output of the sink.
#[derive(Debug, Clone)]
pub enum SinkTransmit {
    /// Post this to the address in its `To`; report the result with [`SinkReceive::Answer`].
    Request {
        /// The request's number.
        request: u64,
        /// The subscription that it is about.
        key: SubscriptionKey,
        /// The message.
        envelope: Box<Envelope>,
    },
    /// The answer to a posted message.
    Reply {
        /// The open connection.
        token: Token,
        /// The reply.
        reply: Reply,
    },
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SinkEvent {
    /// The source granted the subscription.
    Subscribed {
        /// The subscription.
        key: SubscriptionKey,
        /// The lease.
        granted: Duration,
    },
    /// The source renewed the subscription, or confirmed it after an error.
    Renewed {
        /// The subscription.
        key: SubscriptionKey,
        /// The lease.
        granted: Duration,
    },
    /// The subscription ended. Unless it was unsubscribed or replaced, the sink subscribes again.
    Ended {
        /// The subscription.
        key: SubscriptionKey,
        /// The reason.
        reason: EndReason,
    },
    /// The source sends this subscription's events through the trees of its actions, until
    /// [`SinkEvent::Ended`].
    Tree {
        /// The subscription.
        key: SubscriptionKey,
        /// The source's trees; their addresses passed the check.
        offer: Box<TreeOffer>,
        /// The actions, each with a tree.
        actions: Vec<Str>,
    },
    /// A [`SinkReceive::Spread`] was not delivered: a duplicate, or no longer subscribed to.
    Ignored {
        /// The subscription.
        key: SubscriptionKey,
    },
    /// A notification, delivered once.
    Notification {
        /// The subscription.
        key: SubscriptionKey,
        /// Its action.
        action: Str,
        /// The child of its body.
        body: Element,
        /// Whether it was received through a tree and needs no answer.
        by_tree: bool,
    },
    /// An error of a subscription; the sink retries.
    Trouble {
        /// The subscription.
        key: SubscriptionKey,
        /// The error.
        reason: TroubleReason,
        /// The remedy, if known.
        hint: Option<&'static str>,
    },
    /// A posted message was rejected.
    Refused {
        /// The sender.
        peer: SocketAddr,
        /// The reason.
        reason: SinkRefusal,
    },
}

/// The reason why a subscription ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The application unsubscribed.
    Unsubscribed,
    /// The source ended it.
    Source {
        /// The status code.
        status: EndStatus,
        /// The source's explanation.
        reason: Option<Str>,
    },
    /// The source no longer has the subscription.
    Forgotten,
    /// The lease ended while the source did not answer.
    Expired,
    /// The application reused the key.
    Replaced,
}

/// The reason why a subscription fails.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleReason {
    /// A request got no answer.
    Unreachable(Str),
    /// The source rejected the subscription.
    Refused(EventingFault),
    /// The source answered with a fault from outside WS-Eventing.
    Fault(String),
    /// The source's answer is invalid.
    Unusable(String),
    /// The address check refused the manager's address.
    Address(String),
    /// The sink has reached its limit of subscriptions.
    Full,
}

impl std::fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(reason) => write!(f, "the source does not answer: {reason}"),
            Self::Refused(fault) => write!(f, "the source rejected the request: {fault}"),
            Self::Fault(fault) => write!(f, "the source answered with a fault: {fault}"),
            Self::Unusable(text) => write!(f, "the source's answer is invalid: {text}"),
            Self::Address(reason) => {
                write!(f, "the subscription manager's address is refused: {reason}")
            }
            Self::Full => f.write_str("the limit of subscriptions is reached"),
        }
    }
}

impl TroubleReason {
    /// The remedy, if known.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable(_) => {
                Some("check that the device is on and that its address is reachable")
            }
            Self::Refused(EventingFault::FilterActionNotSupported) => {
                Some("compare the requested actions with the service's WSDL")
            }
            Self::Refused(EventingFault::EventSourceUnableToProcess(_)) => Some(
                "the device's subscriptions may be used up by stale clients; restart the device or wait for their leases to end",
            ),
            Self::Address(_) => Some("allow the address in the node's configuration"),
            Self::Full => Some("raise the limit of subscriptions"),
            Self::Refused(_) | Self::Fault(_) | Self::Unusable(_) => None,
        }
    }
}

/// The reason why a posted message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SinkRefusal {
    /// No subscription has this path: it is forged, or its subscription has ended.
    Path,
    /// The action was not subscribed to.
    Action,
    /// The body is empty or does not fit the action.
    Malformed,
    /// A mandatory header is not understood.
    NotUnderstood,
}
