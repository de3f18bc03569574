//! Routing and validation of requests.

use std::net::SocketAddr;

use chappe_machine::Input;
use chappe_soap::wsdl::OperationKind;
use chappe_soap::{AddressingVersion, Body, Envelope, Fault, LazyEnvelope};
use chappe_xml::{Element, Name, Str};

use super::device::{Device, PendingInvocation};
use super::{DeviceEvent, HostRefusal, HttpRequest, Invocation, Method, probe};
use crate::dialect::EVENTING;
use crate::eventing::{Request, SourceReceive, Token};
use crate::exchange::{self, NONE, Reply};
use crate::metadata::{
    GET_ACTION, GET_METADATA_ACTION, GET_METADATA_RESPONSE_ACTION, GetMetadata,
    transfer_get_response,
};

/// The resource of a path.
#[derive(Debug, Clone, Copy)]
enum Resource {
    Device,
    Service(usize),
    Manager,
}

/// A request rejected with a fault, and with headers that explain it.
struct Rejected(HostRefusal, Box<Fault>, Vec<Element>);

impl Device {
    pub(super) fn on_http(&mut self, request: HttpRequest) {
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path.to_owned(), query.to_owned()),
            None => (request.target.clone().into_owned(), String::new()),
        };
        let resource = self.resource(&path);
        match (request.method, resource) {
            (Method::Post(Ok(envelope)), Some(resource)) => {
                let LazyEnvelope { head, body } = *envelope;
                let request = Request {
                    token: request.token,
                    peer: request.peer,
                    base: request.base,
                    path: self.configured_path(resource, path),
                    envelope: head,
                };
                self.on_message(resource, request, body);
            }
            (Method::Post(Err(error)), Some(_)) => {
                self.unreadable(request.token, request.peer, &error);
            }
            (Method::Get, Some(Resource::Service(index))) if query.eq_ignore_ascii_case("wsdl") => {
                let document = self.config.services[index].document(&request.base);
                self.reply(request.token, Reply::document(document));
            }
            (Method::Get | Method::Other, Some(resource)) => {
                self.refuse(request.peer, HostRefusal::Method, path);
                let allow = match resource {
                    Resource::Service(_) => "GET, POST",
                    Resource::Device | Resource::Manager => "POST",
                };
                self.reply(request.token, Reply::method_not_allowed(allow));
            }
            (_, None) => {
                self.refuse(request.peer, HostRefusal::Path, path);
                self.reply(request.token, Reply::NOT_FOUND);
            }
        }
    }

    fn unreadable(&mut self, token: Token, peer: SocketAddr, error: &chappe_soap::Error) {
        self.refuse(peer, HostRefusal::Unreadable, error.to_string());
        let urn = self.ids.urn();
        self.reply(token, exchange::unreadable(error, urn));
    }

    /// Trailing slashes are ignored, since some clients add one.
    fn resource(&self, path: &str) -> Option<Resource> {
        let is_same_path = |own: &Str| own.trim_end_matches('/') == path.trim_end_matches('/');
        if self.events.manages(path) {
            return Some(Resource::Manager);
        }
        let service = self
            .config
            .services
            .iter()
            .position(|service| is_same_path(&service.path));
        let device = is_same_path(&self.config.path).then_some(Resource::Device);
        service.map(Resource::Service).or(device)
    }

    /// The path in the configuration.
    fn configured_path(&self, resource: Resource, path: String) -> Str {
        match resource {
            Resource::Service(index) => self.config.services[index].path.clone(),
            Resource::Device | Resource::Manager => path.into(),
        }
    }

    /// Answers a message whose envelope has no body yet, since only its operation knows how to read it.
    fn on_message(&mut self, resource: Resource, mut request: Request, body: Vec<Body>) {
        let (token, peer) = (request.token, request.peer);
        if let Err(Rejected(reason, fault, headers)) = self.validate(resource, &request.envelope) {
            return self.reject(&request, reason, &fault, headers);
        }
        let version = request.envelope.addressing.version;
        let dialect = exchange::dialect_of(version);
        let action = request.envelope.addressing.action.clone();
        let eventing = action
            .strip_prefix(EVENTING)
            .is_some_and(|rest| rest.starts_with('/'));
        if let Resource::Service(index) = resource
            && !eventing
            && action != GET_METADATA_ACTION
        {
            return self.operation(index, request, body);
        }
        let trees = body.into_iter().map(Body::into_element);
        request.envelope.body = match trees.collect() {
            Ok(trees) => trees,
            Err(error) => return self.unreadable(token, peer, &error.into()),
        };
        match (resource, &*action) {
            (Resource::Manager | Resource::Service(_), _) if eventing => {
                let receive = SourceReceive::Request(Box::new(request));
                self.eventing(Input::Receive(receive));
            }
            (Resource::Device, GET_ACTION) => {
                let metadata = self.metadata(dialect, &request.base);
                let urn = self.ids.urn();
                let answer = transfer_get_response(&request.envelope, &metadata, urn);
                self.reply(token, Reply::message(answer));
            }
            (Resource::Device | Resource::Service(_), GET_METADATA_ACTION) => {
                let get_metadata = request.envelope.body().and_then(GetMetadata::from_element);
                let metadata = match resource {
                    Resource::Service(index) => {
                        let service = &self.config.services[index];
                        self.service_metadata(dialect, &request.base, service)
                    }
                    _ => self.metadata(dialect, &request.base),
                };
                let metadata = get_metadata.unwrap_or_default().select(&metadata);
                let urn = self.ids.urn();
                let answer = exchange::reply(&request.envelope, GET_METADATA_RESPONSE_ACTION, urn)
                    .with_body(metadata.to_element(dialect));
                self.reply(token, Reply::message(answer));
            }
            (Resource::Device, _) if probe::is_probe(&request.envelope) => self.on_probe(&request),
            _ => {
                let fault = exchange::action_not_supported(version, &action);
                let urn = self.ids.urn();
                self.refuse(peer, HostRefusal::Action, action.into_owned());
                let answer = exchange::fault(&request.envelope, &fault, urn);
                self.reply(token, Reply::message(answer));
            }
        }
    }

    pub(super) fn fault(&mut self, request: &Request, reason: HostRefusal, fault: &Fault) {
        self.reject(request, reason, fault, Vec::new());
    }

    fn reject(
        &mut self,
        request: &Request,
        reason: HostRefusal,
        fault: &Fault,
        headers: Vec<Element>,
    ) {
        self.refuse(request.peer, reason, fault.reason.clone().into_owned());
        let urn = self.ids.urn();
        let mut envelope = exchange::fault(&request.envelope, fault, urn);
        envelope.headers.extend(headers);
        // The answer uses this connection even if another address was refused.
        let anonymous = request.envelope.addressing.version.anonymous();
        let to = envelope.addressing.to.get_or_insert(anonymous.into());
        if !is_supported_reply(request.envelope.addressing.version, to) {
            *to = anonymous.into();
        }
        self.reply(request.token, Reply::message(envelope));
    }

    /// Validates the headers.
    fn validate(&self, resource: Resource, envelope: &Envelope) -> Result<(), Rejected> {
        if !envelope.headers.is_empty() {
            let mut understood = self.config.understood.clone();
            understood.push(Name::new(EVENTING, "Identifier"));
            if let Some((fault, headers)) = exchange::not_understood(envelope, &understood) {
                return Err(Rejected(HostRefusal::NotUnderstood, fault.into(), headers));
            }
        }
        let addressing = &envelope.addressing;
        let version = addressing.version;
        let refuse = |subcode, reason: String| {
            let fault = Fault::sender(version.fault_name(subcode), reason);
            Err(Rejected(HostRefusal::Addressing, fault.into(), Vec::new()))
        };
        for (header, to) in [
            ("ReplyTo", &addressing.reply_to),
            ("FaultTo", &addressing.fault_to),
        ] {
            if to
                .as_ref()
                .is_some_and(|to| !is_supported_reply(version, &to.address))
            {
                let reason =
                    format!("{header} must be anonymous; other addresses are not supported");
                return refuse("InvalidAddressingHeader", reason);
            }
        }
        let one_way = addressing
            .reply_to
            .as_ref()
            .is_some_and(|to| to.address == NONE)
            || self.is_one_way(resource, &addressing.action);
        if addressing.message_id.is_none() && !one_way {
            let reason = "MessageID is missing in a request that expects an answer".to_owned();
            return refuse("MessageAddressingHeaderRequired", reason);
        }
        let to = addressing.to.as_deref().unwrap_or(version.anonymous());
        let own = &*self.config.endpoint.address;
        let is_urn = |uri: &str| uri.starts_with("urn:") || uri.starts_with("uuid:");
        if is_urn(to) && to != own && !probe::is_to_all(envelope) {
            let reason = format!("{to} is not at this endpoint, which is {own}");
            let fault = Fault::sender(version.name("DestinationUnreachable"), reason);
            return Err(Rejected(HostRefusal::Destination, fault.into(), Vec::new()));
        }
        Ok(())
    }

    fn is_one_way(&self, resource: Resource, action: &str) -> bool {
        let Resource::Service(index) = resource else {
            return false;
        };
        let operation = self.config.services[index].wsdl.operation_of(action);
        operation.is_some_and(|(_, operation)| operation.kind == OperationKind::OneWay)
    }

    /// Passes a call to the application.
    fn operation(&mut self, index: usize, request: Request, body: Vec<Body>) {
        let service = &self.config.services[index];
        let action = request.envelope.addressing.action.clone();
        let operation = service
            .wsdl
            .operation_of(&action)
            .map(|(_, operation)| operation);
        let is_callable =
            |kind| matches!(kind, OperationKind::OneWay | OperationKind::RequestResponse);
        let Some(operation) = operation.filter(|operation| is_callable(operation.kind)) else {
            let version = request.envelope.addressing.version;
            let fault = exchange::action_not_supported(version, &action);
            return self.fault(&request, HostRefusal::Action, &fault);
        };
        let one_way = operation.kind == OperationKind::OneWay;
        let answer = operation
            .output
            .as_ref()
            .map(|output| output.action.clone());
        let faults = operation.faults.iter().filter_map(|fault| {
            let element = service.wsdl.element(fault)?;
            Some((element.clone(), Str::Owned(fault.action.clone())))
        });
        let faults: Vec<_> = faults.collect();
        let envelope = request.envelope;
        let invocation = Invocation {
            token: request.token,
            peer: request.peer,
            certificate: None,
            service_id: service.service_id.clone(),
            operation: operation.name.clone(),
            kind: operation.kind,
            action,
            body: body.into_iter().next(),
            headers: envelope.headers.clone(),
        };
        if one_way {
            self.reply(request.token, Reply::ACCEPTED);
        } else {
            let pending = PendingInvocation {
                peer: request.peer,
                request: envelope,
                action: answer.unwrap_or_default().into(),
                faults,
            };
            if !self.store_invocation(request.token, pending) {
                return;
            }
        }
        self.event(DeviceEvent::Invoked(Box::new(invocation)));
    }

    /// Stores a call until the application answers; `false` if the limit is reached.
    fn store_invocation(&mut self, token: Token, pending: PendingInvocation) -> bool {
        if self.invocations.len() >= self.config.invocations_max
            || self.invocations.contains_key(&token)
        {
            let detail = pending.request.addressing.action.clone().into_owned();
            self.refuse(pending.peer, HostRefusal::Busy, detail);
            self.reply(token, Reply::UNAVAILABLE);
            return false;
        }
        self.invocations.insert(token, pending);
        self.timers
            .set(token, self.now + self.config.invocation_timeout);
        true
    }
}

/// Whether answers use the request's connection or are discarded.
fn is_supported_reply(version: AddressingVersion, to: &str) -> bool {
    to == version.anonymous() || to == NONE
}
