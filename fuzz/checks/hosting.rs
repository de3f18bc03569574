//! Invariants of a device that strangers send requests by HTTP: metadata, subscriptions, operations, Probes.

use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::message::SubscribeResponse;
use chappe_dpws::eventing::{SourceCommand, Token};
use chappe_dpws::exchange::{Content, Reply};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceConfig, DeviceEvent, DeviceReceive, DeviceTransmit, HostedService,
    HttpRequest, Method,
};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::wsdl::{OperationKind, Service, ServiceOperation, Wsdl};
use chappe_soap::{EndpointReference, Envelope, LazyEnvelope, v1_1};
use chappe_xml::{Element, Limits, Name};

use crate::bounds::Bound;

/// Each request has a tree and its text, and is gone before the next one comes; what the machine keeps of it is a lease
/// with at most the actions that it names.
pub(crate) const BOUND: Bound = Bound::memory(4 << 20, 250);
/// Requests of one input. Reason: each costs a machine's step, and one that subscribes a notification.
const REQUESTS_MAX: usize = 16;
/// Longer than any lease.
const DAY: Duration = Duration::from_secs(86_400);

const BASE: &str = "http://192.0.2.7:80";
const TICK: &str = "http://x/clock/Clock/Tick";
/// Stands for the path of the subscription that was granted last.
const MANAGER: &[u8] = b"/manager";

/// Requests, separated by zero bytes. Each is a path, and the message after the first line feed; without one, a GET.
///
/// Each request gets one reply, with a status of the profile and a message that can be read, or reaches an operation,
/// whose answer it gets; no notification goes to a forbidden address, and no subscription outlives its lease.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut world = World::new();
    let requests = data.split(|byte| *byte == 0).take(REQUESTS_MAX);
    for (token, request) in requests.enumerate() {
        world.request(Token(token as u64), request);
    }
    let tick = SourceCommand::Notify {
        action: TICK.into(),
        body: Element::new(name("Time")).into(),
    };
    let outputs = world
        .device
        .input(Input::Command(DeviceCommand::Eventing(tick)));
    world.settle(outputs.expect("no violation"));
    let outputs = world.device.advance(DAY).expect("no violation");
    world.settle(outputs);
    assert_eq!(world.device.machine().events().subscriptions(), 0);
}

fn name(local: &'static str) -> Name {
    Name::new("http://x/types", local)
}

struct World {
    device: Harness<Device>,
    manager: Option<String>,
    /// The replies to the last request.
    replies: usize,
}

type Outputs = Vec<Output<DeviceTransmit, DeviceEvent>>;

impl World {
    fn new() -> Self {
        let clock = Service {
            target_namespace: "http://x/clock".into(),
            name: "Clock".into(),
            operations: vec![
                ServiceOperation::request("Get", name("Get"), name("Time")),
                ServiceOperation::one_way("Set", name("Time")),
                ServiceOperation::event("Tick", name("Time")),
            ],
            schemas: Vec::new(),
            address: None,
        };
        let service = HostedService::new("http://x/clock/1", "/clock", clock.to_wsdl());
        let endpoint = EndpointReference::new("urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a");
        let config = DeviceConfig::new(endpoint, vec![service]);
        let check = Arc::new(|address: &str, _| match address.contains("forbidden") {
            true => Err("the address is forbidden".to_owned()),
            false => Ok(()),
        });
        Self {
            device: Harness::new(Device::new(config, check, [3; 16]), 3),
            manager: None,
            replies: 0,
        }
    }

    fn request(&mut self, token: Token, request: &[u8]) {
        let mut parts = request.splitn(2, |byte| *byte == b'\n');
        let path = parts.next().unwrap_or_default();
        let target = match path == MANAGER {
            true => self.manager.clone().unwrap_or_default(),
            false => String::from_utf8_lossy(path).into_owned(),
        };
        let method = match parts.next() {
            None => Method::Get,
            Some([]) => Method::Other,
            Some(message) => {
                let message = message.to_vec().into();
                let read = LazyEnvelope::parse_within(message, Limits::datagram());
                Method::Post(read.map(Box::new))
            }
        };
        let request = HttpRequest {
            token,
            peer: ([192, 0, 2, 1], 4711).into(),
            base: BASE.into(),
            target: target.into(),
            method,
        };
        let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
        let outputs = self.device.input(input).expect("no violation");
        self.replies = 0;
        self.settle(outputs);
        assert_eq!(self.replies, 1, "each request has one reply");
    }

    /// Answers operations, and accepts notifications.
    fn settle(&mut self, outputs: Outputs) {
        let mut waiting = outputs;
        while let Some(output) = waiting.pop() {
            let input = match output {
                Output::Transmit(DeviceTransmit::Reply { reply, .. }) => {
                    self.reply(&reply);
                    continue;
                }
                Output::Transmit(DeviceTransmit::Notify(notification)) => {
                    assert!(!notification.to().contains("forbidden"));
                    let text = notification.to_text();
                    assert!(Envelope::parse(text.as_bytes()).is_ok(), "{text}");
                    let delivery = notification.delivery;
                    Input::Receive(DeviceReceive::Delivered { delivery })
                }
                Output::Event(DeviceEvent::Invoked(call))
                    if call.kind == OperationKind::RequestResponse =>
                {
                    Input::Command(DeviceCommand::Reply {
                        token: call.token,
                        result: Ok(Some(Element::new(name("Time")).into())),
                    })
                }
                Output::Transmit(DeviceTransmit::Tree(_)) | Output::Event(_) => continue,
            };
            waiting.extend(self.device.input(input).expect("no violation"));
        }
    }

    fn reply(&mut self, reply: &Reply) {
        self.replies += 1;
        let text = reply.to_text();
        match reply.content {
            Content::Empty => assert!(matches!(reply.status, 202 | 404 | 405 | 503)),
            Content::Document(_) if reply.status == 200 => {
                assert!(Wsdl::parse(text.as_bytes()).is_ok(), "{text}");
            }
            // To a message of the older version.
            Content::Document(_) => assert_eq!(text, v1_1::version_mismatch()),
            Content::Envelope(_) | Content::Lazy(_) => {
                let read = Envelope::parse(text.as_bytes());
                let read = read.unwrap_or_else(|error| panic!("{error}: {text}"));
                assert_eq!(read.fault().is_some(), reply.status != 200, "{text}");
                let version = read.addressing.version;
                let granted = read.body().and_then(|body| {
                    let granted = SubscribeResponse::from_element(version, body);
                    granted.ok()
                });
                if let Some(granted) = granted {
                    let address = granted.manager.address;
                    let path = address.strip_prefix(BASE).expect("the base of the request");
                    self.manager = Some(path.to_owned());
                }
            }
        }
    }
}
