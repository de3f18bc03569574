//! A device as it answers: metadata, WSDL, subscriptions and operations, over HTTP.
//!
//! [`Device`] is a machine: a request with its path comes in, the reply goes out with status code
//! and content; operations of the application are events that it answers with a command. It holds
//! the device's [`EventSource`](crate::eventing::EventSource).
//!
//! Sources: DPWS 1.1, sections 2 (messaging) and 4 (description); WS-Addressing 1.0 SOAP binding,
//! sections 5 and 6; SOAP 1.2 part 2, section 7 (HTTP). Deliberately absent: answers on another
//! connection than the request's, attachments, the application's own media types.

mod device;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_soap::wsdl::{OperationKind, Wsdl};
use chappe_soap::{EndpointReference, Envelope, Fault};
use chappe_xml::{Element, Name, Str};

use crate::eventing::{
    Failure, Notification, SourceCommand, SourceConfig, SourceEvent, SourceReceive, SourceTransmit,
    Token,
};
use crate::exchange::Reply;
use crate::metadata::{ThisDevice, ThisModel};

pub use device::Device;

/// How a [`Device`] is and behaves.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// The stable endpoint, `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// The path of the device itself, with its first slash. Default `/device`.
    pub path: Str,
    /// Its types; `dpws:Device` is added in the dialect of each message.
    pub types: Vec<Name>,
    /// Its model.
    pub this_model: ThisModel,
    /// Itself.
    pub this_device: ThisDevice,
    /// Its services.
    pub services: Vec<HostedService>,
    /// How its event source behaves; what it offers is taken from the services.
    pub eventing: SourceConfig,
    /// Headers that the application understands when they demand it.
    pub understood: Vec<Name>,
    /// Operations that wait for the application. Default 256: one for each HTTP connection.
    pub invocations_max: usize,
    /// After this an operation without answer is answered with a fault. Default 30 s.
    pub invocation_timeout: Duration,
}

impl DeviceConfig {
    /// A device with this endpoint and these services.
    #[must_use]
    pub fn new(endpoint: EndpointReference, services: Vec<HostedService>) -> Self {
        Self {
            endpoint,
            path: "/device".into(),
            types: Vec::new(),
            this_model: ThisModel::default(),
            this_device: ThisDevice::default(),
            services,
            eventing: SourceConfig::default(),
            understood: Vec::new(),
            invocations_max: 256,
            invocation_timeout: Duration::from_secs(30),
        }
    }
}

/// A service of the device.
#[derive(Debug, Clone)]
pub struct HostedService {
    /// Unique in the device (a URI).
    pub service_id: Str,
    /// Its path, with its first slash.
    pub path: Str,
    /// What it can be asked and what events it sends.
    pub wsdl: Wsdl,
    /// The document that is served.
    document: Arc<str>,
}

impl HostedService {
    /// A service described by its WSDL.
    #[must_use]
    pub fn new(service_id: impl Into<Str>, path: impl Into<Str>, wsdl: Wsdl) -> Self {
        let document = wsdl.to_text().into();
        Self {
            service_id: service_id.into(),
            path: path.into(),
            wsdl,
            document,
        }
    }

    /// Its types: the names of its port types.
    #[must_use]
    pub fn types(&self) -> Vec<Name> {
        let names = self
            .wsdl
            .port_types
            .iter()
            .map(|port_type| port_type.name.clone());
        names.collect()
    }

    /// The actions of its events.
    #[must_use]
    pub fn events(&self) -> Vec<Str> {
        let actions = self
            .wsdl
            .events()
            .map(|(action, _)| Str::Owned(action.to_owned()));
        actions.collect()
    }
}

/// A request as HTTP brings it.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Names the open connection.
    pub token: Token,
    /// Who asks.
    pub peer: SocketAddr,
    /// Scheme, host and port under which the request came in, without last slash; endpoints are
    /// told under the same.
    pub base: Str,
    /// The path with its first slash, and the query.
    pub target: Str,
    /// What is asked.
    pub method: Method,
}

/// What HTTP asks.
#[derive(Debug, Clone)]
pub enum Method {
    /// A document.
    Get,
    /// A message, or why the body is none.
    Post(Result<Box<Envelope>, chappe_soap::Error>),
    /// Anything else.
    Other,
}

/// What arrives at the device.
#[derive(Debug, Clone)]
pub enum DeviceReceive {
    /// A request; each gets one [`DeviceTransmit::Reply`].
    Http(Box<HttpRequest>),
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
    /// What became of something on a notification tree, for the event source.
    Tree(SourceReceive),
}

/// What the application asks of the device.
#[derive(Debug, Clone)]
pub enum DeviceCommand {
    /// Answers an operation.
    Reply {
        /// Which, from [`DeviceEvent::Invoked`].
        token: Token,
        /// The child of the body, or what went wrong.
        result: Result<Option<Element>, Fault>,
    },
    /// For the event source.
    Eventing(SourceCommand),
    /// What the device says of itself has changed.
    Describe(Box<ThisDevice>),
}

/// What goes out of the device.
#[derive(Debug, Clone)]
pub enum DeviceTransmit {
    /// The answer to a request.
    Reply {
        /// Whose.
        token: Token,
        /// What to say.
        reply: Reply,
    },
    /// A message to a sink.
    Notify(Box<Notification>),
    /// What the event source has to do with notification trees: it is none of answers and notifications.
    Tree(SourceTransmit),
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// An operation is asked for.
    Invoked(Box<Invocation>),
    /// The asker will not see an answer any more: the application took too long.
    Overdue {
        /// Which.
        token: Token,
    },
    /// Of the event source.
    Eventing(SourceEvent),
    /// A request was refused.
    Refused {
        /// Who asked.
        peer: SocketAddr,
        /// Why.
        reason: HostRefusal,
        /// More about it.
        detail: String,
    },
}

/// An operation that the application is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// To be given back with the answer; of a one-way operation nobody waits.
    pub token: Token,
    /// Who asks.
    pub peer: SocketAddr,
    /// The service.
    pub service_id: Str,
    /// The name of the operation.
    pub operation: String,
    /// Its kind: one-way, or request and response.
    pub kind: OperationKind,
    /// The action of the request.
    pub action: Str,
    /// The child of the body.
    pub body: Option<Element>,
    /// The headers that are not addressing.
    pub headers: Vec<Element>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HostRefusal {
    /// Nothing is at this path.
    Path,
    /// Neither GET of a document nor POST of a message.
    Method,
    /// The body is no message.
    Unreadable,
    /// A header that must be understood is not.
    NotUnderstood,
    /// Addressing headers that are missing or cannot be served.
    Addressing,
    /// The message is for another endpoint.
    Destination,
    /// No such action at this path.
    Action,
    /// As many operations wait for the application as permitted.
    Busy,
    /// The application did not answer in time.
    Overdue,
    /// The application answered what nobody asked, or too late.
    Answer,
}
