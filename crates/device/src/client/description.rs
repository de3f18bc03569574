//! What a device says of itself, read and understood.

use std::collections::{HashMap, HashSet};

use chappe_dpws::Dialect;
use chappe_dpws::metadata::{ThisDevice, ThisModel, localized};
use chappe_identity::Contact;
use chappe_soap::EndpointReference;
use chappe_soap::schema::Schemas;
use chappe_soap::wsdl::Wsdl;
use chappe_xml::Name;

use super::Found;
use super::turns::Turn;

/// The description of a device.
#[derive(Debug, Clone)]
pub struct Description {
    /// What discovery said.
    pub found: Found,
    /// Where the device answered.
    pub contact: Contact,
    /// How it speaks.
    pub dialect: Dialect,
    /// What all devices of the model have in common.
    pub model: ThisModel,
    /// What this device has alone.
    pub device: ThisDevice,
    /// What it is, by its metadata.
    pub types: Vec<Name>,
    /// Its services.
    pub services: Vec<HostedService>,
    /// What is odd about it, or missing; none of it prevents its use.
    pub notes: Vec<Note>,
    pub(super) turn: Option<Turn>,
}

impl Description {
    /// What its users call it: in English, else in the first language it says it in.
    #[must_use]
    pub fn name(&self) -> &str {
        localized(&self.device.friendly_name, "en").unwrap_or(&self.found.endpoint)
    }

    /// The service of this identifier.
    #[must_use]
    pub fn service(&self, id: &str) -> Option<&HostedService> {
        self.services.iter().find(|service| service.id == id)
    }

    /// The service that sends the event or knows the operation of this action.
    #[must_use]
    pub fn service_of(&self, action: &str) -> Option<&HostedService> {
        let knows = |service: &&HostedService| service.wsdl.operation_of(action).is_some();
        self.services.iter().find(knows)
    }
}

/// A service of a device.
#[derive(Debug, Clone)]
pub struct HostedService {
    /// Its identifier in the device (a URI).
    pub id: String,
    /// Its port types.
    pub types: Vec<Name>,
    /// Its endpoint, for the address of messages.
    pub endpoint: EndpointReference,
    /// Where it is reached.
    pub contact: Contact,
    /// How it speaks.
    pub dialect: Dialect,
    /// Its WSDL with what that imports, without the schemas in it; empty when there is none.
    pub wsdl: Wsdl,
    /// Its schemas with what they import.
    pub schemas: Schemas,
    /// The documents as they were read.
    pub documents: Vec<Document>,
    /// Why its metadata or its WSDL could not be read, when another attempt may succeed.
    pub unread: Option<Note>,
}

impl HostedService {
    /// What is needed to call it by action, without the documents.
    #[must_use]
    pub fn without_documents(&self) -> Self {
        Self {
            id: self.id.clone(),
            types: self.types.clone(),
            endpoint: self.endpoint.clone(),
            contact: self.contact.clone(),
            dialect: self.dialect,
            wsdl: Wsdl::default(),
            schemas: Schemas::default(),
            documents: Vec::new(),
            unread: None,
        }
    }

    /// The actions of its events, as its WSDL has them.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let mut known = HashSet::new();
        let events = self.wsdl.events().map(|(action, _)| action);
        events
            .filter(|action| known.insert(*action))
            .map(str::to_owned)
            .collect()
    }

    /// The elements that events of each action carry.
    #[must_use]
    pub fn event_elements(&self) -> HashMap<String, Name> {
        let events = self.wsdl.events();
        events
            .filter_map(|(action, element)| Some((action.to_owned(), element?.clone())))
            .collect()
    }
}

/// A document of a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it came from; that of the service when it stood in its metadata.
    pub location: String,
    /// Its text.
    pub text: String,
}

/// Something odd or missing in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A few words that are always the same.
    pub reason: &'static str,
    /// What was special.
    pub detail: String,
    /// What can be done, when that is known.
    pub hint: Option<String>,
}
