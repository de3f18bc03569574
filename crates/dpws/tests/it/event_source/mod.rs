//! Goal: the event source grants permitted requests and rejects others with the reason; slow and
//! dead sinks affect neither it nor each other.
//! Method: one machine in the harness, with requests and delivery results from the test.

mod delivery;
mod limits;
mod requests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{
    DELIVERY_MODE_PUSH, Lease, Subscribe, SubscribeResponse, action,
};
use chappe_dpws::eventing::{
    EventSource, EventingFault, Expiration, Failure, Filter, Notification, Offer, Request,
    SourceCommand, SourceConfig, SourceEvent, SourceReceive, SourceRefusal, SourceTransmit, Token,
};
use chappe_dpws::exchange::request;
use chappe_machine::{Harness, Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name};

const REPORT: &str = "urn:x/Report";
const ALARM: &str = "urn:x/Alarm";

fn config() -> SourceConfig {
    SourceConfig {
        offers: vec![Offer {
            path: "/thermometer".into(),
            actions: vec![REPORT.into(), ALARM.into()],
        }],
        subscriptions_max: 3,
        subscriptions_per_peer_max: 2,
        queue_max: 4,
        ..SourceConfig::default()
    }
}

struct World {
    source: Harness<EventSource>,
    outputs: Vec<Output<SourceTransmit, SourceEvent>>,
}

impl World {
    fn new(config: SourceConfig) -> Self {
        let check = Arc::new(|address: &str, _| match address.contains("forbidden") {
            true => Err("the address is forbidden".to_owned()),
            false => Ok(()),
        });
        let source = Harness::new(EventSource::new(config, check, [7; 16]), 7);
        Self {
            source,
            outputs: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<SourceReceive, SourceCommand>) {
        self.outputs = self.source.input(input).unwrap();
    }

    fn send_request(&mut self, host: u8, path: &str, envelope: Envelope) -> Envelope {
        self.send_request_from([192, 0, 2, host].into(), path, envelope)
    }

    fn send_request_from(&mut self, from: IpAddr, path: &str, envelope: Envelope) -> Envelope {
        let request = Request {
            token: Token(1),
            peer: (from, 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: path.to_owned().into(),
            envelope,
        };
        self.input(Input::Receive(SourceReceive::Request(Box::new(request))));
        let found = self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Response { envelope, .. }) => Some(&**envelope),
            _ => None,
        });
        // Through text, as a peer receives it.
        Envelope::parse(found.unwrap().to_text().as_bytes()).unwrap()
    }

    fn subscribe(
        &mut self,
        host: u8,
        message: &Subscribe,
    ) -> Result<SubscribeResponse, EventingFault> {
        self.subscribe_from([192, 0, 2, host].into(), message)
    }

    fn subscribe_from(
        &mut self,
        from: IpAddr,
        message: &Subscribe,
    ) -> Result<SubscribeResponse, EventingFault> {
        let version = Dialect::V2009.addressing();
        let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
        let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
            .with_body(message.to_element(version));
        let answer = self.send_request_from(from, "/thermometer", envelope);
        assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:1"));
        match answer.fault() {
            Some(fault) => Err(EventingFault::from_fault(&fault).unwrap()),
            None => {
                assert_eq!(answer.addressing.action, action::SUBSCRIBE_RESPONSE);
                Ok(SubscribeResponse::from_element(version, answer.body().unwrap()).unwrap())
            }
        }
    }

    /// Renew, GetStatus or Unsubscribe at the granted manager.
    fn manage(
        &mut self,
        manager: &EndpointReference,
        action: &'static str,
        lease: Lease,
        expires: Option<Expiration>,
    ) -> Result<Option<Expiration>, EventingFault> {
        let version = Dialect::V2009.addressing();
        let envelope = request(version, manager, action, "urn:uuid:2");
        let envelope = envelope.with_body(lease.to_element(expires));
        let path = manager
            .address
            .strip_prefix("http://192.0.2.99:80")
            .unwrap()
            .to_owned();
        let answer = self.send_request(1, &path, envelope);
        if let Some(fault) = answer.fault() {
            return Err(EventingFault::from_fault(&fault).unwrap());
        }
        Ok(answer.body().map(|body| {
            let kind = match lease {
                Lease::Renew => Lease::RenewResponse,
                _ => Lease::GetStatusResponse,
            };
            kind.from_element(body).unwrap().unwrap()
        }))
    }

    fn notify(&mut self, action: &'static str, number: u32) {
        let body = Element::new(Name::new("urn:x", "R")).with_text(number.to_string());
        let action = action.into();
        self.input(Input::Command(SourceCommand::Notify {
            action,
            body: body.into(),
        }));
    }

    fn notifications(&self) -> Vec<Notification> {
        let sent = self.outputs.iter().filter_map(|output| match output {
            Output::Transmit(SourceTransmit::Notify(notification)) => {
                Some((**notification).clone())
            }
            _ => None,
        });
        sent.collect()
    }

    fn numbers(&self) -> Vec<String> {
        let sent = self
            .notifications()
            .into_iter()
            .map(|sent| sent.to_envelope());
        sent.map(|sent| sent.body().unwrap().text().into_owned())
            .collect()
    }

    fn delivered(&mut self, delivery: u64) {
        self.input(Input::Receive(SourceReceive::Delivered { delivery }));
    }

    fn failed(&mut self, delivery: u64, failure: Failure) {
        self.input(Input::Receive(SourceReceive::Failed { delivery, failure }));
    }

    fn advance(&mut self, duration: Duration) {
        self.outputs = self.source.advance(duration).unwrap();
    }

    fn refused(&self, reason: SourceRefusal) -> u64 {
        self.source.machine().refused(reason)
    }
}

fn subscribe_message(actions: &[&'static str], lease_s: u64) -> Subscribe {
    let here = EndpointReference::new("http://192.0.2.1:9/events/1");
    Subscribe {
        end_to: Some(EndpointReference::new("http://192.0.2.1:9/end/1")),
        mode: Some(DELIVERY_MODE_PUSH.into()),
        notify_to: Some(here),
        expires: Some(Expiration::After(Duration::from_secs(lease_s))),
        filter: Some(Filter::actions(
            Dialect::V2009,
            actions.iter().map(|action| (*action).into()).collect(),
        )),
        tree: Ok(None),
    }
}

fn seconds(seconds: u64) -> Expiration {
    Expiration::After(Duration::from_secs(seconds))
}
