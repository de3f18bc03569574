//! What the event sink takes and gives.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Str};

use crate::eventing::{EndStatus, EventingFault, Token, TreeOffer, TreeSink};
use crate::exchange::Reply;

/// Names a subscription of the sink's; chosen by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionKey(pub u64);

/// What to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The hosted service with the events.
    pub endpoint: EndpointReference,
    /// Who named that endpoint: the manager it names later is judged by this.
    pub peer: SocketAddr,
    /// The wanted actions; none means all.
    pub actions: Vec<Str>,
    /// The wanted lease.
    pub lease: Duration,
    /// Scheme, host and port at which the source reaches this sink, without last slash.
    pub base: Str,
    /// Where this sink takes events of a tree, if the source spreads them so and actions are named, and how
    /// critical it is.
    pub tree: Option<TreeSink>,
}

/// What the application asks of the sink.
#[derive(Debug, Clone)]
pub enum SinkCommand {
    /// Subscribe, and stay subscribed until told otherwise.
    Subscribe {
        /// A new name; that of a present subscription replaces it.
        key: SubscriptionKey,
        /// What to subscribe to.
        source: Box<Source>,
    },
    /// The source may have forgotten the subscription (it was seen to restart): ask it.
    Doubt {
        /// Which.
        key: SubscriptionKey,
    },
    /// End a subscription.
    Unsubscribe {
        /// Which.
        key: SubscriptionKey,
    },
    /// End all.
    Stop,
}

/// What arrives at the sink.
#[derive(Debug, Clone)]
pub enum SinkReceive {
    /// What became of a [`SinkTransmit::Request`]: the answer, also when it is a fault, or why
    /// there is none.
    Answer {
        /// Which request.
        request: u64,
        /// The answer.
        answer: Result<Box<Envelope>, Str>,
    },
    /// A message was posted to this sink; it gets one [`SinkTransmit::Reply`].
    Posted {
        /// Names the open connection.
        token: Token,
        /// Who posted.
        peer: SocketAddr,
        /// The path, with its first slash.
        path: Str,
        /// The message.
        envelope: Box<Envelope>,
    },
    /// An event came by the tree, verified.
    Spread {
        /// Of which subscription.
        key: SubscriptionKey,
        /// Its identifier: `urn:uuid:…`.
        message_id: Str,
        /// Its action.
        action: Str,
        /// Its content.
        body: Box<Element>,
    },
}

/// What goes out of the sink.
#[derive(Debug, Clone)]
pub enum SinkTransmit {
    /// Post this to the address in its `To`, answer with [`SinkReceive::Answer`].
    Request {
        /// Names it in the answer.
        request: u64,
        /// The message.
        envelope: Box<Envelope>,
    },
    /// The answer to a posted message.
    Reply {
        /// Whose.
        token: Token,
        /// What to say.
        reply: Reply,
    },
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SinkEvent {
    /// The source granted the subscription.
    Subscribed {
        /// Which.
        key: SubscriptionKey,
        /// For how long.
        granted: Duration,
    },
    /// The source granted it again, or said after a trouble that it still stands.
    Renewed {
        /// Which.
        key: SubscriptionKey,
        /// For how long.
        granted: Duration,
    },
    /// The subscription ended. Unless it was unsubscribed, the sink subscribes again.
    Ended {
        /// Which.
        key: SubscriptionKey,
        /// Why.
        why: EndReason,
    },
    /// The source spreads events of this subscription on the trees of its actions, until
    /// [`SinkEvent::Ended`].
    Tree {
        /// Which.
        key: SubscriptionKey,
        /// What the source says of its trees; its addresses were judged.
        offer: Box<TreeOffer>,
        /// The actions, each with a tree.
        actions: Vec<Str>,
    },
    /// A [`SinkReceive::Spread`] was not handed out: it came before, or nobody wants it any more.
    NotTaken {
        /// Of which subscription.
        key: SubscriptionKey,
    },
    /// A notification, each one once.
    Notification {
        /// Of which subscription.
        key: SubscriptionKey,
        /// Its action.
        action: Str,
        /// The child of its body.
        body: Element,
        /// It came by a tree; nobody waits for an answer.
        by_tree: bool,
    },
    /// Something is wrong that the sink goes on trying to mend.
    Trouble {
        /// With which subscription.
        key: SubscriptionKey,
        /// What.
        reason: TroubleReason,
        /// What to do about it, if something is known.
        hint: Option<&'static str>,
    },
    /// A posted message was refused.
    Refused {
        /// Who posted it.
        peer: SocketAddr,
        /// Why.
        reason: SinkRefusal,
    },
}

/// Why a subscription ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The application wanted it.
    Unsubscribed,
    /// The source said so.
    Source {
        /// Why.
        status: EndStatus,
        /// In words.
        reason: Option<Str>,
    },
    /// The source does not know it any more.
    Forgotten,
    /// The lease passed while the source did not answer.
    Expired,
    /// The application took the key for another one.
    Replaced,
}

/// What is wrong with a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleReason {
    /// A request got no answer.
    Unreachable(Str),
    /// The source refused.
    Refused(EventingFault),
    /// The source answered with a fault that is none of eventing's.
    Fault(String),
    /// The source answered something that cannot be used.
    Unusable(String),
    /// The manager's address must not be contacted.
    Address(String),
    /// As many subscriptions as permitted.
    Full,
}

impl std::fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the source does not answer: {why}"),
            Self::Refused(fault) => write!(f, "the source refuses: {fault}"),
            Self::Fault(fault) => write!(f, "the source answers with {fault}"),
            Self::Unusable(what) => write!(f, "the source's answer is not usable: {what}"),
            Self::Address(why) => write!(f, "the manager's address is not contacted: {why}"),
            Self::Full => f.write_str("there are as many subscriptions as permitted"),
        }
    }
}

impl TroubleReason {
    /// What to do about it, if something is known.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable(_) => {
                Some("check that the device is on and its address is reachable")
            }
            Self::Refused(EventingFault::FilterActionNotSupported) => {
                Some("compare the actions with those in the service's WSDL")
            }
            Self::Refused(EventingFault::EventSourceUnableToProcess(_)) => {
                Some("the device may be full of subscriptions of clients that are gone")
            }
            Self::Address(_) => Some("allow the address in the node's configuration"),
            Self::Full => Some("raise the sink's limit of subscriptions"),
            Self::Refused(_) | Self::Fault(_) | Self::Unusable(_) => None,
        }
    }
}

/// Why a posted message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SinkRefusal {
    /// No subscription has this path: forged, or of one that ended.
    Path,
    /// An action that was not subscribed to.
    Action,
    /// Without body, or not what its action says.
    Malformed,
    /// A header that must be understood and is not.
    NotUnderstood,
}
