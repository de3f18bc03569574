//! A device without the network, for tests of its services.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::{Expiration, Filter, Subscribe, Token};
use chappe_dpws::exchange::{self, Reply};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceEvent, DeviceReceive, DeviceTransmit, HostedService, HttpRequest,
    Invocation, Method,
};
use chappe_machine::{Input, Instant, Output, drain};
use chappe_soap::message::{Message, from_element};
use chappe_soap::udp::random_urn;
use chappe_soap::wsdl::OperationKind;
use chappe_soap::{
    AddressingVersion, Body, EndpointReference, Envelope, Fault, FaultCode, LazyEnvelope,
};
use chappe_xml::{Element, Str};
use tokio::sync::mpsc;

use crate::Error;
use crate::driver::InputOf;
use crate::host::Operations;
use crate::service::Outlet;

/// Inputs queued for the machine: events sent between two steps of the bench.
const INPUTS_MAX: usize = 1_024;
/// Where the bench would be reached.
const BASE: &str = "http://192.0.2.1:80";
/// The client of the bench (RFC 5737).
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 80);
/// The action of Subscribe.
const SUBSCRIBE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Subscribe";

/// A device without sockets and without a clock: its messages pass through the same machine as those
/// of a device on the network, and time passes only by [`Bench::advance`].
///
/// ```
/// use std::time::Duration;
/// use chappe_device::{Device, Key, Message, Service};
/// #[derive(Message, Debug, PartialEq)]
/// struct Temperature { celsius: f64 }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut service = Service::new("https://example.org/thermometer", "Thermometer");
/// let temperature = service.event::<Temperature>("Temperature");
/// # let key = Key::from(chappe_identity::Key::from_seed([1; 32]));
/// let mut bench = Device::new(key).model("Example", "T1").name("t").service(service).bench()?;
/// bench.subscribe("Thermometer", Duration::from_secs(60))?;
/// temperature.send(Temperature { celsius: 21.5 }).await?;
/// assert_eq!(bench.received::<Temperature>("Temperature")?, [Temperature { celsius: 21.5 }]);
/// // The lease ends.
/// bench.advance(Duration::from_secs(61));
/// temperature.send(Temperature { celsius: 22.0 }).await?;
/// assert_eq!(bench.received::<Temperature>("Temperature")?, []);
/// # Ok(())
/// # }
/// ```
pub struct Bench {
    machine: Device,
    services: Vec<HostedService>,
    operations: Operations,
    inputs: mpsc::Receiver<Option<InputOf<Device>>>,
    now: Instant,
    next_token: u64,
    random: fastrand::Rng,
    notified: VecDeque<Envelope>,
    replies: Vec<(Token, Reply)>,
    invoked: VecDeque<Invocation>,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Bench {
    pub(super) fn new(
        machine: Device,
        services: Vec<HostedService>,
        operations: Operations,
        outlets: &[Outlet],
    ) -> Result<Self, Error> {
        let (send, inputs) = mpsc::channel(INPUTS_MAX);
        for outlet in outlets {
            if !outlet.connect(send.clone()) {
                return Err(Error::Misuse("a service is in two devices".into()));
            }
        }
        Ok(Self {
            machine,
            services,
            operations,
            inputs,
            now: Instant::ZERO,
            next_token: 0,
            // Identifiers only: the same in every run.
            random: fastrand::Rng::with_seed(0),
            notified: VecDeque::new(),
            replies: Vec::new(),
            invoked: VecDeque::new(),
        })
    }

    /// Calls an operation of a service, and waits for its answer.
    ///
    /// # Errors
    /// The fault of the device, or one that says what of the answer could not be read.
    pub async fn call<Q: Message, A: Message>(
        &mut self,
        service: &str,
        operation: &str,
        request: &Q,
    ) -> Result<A, Fault> {
        let namespace = self.target(service)?.wsdl.target_namespace.clone();
        let body = Body::of(&namespace, operation, request);
        let answer = self.call_body(service, operation, body).await?;
        let answer = answer.ok_or_else(|| unusable("the answer has no body"))?;
        let read = answer.read(&namespace, &answer_name(operation));
        read.map_err(|error| unusable(&error.to_string()))
    }

    /// Calls an operation with any element, valid or not. `None` is the answer of a one-way operation.
    ///
    /// # Errors
    /// The fault of the device, or one that says that the service or operation does not exist.
    pub async fn call_element(
        &mut self,
        service: &str,
        operation: &str,
        body: Element,
    ) -> Result<Option<Element>, Fault> {
        let answer = self.call_body(service, operation, body.into()).await?;
        let answer = answer.map(Body::into_element).transpose();
        answer.map_err(|error| unusable(&error.to_string()))
    }

    async fn call_body(
        &mut self,
        service: &str,
        operation: &str,
        body: Body,
    ) -> Result<Option<Body>, Fault> {
        let target = self.target(service)?;
        let mut operations = target.wsdl.operations();
        let found = operations.find(|(_, known)| known.name == operation);
        let input = found.and_then(|(_, known)| known.input.clone());
        let input = input.ok_or_else(|| unusable(&format!("no operation {operation}")))?;
        let token = self.post(&target, input.action.into(), body);
        while let Some(invocation) = self.invoked.pop_front() {
            let Some(handler) = self.operations.get(&*invocation.action).cloned() else {
                continue;
            };
            let (token, kind) = (invocation.token, invocation.kind);
            let result = handler(invocation).await;
            if kind == OperationKind::RequestResponse {
                let reply = DeviceCommand::Reply { token, result };
                self.input(Input::Command(reply));
            }
        }
        match self.reply(token)?.content {
            exchange::Content::Envelope(envelope) => match envelope.fault() {
                Some(fault) => Err(fault),
                None => Ok(envelope.body.into_iter().next().map(Body::Tree)),
            },
            exchange::Content::Lazy(envelope) => match envelope.fault() {
                Some(fault) => Err(fault),
                None => Ok(envelope.body.into_iter().next()),
            },
            _ => Ok(None),
        }
    }

    /// Subscribes to all events of a service for this time.
    ///
    /// # Errors
    /// The device refuses it, or there is no such service.
    pub fn subscribe(&mut self, service: &str, lease: Duration) -> Result<(), Fault> {
        let target = self.target(service)?;
        let version = AddressingVersion::default();
        let request = Subscribe {
            end_to: None,
            mode: None,
            notify_to: Some(EndpointReference::new("http://192.0.2.2/events")),
            expires: Some(Expiration::After(lease)),
            filter: Some(Filter::actions(Dialect::V2009, target.events())),
            tree: Ok(None),
        };
        let body = request.to_element(version).into();
        let token = self.post(&target, SUBSCRIBE.into(), body);
        match self.reply(token)?.envelope().and_then(Envelope::fault) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// The events of this name that the subscriber has received since the last call, in order.
    ///
    /// # Errors
    /// An event is not of this type.
    pub fn received<T: Message>(&mut self, event: &str) -> Result<Vec<T>, Fault> {
        while let Ok(input) = self.inputs.try_recv() {
            if let Some(input) = input {
                self.input(input);
            }
        }
        let (mut events, mut others) = (Vec::new(), VecDeque::new());
        for envelope in self.notified.drain(..) {
            match envelope.body() {
                Some(body) if body.name.local == event => {
                    let read = from_element(&body.name.namespace, event, body);
                    events.push(read.map_err(|error| unusable(&error.to_string()))?);
                }
                _ => others.push_back(envelope),
            }
        }
        self.notified = others;
        Ok(events)
    }

    /// Lets this time pass: leases and time limits end.
    pub fn advance(&mut self, time: Duration) {
        self.now += time;
        self.input(Input::Timeout);
    }

    fn target(&self, service: &str) -> Result<HostedService, Fault> {
        let path = format!("/{service}");
        let mut services = self.services.iter();
        let found = services.find(|known| known.path == path).cloned();
        found.ok_or_else(|| unusable(&format!("no service {service}")))
    }

    fn post(&mut self, target: &HostedService, action: Str, body: Body) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        let address = EndpointReference::new(format!("{BASE}{}", target.path));
        let urn = random_urn(&mut self.random);
        let version = AddressingVersion::default();
        let envelope = LazyEnvelope {
            head: exchange::request(version, &address, action, urn),
            body: vec![body],
        };
        let request = HttpRequest {
            token,
            peer: PEER,
            base: BASE.into(),
            target: target.path.clone(),
            method: Method::Post(Ok(Box::new(envelope))),
        };
        self.input(Input::Receive(DeviceReceive::Http(Box::new(request))));
        token
    }

    fn reply(&mut self, token: Token) -> Result<Reply, Fault> {
        let position = self.replies.iter().position(|(known, _)| *known == token);
        let position = position.ok_or_else(|| unusable("the device does not answer"))?;
        Ok(self.replies.swap_remove(position).1)
    }

    fn input(&mut self, input: InputOf<Device>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            drain(&mut self.machine, self.now, input, |output| match output {
                Output::Transmit(DeviceTransmit::Reply { token, reply }) => {
                    self.replies.push((token, reply));
                }
                Output::Transmit(DeviceTransmit::Notify(notification)) => {
                    self.notified.push_back(notification.to_envelope());
                    let delivery = notification.delivery;
                    let delivered = DeviceReceive::Delivered { delivery };
                    inputs.push_back(Input::Receive(delivered));
                }
                Output::Event(DeviceEvent::Invoked(invocation)) => {
                    self.invoked.push_back(*invocation);
                }
                Output::Transmit(DeviceTransmit::Tree(_)) | Output::Event(_) => {}
            });
        }
    }
}

fn answer_name(operation: &str) -> String {
    format!("{operation}Response")
}

/// A fault of the bench itself.
fn unusable(reason: &str) -> Fault {
    Fault {
        code: FaultCode::Receiver,
        subcode: None,
        reason: reason.to_owned().into(),
        detail: Vec::new(),
    }
}
