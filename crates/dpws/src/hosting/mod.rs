//! A device's answers over HTTP: metadata, WSDL, subscriptions and operations.
//!
//! [`Device`] is a machine: its input is a request with its path, its output a reply with status
//! code and content. The application's operations are events that it answers with a command. A Probe
//! sent to the device's path is answered there too. The device contains its [`EventSource`](crate::eventing::EventSource).
//!
//! Sources: DPWS 1.1, sections 2 (messaging) and 4 (description); WS-Addressing 1.0 SOAP binding,
//! Not implemented: answers on another connection than the request's, attachments, media types of
//! the application.

mod device;
mod probe;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::ClientCertificate;
use chappe_soap::wsdl::{OperationKind, Wsdl};
use chappe_soap::{Body, EndpointReference, Fault, LazyEnvelope};
use chappe_xml::{Element, Name, Str};

use crate::eventing::{
    Failure, Notification, SourceCommand, SourceConfig, SourceEvent, SourceReceive, SourceTransmit,
    Token,
};
use crate::exchange::Reply;
use crate::exi::ServiceSchema;
use crate::metadata::{ThisDevice, ThisModel};

pub use device::Device;

/// Configuration of a [`Device`].
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// The stable endpoint, `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// The path of the device, with its leading slash. Default `/device`.
    pub path: Str,
    /// Its types; `dpws:Device` is added in the dialect of each message.
    pub types: Vec<Name>,
    /// Its scopes (URIs), for Probes by HTTP.
    pub scopes: Vec<Str>,
    /// The version of its metadata, for the same.
    pub metadata_version: u32,
    /// Increases with every start of the device, as in its announcements.
    pub instance_id: u32,
    /// Its model.
    pub this_model: ThisModel,
    /// The device's names and versions.
    pub this_device: ThisDevice,
    /// Its services.
    pub services: Vec<HostedService>,
    /// Configuration of its event source; the offers come from the services.
    pub eventing: SourceConfig,
    /// Mandatory headers that the application understands.
    pub understood: Vec<Name>,
    /// Operations waiting for the application. Default 256: one for each HTTP connection.
    pub invocations_max: usize,
    /// Time limit of the application, after which the client gets a fault. Default 30 s.
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
            scopes: Vec::new(),
            metadata_version: 1,
            instance_id: 1,
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
    /// Its identifier, unique in the device (a URI).
    pub service_id: Str,
    /// Its path, with its leading slash.
    pub path: Str,
    /// Its operations and events.
    pub wsdl: Wsdl,
    /// The served document, cut where the address of the service belongs.
    document: Vec<Arc<str>>,
    exi_schema: ServiceSchema,
}

/// Stands in the served document for the address of the service. It contains no markup.
const ADDRESS: &str = "urn:chappe:the-address-of-this-service";

impl HostedService {
    /// Creates a service from its WSDL. Ports without an address get the one at which the client
    /// reads the document.
    #[must_use]
    pub fn new(service_id: impl Into<Str>, path: impl Into<Str>, wsdl: Wsdl) -> Self {
        let mut addressed = wsdl.clone();
        let services = addressed.services.iter_mut();
        for port in services.flat_map(|service| &mut service.ports) {
            port.address.get_or_insert_with(|| ADDRESS.to_owned());
        }
        let document = addressed.to_text();
        Self {
            service_id: service_id.into(),
            path: path.into(),
            wsdl,
            exi_schema: ServiceSchema::new([&*document]),
            document: document.split(ADDRESS).map(Arc::from).collect(),
        }
    }

    /// The schema of its messages as EXI.
    #[must_use]
    pub fn exi_schema(&self) -> &ServiceSchema {
        &self.exi_schema
    }

    /// The document for clients that reach the device at `base`.
    pub(super) fn document(&self, base: &str) -> Arc<str> {
        match self.document.as_slice() {
            [whole] => Arc::clone(whole),
            parts => {
                let address = format!("{base}{}", self.path);
                let address = address.replace('&', "&amp;").replace(['<', '"'], "");
                parts.join(&*address).into()
            }
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

/// An HTTP request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// The open connection.
    pub token: Token,
    /// The client.
    pub peer: SocketAddr,
    /// Scheme, host and port of the request, without trailing slash; endpoints in the answer use
    /// the same.
    pub base: Str,
    /// The path with its leading slash, and the query.
    pub target: Str,
    /// The method and body.
    pub method: Method,
}

/// The method of a request.
#[derive(Debug, Clone)]
pub enum Method {
    /// A document.
    Get,
    /// A message, or the error of an invalid body.
    Post(Result<Box<LazyEnvelope>, chappe_soap::Error>),
    /// Anything else.
    Other,
}

/// An input of the device.
#[derive(Debug, Clone)]
pub enum DeviceReceive {
    /// A request; each gets one [`DeviceTransmit::Reply`].
    Http(Box<HttpRequest>),
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
    /// A result from a notification tree, for the event source.
    Tree(SourceReceive),
}

/// A command of the application.
#[derive(Debug, Clone)]
pub enum DeviceCommand {
    /// Answer an operation.
    Reply {
        /// The token of [`DeviceEvent::Invoked`].
        token: Token,
        /// The child of the body, or a fault.
        result: Result<Option<Body>, Fault>,
    },
    /// A command for the event source.
    Eventing(SourceCommand),
    /// Replace the device's description.
    Describe(Box<ThisDevice>),
    /// Replace the services. Subscriptions end of which no event is offered any more; calls under way
    /// are answered.
    SetServices(Vec<HostedService>),
    /// Replace the types.
    SetTypes(Vec<Name>),
    /// Replace what Probes by HTTP are answered with.
    Announce {
        /// Its scopes (URIs).
        scopes: Vec<Str>,
        /// The increased version of its metadata.
        metadata_version: u32,
    },
}

/// An output of the device.
#[derive(Debug, Clone)]
pub enum DeviceTransmit {
    /// The answer to a request.
    Reply {
        /// The open connection.
        token: Token,
        /// The reply.
        reply: Reply,
    },
    /// A message to a sink.
    Notify(Box<Notification>),
    /// An output of the event source for notification trees.
    Tree(SourceTransmit),
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// A client called an operation.
    Invoked(Box<Invocation>),
    /// The application exceeded its time limit; the client got a fault.
    Overdue {
        /// The operation's token.
        token: Token,
    },
    /// An event of the event source.
    Eventing(SourceEvent),
    /// A request was rejected.
    Refused {
        /// The client.
        peer: SocketAddr,
        /// The reason.
        reason: HostRefusal,
        /// The details.
        detail: String,
    },
}

/// A call of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// The token for the answer; one-way operations need none.
    pub token: Token,
    /// The client.
    pub peer: SocketAddr,
    /// The verified certificate of the client, if it has shown one. The machine decides nothing by it, and leaves it
    /// `None`: whoever runs the operation adds it.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The service.
    pub service_id: Str,
    /// The name of the operation.
    pub operation: String,
    /// Its kind: one-way, or request and response.
    pub kind: OperationKind,
    /// The action of the request.
    pub action: Str,
    /// The child of the body.
    pub body: Option<Body>,
    /// The headers other than addressing.
    pub headers: Vec<Element>,
}

impl Invocation {
    /// The child of the body as a tree.
    #[must_use]
    pub fn element(&self) -> Option<Element> {
        // The limits were checked with the message.
        self.body.clone()?.into_element().ok()
    }
}

/// The reason why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HostRefusal {
    /// The path does not exist.
    Path,
    /// Neither GET of a document nor POST of a message.
    Method,
    /// The body is not a message.
    Unreadable,
    /// A mandatory header is not understood.
    NotUnderstood,
    /// An addressing header is missing or not supported.
    Addressing,
    /// The message is for another endpoint.
    Destination,
    /// The path does not support the action.
    Action,
    /// A Probe with an unknown match rule.
    MatchRule,
    /// The limit of waiting operations is reached.
    Busy,
    /// The application exceeded its time limit.
    Overdue,
    /// The application's answer is late or has an unknown token.
    Answer,
}
