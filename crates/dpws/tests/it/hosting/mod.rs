//! Goal: a device answers each request with the right status, message or fault, and only its
//! operations reach the application.
//! Method: one machine in the harness, requests from the test, answers through text.

mod faults;
mod requests;

use std::sync::Arc;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::Token;
use chappe_dpws::exchange::{Reply, request};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceConfig, DeviceEvent, DeviceReceive, DeviceTransmit, HostedService,
    HttpRequest, Invocation, Method,
};
use chappe_dpws::metadata::{LocalizedString, ThisDevice, ThisModel};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_soap::{EndpointReference, Envelope, LazyEnvelope};
use chappe_xml::{Element, Limits, Name};

const URN: &str = "urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a";
const BASE: &str = "http://192.0.2.7:80";

fn name(local: &'static str) -> Name {
    Name::new("http://x/types", local)
}

fn clock() -> Service {
    Service {
        target_namespace: "http://x/clock".into(),
        name: "Clock".into(),
        operations: vec![
            ServiceOperation::request("Get", name("Get"), name("Time")),
            ServiceOperation::one_way("Set", name("Time")),
            ServiceOperation::event("Tick", name("Time")),
        ],
        schemas: Vec::new(),
        address: None,
    }
}

/// A posted text, as a host reads it.
fn message(text: &str) -> Method {
    let read = LazyEnvelope::parse_within(text.to_owned().into(), Limits::default());
    Method::Post(read.map(Box::new))
}

struct World {
    device: Harness<Device>,
    reply: Option<Reply>,
    events: Vec<DeviceEvent>,
    notification_count: usize,
}

impl World {
    fn new() -> Self {
        let service = HostedService::new("http://x/clock/1", "/clock", clock().to_wsdl());
        let text = |text: &str| vec![LocalizedString::from(text)];
        let config = DeviceConfig {
            this_model: ThisModel {
                manufacturer: text("Maker"),
                model_name: text("Model"),
                ..ThisModel::default()
            },
            this_device: ThisDevice {
                friendly_name: text("The clock"),
                ..ThisDevice::default()
            },
            types: vec![name("Timepiece")],
            invocations_max: 2,
            ..DeviceConfig::new(EndpointReference::new(URN), vec![service])
        };
        let device = Device::new(config, Arc::new(|_, _| Ok(())), [3; 16]);
        Self {
            device: Harness::new(device, 3),
            reply: None,
            events: Vec::new(),
            notification_count: 0,
        }
    }

    fn apply_outputs(&mut self, outputs: Vec<Output<DeviceTransmit, DeviceEvent>>) {
        self.reply = None;
        self.events.clear();
        for output in outputs {
            match output {
                Output::Transmit(DeviceTransmit::Tree(tree)) => {
                    panic!("unexpected tree output: {tree:?}")
                }
                Output::Transmit(DeviceTransmit::Reply { reply, .. }) => {
                    assert!(self.reply.is_none(), "one reply for each request");
                    self.reply = Some(reply);
                }
                Output::Transmit(DeviceTransmit::Notify(_)) => self.notification_count += 1,
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn http(&mut self, token: u64, target: &str, method: Method) {
        let request = HttpRequest {
            token: Token(token),
            peer: ([192, 0, 2, 1], 4711).into(),
            base: BASE.into(),
            target: target.to_owned().into(),
            method,
        };
        let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
        let outputs = self.device.input(input).unwrap();
        self.apply_outputs(outputs);
    }

    fn post(&mut self, token: u64, target: &str, envelope: &Envelope) -> Option<Envelope> {
        self.http(token, target, message(&envelope.to_text()));
        self.message()
    }

    fn message(&self) -> Option<Envelope> {
        let reply = self.reply.as_ref()?;
        reply.envelope()?;
        assert_eq!(
            reply.content_type(),
            Some("application/soap+xml; charset=utf-8")
        );
        Some(Envelope::parse(reply.to_text().as_bytes()).unwrap())
    }

    fn command(&mut self, command: DeviceCommand) {
        let outputs = self.device.input(Input::Command(command)).unwrap();
        self.apply_outputs(outputs);
    }

    fn invocation(&self) -> Option<&Invocation> {
        self.events.iter().find_map(|event| match event {
            DeviceEvent::Invoked(invocation) => Some(&**invocation),
            _ => None,
        })
    }

    fn status(&self) -> u16 {
        self.reply.as_ref().map_or(0, |reply| reply.status)
    }
}

fn call(action: &'static str, body: Element) -> Envelope {
    let to = EndpointReference::new("http://192.0.2.7:80/clock");
    request(Dialect::V2009.addressing(), &to, action, "urn:uuid:9").with_body(body)
}

fn get() -> Envelope {
    call("http://x/clock/Clock/GetRequest", Element::new(name("Get")))
}
