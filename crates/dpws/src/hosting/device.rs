//! The machine of a device.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::{Body, Envelope, Fault, LazyEnvelope};
use chappe_xml::{Name, Str};

use super::{
    DeviceCommand, DeviceConfig, DeviceEvent, DeviceReceive, DeviceTransmit, HostRefusal,
    HostedService,
};
use crate::Dialect;
use crate::eventing::{
    AddressCheck, EventSource, Offer, SourceCommand, SourceReceive, SourceTransmit, Token,
};
use crate::exchange::{self, Reply};
use crate::ids::Ids;
use crate::metadata::{Host, Hosted, Metadata, Relationship, WsdlSection};

/// A device with hosted services. See the module documentation for its messages.
///
/// ```
/// use std::sync::Arc;
/// use chappe_dpws::eventing::Token;
/// use chappe_dpws::hosting::{
///     Device, DeviceConfig, DeviceReceive, DeviceTransmit, HostedService, HttpRequest, Method,
/// };
/// use chappe_machine::{Input, Instant, Output, drain};
/// use chappe_soap::{EndpointReference, wsdl::Service};
/// let clock = Service {
///     target_namespace: "http://x/clock".into(),
///     name: "Clock".into(),
///     operations: Vec::new(),
///     schemas: Vec::new(),
///     address: None,
/// };
/// let service = HostedService::new("http://x/clock/1", "/clock", clock.to_wsdl());
/// let endpoint = EndpointReference::new("urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a");
/// let config = DeviceConfig::new(endpoint, vec![service]);
/// let mut device = Device::new(config, Arc::new(|_, _| Ok(())), [7; 16]);
/// let request = HttpRequest {
///     token: Token(1),
///     peer: "192.0.2.1:4711".parse().unwrap(),
///     base: "http://192.0.2.7:80".into(),
///     target: "/clock?wsdl".into(),
///     method: Method::Get,
/// };
/// let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
/// drain(&mut device, Instant::ZERO, input, |output| match output {
///     Output::Transmit(DeviceTransmit::Reply { reply, .. }) => assert_eq!(reply.status, 200),
///     other => panic!("{other:?}"),
/// });
/// ```
#[derive(Debug)]
pub struct Device {
    pub(super) config: DeviceConfig,
    pub(super) events: EventSource,
    pub(super) ids: Ids,
    pub(super) invocations: BTreeMap<Token, PendingInvocation>,
    pub(super) timers: Timers<Token>,
    /// The sequence of answers to Probes by HTTP: its identifier and the last number.
    pub(super) probe_sequence: (Str, u32),
    outputs: VecDeque<Output<DeviceTransmit, DeviceEvent>>,
    refusals: BTreeMap<HostRefusal, u64>,
    pub(super) now: Instant,
}

/// An operation that waits for the application's answer.
#[derive(Debug)]
pub(super) struct PendingInvocation {
    pub(super) peer: SocketAddr,
    /// The request without its body.
    pub(super) request: Envelope,
    /// The action of the answer.
    pub(super) action: Str,
    /// The declared faults: the elements of their details, and their actions.
    pub(super) faults: Vec<(Name, Str)>,
}

impl Device {
    /// Creates a device. `check` decides about addresses given by subscribers; `secret` is random
    /// and confidential.
    #[must_use]
    pub fn new(config: DeviceConfig, check: AddressCheck, secret: [u8; 16]) -> Self {
        let mut eventing = config.eventing.clone();
        eventing.offers = offers(&config.services);
        // Two generators from one secret: an output of the first seeds the second.
        let mut ids = Ids::new(secret);
        let events = EventSource::new(eventing, check, ids.next().to_le_bytes());
        Self {
            config,
            events,
            probe_sequence: (ids.urn(), 0),
            ids,
            invocations: BTreeMap::new(),
            timers: Timers::default(),
            outputs: VecDeque::new(),
            refusals: BTreeMap::new(),
            now: Instant::ZERO,
        }
    }

    /// Its event source.
    #[must_use]
    pub fn events(&self) -> &EventSource {
        &self.events
    }

    /// Requests rejected for this reason.
    #[must_use]
    pub fn refused(&self, reason: HostRefusal) -> u64 {
        self.refusals.get(&reason).copied().unwrap_or_default()
    }

    /// The device's metadata in this dialect, for clients that reach it at `base`.
    #[must_use]
    pub fn metadata(&self, dialect: Dialect, base: &str) -> Metadata {
        let hosted = self
            .config
            .services
            .iter()
            .map(|service| hosted(service, base));
        Metadata {
            this_model: Some(self.config.this_model.clone()),
            this_device: Some(self.config.this_device.clone()),
            relationship: Some(Relationship {
                host: Some(self.host(dialect)),
                hosted: hosted.collect(),
            }),
            ..Metadata::default()
        }
    }

    /// A service's metadata.
    pub(super) fn service_metadata(
        &self,
        dialect: Dialect,
        base: &str,
        service: &HostedService,
    ) -> Metadata {
        Metadata {
            relationship: Some(Relationship {
                host: Some(self.host(dialect)),
                hosted: vec![hosted(service, base)],
            }),
            wsdl: vec![WsdlSection::Location(format!(
                "{base}{}?wsdl",
                service.path
            ))],
            ..Metadata::default()
        }
    }

    pub(super) fn host(&self, dialect: Dialect) -> Host {
        let device_type = dialect.device_type();
        let others = self.config.types.iter().map(|name| dialect.translate(name));
        let others = others.filter(|name| *name != device_type);
        Host {
            endpoint: self.config.endpoint.clone(),
            types: std::iter::once(device_type.clone()).chain(others).collect(),
        }
    }

    pub(super) fn reply(&mut self, token: Token, reply: Reply) {
        let transmit = DeviceTransmit::Reply { token, reply };
        self.outputs.push_back(Output::Transmit(transmit));
    }

    pub(super) fn event(&mut self, event: DeviceEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(super) fn refuse(&mut self, peer: SocketAddr, reason: HostRefusal, detail: String) {
        *self.refusals.entry(reason).or_default() += 1;
        self.event(DeviceEvent::Refused {
            peer,
            reason,
            detail,
        });
    }

    /// Passes an input to the event source and forwards its outputs.
    pub(super) fn eventing(&mut self, input: Input<SourceReceive, SourceCommand>) {
        self.events.handle_input(self.now, input);
        while let Some(output) = self.events.poll_output() {
            let output = match output {
                Output::Event(event) => Output::Event(DeviceEvent::Eventing(event)),
                Output::Transmit(SourceTransmit::Notify(notification)) => {
                    Output::Transmit(DeviceTransmit::Notify(notification))
                }
                Output::Transmit(
                    tree @ (SourceTransmit::Prove { .. }
                    | SourceTransmit::Members { .. }
                    | SourceTransmit::Spread(_)),
                ) => Output::Transmit(DeviceTransmit::Tree(tree)),
                Output::Transmit(SourceTransmit::Response { token, envelope }) => {
                    Output::Transmit(DeviceTransmit::Reply {
                        token,
                        reply: Reply::message(*envelope),
                    })
                }
            };
            self.outputs.push_back(output);
        }
    }

    fn command(&mut self, command: DeviceCommand) {
        match command {
            DeviceCommand::Reply { token, result } => self.answer(token, result),
            DeviceCommand::Eventing(command) => self.eventing(Input::Command(command)),
            DeviceCommand::Describe(this_device) => self.config.this_device = *this_device,
            DeviceCommand::SetServices(services) => {
                let offers = SourceCommand::Offer(offers(&services));
                self.config.services = services;
                self.eventing(Input::Command(offers));
            }
            DeviceCommand::SetTypes(types) => self.config.types = types,
            DeviceCommand::Announce {
                scopes,
                metadata_version,
            } => {
                self.config.scopes = scopes;
                self.config.metadata_version = metadata_version;
            }
        }
    }

    /// Sends the application's answer.
    fn answer(&mut self, token: Token, result: Result<Option<Body>, Fault>) {
        let Some(pending) = self.invocations.remove(&token) else {
            *self.refusals.entry(HostRefusal::Answer).or_default() += 1;
            return;
        };
        self.timers.cancel(&token);
        let urn = self.ids.urn();
        let reply = match result {
            Ok(body) => Reply::lazy(LazyEnvelope {
                head: exchange::reply(&pending.request, pending.action, urn),
                body: body.into_iter().collect(),
            }),
            Err(fault) => {
                let detail = fault.detail.first().map(Body::name);
                let mut faults = pending.faults.iter();
                let declared = faults.find(|(element, _)| Some(element) == detail);
                let mut envelope = exchange::typed_fault(&pending.request, &fault, urn);
                if let Some((_, action)) = declared {
                    envelope.head.addressing.action = action.clone();
                }
                Reply::lazy(envelope)
            }
        };
        self.reply(token, reply);
    }

    fn timeout(&mut self) {
        while let Some(token) = self.timers.pop(self.now) {
            let Some(pending) = self.invocations.remove(&token) else {
                continue;
            };
            let version = pending.request.addressing.version;
            let name = version.name("EndpointUnavailable");
            let fault = Fault::receiver(name, "the application timed out");
            let urn = self.ids.urn();
            self.reply(
                token,
                Reply::message(exchange::fault(&pending.request, &fault, urn)),
            );
            self.event(DeviceEvent::Overdue { token });
            let detail = pending.request.addressing.action.into_owned();
            self.refuse(pending.peer, HostRefusal::Overdue, detail);
        }
        if self.events.deadline().is_some_and(|at| at <= self.now) {
            self.eventing(Input::Timeout);
        }
    }
}

fn offers(services: &[HostedService]) -> Vec<Offer> {
    let offer = |service: &HostedService| Offer {
        path: service.path.clone(),
        actions: service.events(),
    };
    services.iter().map(offer).collect()
}

fn hosted(service: &HostedService, base: &str) -> Hosted {
    let address = format!("{base}{}", service.path);
    Hosted {
        endpoints: vec![chappe_soap::EndpointReference::new(address)],
        types: service.types(),
        service_id: service.service_id.clone().into_owned(),
    }
}

impl Machine for Device {
    type Receive = DeviceReceive;
    type Command = DeviceCommand;
    type Transmit = DeviceTransmit;
    type Event = DeviceEvent;

    fn handle_input(&mut self, now: Instant, input: Input<DeviceReceive, DeviceCommand>) {
        self.now = now;
        match input {
            Input::Receive(DeviceReceive::Http(request)) => self.on_http(*request),
            Input::Receive(DeviceReceive::Delivered { delivery }) => {
                self.eventing(Input::Receive(SourceReceive::Delivered { delivery }));
            }
            Input::Receive(DeviceReceive::Failed { delivery, failure }) => {
                self.eventing(Input::Receive(SourceReceive::Failed { delivery, failure }));
            }
            Input::Receive(DeviceReceive::Tree(result)) => self.eventing(Input::Receive(result)),
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        self.timeout();
    }

    fn poll_output(&mut self) -> Option<Output<DeviceTransmit, DeviceEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let own = self.timers.next();
        let eventing = self.events.deadline();
        own.into_iter().chain(eventing).min()
    }
}

impl Invariant for Device {
    fn check(&self) -> Result<(), String> {
        let pending = self.invocations.len();
        if pending > self.config.invocations_max || pending != self.timers.len() {
            return Err(format!(
                "{pending} invocations, but {} timers",
                self.timers.len()
            ));
        }
        self.events.check()
    }
}
