//! Which part of the device a request is for, and whether it may be served.

use chappe_machine::Input;
use chappe_soap::wsdl::OperationKind;
use chappe_soap::{AddressingVersion, EndpointReference, Envelope, Fault};
use chappe_xml::{Name, Str};

use super::device::{Device, Waiting};
use super::{DeviceEvent, HostRefusal, HttpRequest, Invocation, Method};
use crate::dialect::EVENTING;
use crate::eventing::{Request, SourceReceive, Token};
use crate::exchange::{self, Reply};
use crate::metadata::{
    GET_ACTION, GET_METADATA_ACTION, GET_METADATA_RESPONSE_ACTION, GetMetadata,
    transfer_get_response,
};

/// The address to which nothing is sent (WS-Addressing 1.0 core, section 2.1).
const NONE: &str = "http://www.w3.org/2005/08/addressing/none";

/// What a path of the device is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Device,
    Service(usize),
    Manager,
}

/// A request that is answered with a fault.
struct Refused(HostRefusal, Fault);

impl Device {
    pub(super) fn http(&mut self, request: HttpRequest) {
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path.to_owned(), query.to_owned()),
            None => (request.target.clone().into_owned(), String::new()),
        };
        let place = self.place(&path);
        match (request.method, place) {
            (Method::Post(Ok(envelope)), Some(place)) => {
                let request = Request {
                    token: request.token,
                    peer: request.peer,
                    base: request.base,
                    path: self.canonical(place, path),
                    envelope: *envelope,
                };
                self.message(place, request);
            }
            (Method::Post(Err(error)), Some(_)) => {
                self.refuse(request.peer, HostRefusal::Unreadable, error.to_string());
                let urn = self.ids.urn();
                self.reply(
                    request.token,
                    Reply::message(exchange::unreadable(&error, urn)),
                );
            }
            (Method::Get, Some(Place::Service(index))) if query.eq_ignore_ascii_case("wsdl") => {
                let document = self.config.services[index].document.clone();
                self.reply(request.token, Reply::document(document));
            }
            (Method::Get | Method::Other, Some(_)) => {
                self.refuse(request.peer, HostRefusal::Method, path);
                self.reply(request.token, Reply::METHOD_NOT_ALLOWED);
            }
            (_, None) => {
                self.refuse(request.peer, HostRefusal::Path, path);
                self.reply(request.token, Reply::NOT_FOUND);
            }
        }
    }

    /// A last slash makes no difference: some clients add one.
    fn place(&self, path: &str) -> Option<Place> {
        let same = |own: &Str| own.trim_end_matches('/') == path.trim_end_matches('/');
        if self.events.manages(path) {
            return Some(Place::Manager);
        }
        let service = self
            .config
            .services
            .iter()
            .position(|service| same(&service.path));
        let device = same(&self.config.path).then_some(Place::Device);
        service.map(Place::Service).or(device)
    }

    /// The path as it was configured.
    fn canonical(&self, place: Place, path: String) -> Str {
        match place {
            Place::Service(index) => self.config.services[index].path.clone(),
            Place::Device | Place::Manager => path.into(),
        }
    }

    fn message(&mut self, place: Place, request: Request) {
        let (token, peer) = (request.token, request.peer);
        if let Err(Refused(reason, fault)) = self.valid(place, &request.envelope) {
            return self.fault(&request, reason, &fault);
        }
        let version = request.envelope.addressing.version;
        let dialect = exchange::dialect_of(version);
        let action = request.envelope.addressing.action.clone();
        let eventing = action
            .strip_prefix(EVENTING)
            .is_some_and(|rest| rest.starts_with('/'));
        match (place, &*action) {
            (Place::Manager | Place::Service(_), _) if eventing => {
                let receive = SourceReceive::Request(Box::new(request));
                self.eventing(Input::Receive(receive));
            }
            (Place::Device, GET_ACTION) => {
                let metadata = self.metadata(dialect, &request.base);
                let urn = self.ids.urn();
                let answer = transfer_get_response(&request.envelope, &metadata, urn);
                self.reply(token, Reply::message(answer));
            }
            (Place::Device | Place::Service(_), GET_METADATA_ACTION) => {
                let asked = request.envelope.body().and_then(GetMetadata::from_element);
                let metadata = match place {
                    Place::Service(index) => {
                        let service = &self.config.services[index];
                        self.service_metadata(dialect, &request.base, service)
                    }
                    _ => self.metadata(dialect, &request.base),
                };
                let metadata = asked.unwrap_or_default().select(&metadata);
                let urn = self.ids.urn();
                let answer = exchange::reply(&request.envelope, GET_METADATA_RESPONSE_ACTION, urn)
                    .with_body(metadata.to_element(dialect));
                self.reply(token, Reply::message(answer));
            }
            (Place::Service(index), _) => self.operation(index, request),
            _ => {
                let fault = exchange::action_not_supported(version, &action);
                let urn = self.ids.urn();
                self.refuse(peer, HostRefusal::Action, action.into_owned());
                let answer = exchange::fault(&request.envelope, &fault, urn);
                self.reply(token, Reply::message(answer));
            }
        }
    }

    fn fault(&mut self, request: &Request, reason: HostRefusal, fault: &Fault) {
        self.refuse(request.peer, reason, fault.reason.clone().into_owned());
        let urn = self.ids.urn();
        let mut envelope = exchange::fault(&request.envelope, fault, urn);
        // The answer goes back on this connection, whatever address was refused.
        let version = request.envelope.addressing.version;
        envelope.addressing.to = Some(version.anonymous().into());
        self.reply(request.token, Reply::message(envelope));
    }

    /// Whether the headers are such that the message may be served.
    fn valid(&self, place: Place, envelope: &Envelope) -> Result<(), Refused> {
        let identifier = Name::new(EVENTING, "Identifier");
        let mut understood = self.config.understood.clone();
        understood.push(identifier);
        if let Some(header) = envelope.not_understood(&understood) {
            let fault = exchange::not_understood(&header.name);
            return Err(Refused(HostRefusal::NotUnderstood, fault));
        }
        let addressing = &envelope.addressing;
        let version = addressing.version;
        let refuse = |subcode, reason: String| {
            let fault = Fault::sender(version.name(subcode), reason);
            Err(Refused(HostRefusal::Addressing, fault))
        };
        for (header, to) in [
            ("ReplyTo", &addressing.reply_to),
            ("FaultTo", &addressing.fault_to),
        ] {
            if to.as_ref().is_some_and(|to| !is_here(version, to)) {
                let reason = format!("{header} is not anonymous, which alone is supported");
                return refuse("InvalidAddressingHeader", reason);
            }
        }
        let one_way = addressing
            .reply_to
            .as_ref()
            .is_some_and(|to| to.address == NONE)
            || self.is_one_way(place, &addressing.action);
        if addressing.message_id.is_none() && !one_way {
            let reason = "MessageID is missing and an answer is wanted".to_owned();
            return refuse("MessageAddressingHeaderRequired", reason);
        }
        let to = addressing.to.as_deref().unwrap_or(version.anonymous());
        let own = &*self.config.endpoint.address;
        let is_urn = |uri: &str| uri.starts_with("urn:") || uri.starts_with("uuid:");
        if is_urn(to) && to != own {
            let reason = format!("{to} is not here, {own} is");
            let fault = Fault::sender(version.name("DestinationUnreachable"), reason);
            return Err(Refused(HostRefusal::Destination, fault));
        }
        Ok(())
    }

    fn is_one_way(&self, place: Place, action: &str) -> bool {
        let Place::Service(index) = place else {
            return false;
        };
        let found = self.config.services[index].wsdl.operation_of(action);
        found.is_some_and(|(_, operation)| operation.kind == OperationKind::OneWay)
    }

    /// Asks the application.
    fn operation(&mut self, index: usize, request: Request) {
        let service = &self.config.services[index];
        let action = request.envelope.addressing.action.clone();
        let found = service
            .wsdl
            .operation_of(&action)
            .map(|(_, operation)| operation);
        let called = |kind| matches!(kind, OperationKind::OneWay | OperationKind::RequestResponse);
        let Some(operation) = found.filter(|operation| called(operation.kind)) else {
            let version = request.envelope.addressing.version;
            let fault = exchange::action_not_supported(version, &action);
            return self.fault(&request, HostRefusal::Action, &fault);
        };
        let one_way = operation.kind == OperationKind::OneWay;
        let answer = operation
            .output
            .as_ref()
            .map(|output| output.action.clone());
        let mut envelope = request.envelope;
        let body = (!envelope.body.is_empty()).then(|| envelope.body.remove(0));
        let invocation = Invocation {
            token: request.token,
            peer: request.peer,
            service_id: service.service_id.clone(),
            operation: operation.name.clone(),
            kind: operation.kind,
            action,
            body,
            headers: envelope.headers.clone(),
        };
        if one_way {
            self.reply(request.token, Reply::ACCEPTED);
        } else {
            let waiting = Waiting {
                peer: request.peer,
                request: envelope,
                action: answer.unwrap_or_default().into(),
            };
            if !self.wait(request.token, waiting) {
                return;
            }
        }
        self.event(DeviceEvent::Invoked(Box::new(invocation)));
    }

    /// Keeps an operation until the application answers; `false` when there is no place.
    fn wait(&mut self, token: Token, waiting: Waiting) -> bool {
        if self.invocations.len() >= self.config.invocations_max
            || self.invocations.contains_key(&token)
        {
            let detail = waiting.request.addressing.action.clone().into_owned();
            self.refuse(waiting.peer, HostRefusal::Busy, detail);
            self.reply(token, Reply::UNAVAILABLE);
            return false;
        }
        self.invocations.insert(token, waiting);
        self.timers
            .set(token, self.now + self.config.invocation_timeout);
        true
    }
}

/// Whether answers to this reference go back on the connection, or nowhere.
fn is_here(version: AddressingVersion, to: &EndpointReference) -> bool {
    to.address == version.anonymous() || to.address == NONE
}
